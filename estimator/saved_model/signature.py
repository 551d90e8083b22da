"""`signature.json`: what an exported model takes and gives, and where its functions are found."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from ...checkpoint import CheckpointError, read_file
from ...inputs import FixedLenFeature, VarLenFeature, encode_example, parse_example
from ...observe import printable
from ..export import (
    ComputeFromPlaceholders,
    ParseExamples,
    PassOn,
    Preparation,
    Receiver,
    TensorSpec,
)

FILE_NAME = "signature.json"
FORMAT_VERSION = 1
_MAX_BYTES = 16 << 20
_TEXT = "str"
_MAIN = "__main__"

ToPass: TypeAlias = tuple[str, ...] | Literal["all"]
"""The parameters that `load` must be given, by name, or all of them."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class TensorInfo(_Record):
    """An input or an output.

    Attributes:
        shape: None is a length that may differ, as that of the batch does.
        dtype: NumPy's name; "str" for text and bytes.
        example: Of an input, a batch of one that the model is known to take; None: zeros, and
            empty texts.
    """

    shape: tuple[int | None, ...]
    dtype: str
    example: list[JsonValue] | None = None


class FeatureForm(_Record):
    """How a feature of a `tf.train.Example` is parsed; without a shape it has any length."""

    shape: tuple[int, ...] | None
    dtype: str
    default_value: JsonValue = None


class PreparationInfo(_Record):
    """How features, or labels, are made of the inputs: exactly one of these is given.

    Attributes:
        names: Feature → input, or the one input that is all.
        examples: Features that are parsed from the one input.
        function: The import path of a function of the inputs.
        features_of, labels_of: That of a function that returns a receiver, which computes them
            from placeholders.
    """

    names: dict[str, str] | str | None = None
    examples: dict[str, FeatureForm] | None = None
    function: str | None = None
    features_of: str | None = None
    labels_of: str | None = None

    @property
    def module(self) -> str | None:
        """The module, or `__main__`, of the function that is called, if there is one."""
        path = self.function or self.features_of or self.labels_of
        module = None if path is None else path.partition(":")[0]
        return _MAIN if module is not None and module.startswith(f"{_MAIN}.") else module


class SignatureInfo(_Record):
    """What is asked for under one name."""

    method_name: str
    outputs: dict[str, TensorInfo]


class ModeInfo(_Record):
    """What a model takes and gives in one mode."""

    inputs: dict[str, TensorInfo]
    features: PreparationInfo
    labels: PreparationInfo | None = None
    signatures: dict[str, SignatureInfo]


class ExportInfo(_Record):
    """The whole file.

    Attributes:
        format_version: Of this file; later ones may not be read by earlier programs.
        paceline: The version of the program that wrote it.
        model_fn: Its import path, "module:name", or "__main__.script:name" of a function of a
            script; None where it has none.
        params: What `model_fn` is given; None where it takes none, or where all must be passed.
        params_to_pass: The parameters that JSON would not give back as they are, by name; "all"
            where they are no dict of names.
        modes: By mode: "infer", "eval", "train".
    """

    format_version: int
    paceline: str
    model_fn: str | None
    params: dict[str, JsonValue] | None
    params_to_pass: ToPass = ()
    modes: dict[str, ModeInfo]


def read_info(path: str) -> ExportInfo:
    """What the export at `path` says of itself.

    Raises:
        CheckpointError: It has no such file, or one that cannot be understood.
    """
    text = read_file(path, FILE_NAME, _MAX_BYTES)
    try:
        found = json.loads(text)
        version = found.get("format_version") if isinstance(found, dict) else None
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{FILE_NAME} in '{path}' has format {version!r}, and this version of paceline "
                f"reads format {FORMAT_VERSION}: load it with the version that wrote it"
            )
        return ExportInfo.model_validate(found)
    except (ValidationError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{FILE_NAME} in '{path}' is damaged: {error}") from error


def content_of(info: ExportInfo) -> bytes:
    """The content of the file.

    Raises:
        ValueError: It is larger than it may be: an example of an input is.
    """
    content = (info.model_dump_json(indent=1, exclude_defaults=True) + "\n").encode()
    if len(content) > _MAX_BYTES:
        raise ValueError(
            f"{FILE_NAME} would have {len(content)} bytes and may have {_MAX_BYTES}; describe "
            f"large inputs by TensorSpec, and not by a batch, which is kept there"
        )
    return content


def input_info(spec: TensorSpec) -> TensorInfo:
    example = None if spec.example is None else spec.example[:1]
    if example is not None and example.dtype.kind in "SO":
        example = example.astype(str)
    listed = None if example is None else example.tolist()
    return TensorInfo(shape=spec.shape, dtype=dtype_name(spec.dtype), example=listed)


def dtype_name(dtype: np.dtype) -> str:
    return _TEXT if dtype.kind in "SUO" else dtype.name


def as_input(info: TensorInfo, name: str, value: Any) -> np.ndarray:
    """What a request gives for an input, as an array of its dtype.

    Raises:
        ValueError: It does not fit.
    """
    array = np.asarray(value)
    if info.dtype == _TEXT:
        fits = array.dtype.kind in "SUO"
        if array.dtype.kind == "O" and all(isinstance(text, str) for text in array.flat):
            array = array.astype(str)
    else:
        fits = np.can_cast(array.dtype, info.dtype, "same_kind")
        array = array.astype(info.dtype, copy=False) if fits else array
    fits &= array.ndim == len(info.shape)
    if not fits or any(n is not None and n != m for n, m in zip(info.shape, array.shape)):  # noqa: B905
        shape = ", ".join("any" if n is None else str(n) for n in info.shape)
        raise ValueError(
            f"input {name!r} takes arrays of dtype {info.dtype} and shape ({shape}); got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array


def made_up(
    inputs: Mapping[str, TensorInfo], features: PreparationInfo, num_examples: int
) -> dict[str, np.ndarray]:
    """A batch to try a model with: an input's example, or zeros, or empty texts and messages."""
    if features.examples is not None:
        [name] = inputs
        return {name: np.array([_message(features.examples)] * num_examples, object)}
    return {name: _made_up(info, num_examples) for name, info in inputs.items()}


def _made_up(info: TensorInfo, num_examples: int) -> np.ndarray:
    dtype = str if info.dtype == _TEXT else info.dtype
    if info.example is not None:
        return np.concatenate([np.asarray(info.example, dtype)] * num_examples)
    return np.zeros((num_examples, *(1 if n is None else n for n in info.shape[1:])), dtype)


def _message(forms: Mapping[str, FeatureForm]) -> bytes:
    """An Example that has every feature which must be there."""
    needed = {
        name: np.zeros(form.shape, str if form.dtype == _TEXT else form.dtype)
        for name, form in forms.items()
        if form.shape is not None and form.default_value is None
    }
    listed = {name: zeros.ravel().tolist() or [""] for name, zeros in needed.items()}
    return encode_example(listed)


def preparation_info(
    preparation: Preparation, receiver_fn: Callable[[], Receiver], of: Literal["features", "labels"]
) -> PreparationInfo:
    """A preparation as it is written down.

    Args:
        preparation: Of the features, or of the labels.
        receiver_fn: What made the receiver that has it.
        of: What it prepares: "features" or "labels".

    Raises:
        ValueError: It is a function that cannot be imported.
    """
    if isinstance(preparation, PassOn):
        names = preparation.names
        return PreparationInfo(names=names if isinstance(names, str) else dict(names))
    if isinstance(preparation, ParseExamples):
        forms = {name: _form_info(form) for name, form in preparation.features.items()}
        return PreparationInfo(examples=forms)
    is_computed = isinstance(preparation, ComputeFromPlaceholders)
    function = receiver_fn if is_computed else preparation
    path = import_path(function)
    if path is None and is_computed:
        path = script_path(function)
    if path is None:
        raise ValueError(
            f"the function {function!r} of an input receiver cannot be imported by who loads "
            f"the model: define it at the top of a module other than the script itself"
        )
    if not is_computed:
        return PreparationInfo(function=path)
    return (
        PreparationInfo(features_of=path) if of == "features" else PreparationInfo(labels_of=path)
    )


def _form_info(form: FixedLenFeature | VarLenFeature) -> FeatureForm:
    dtype = dtype_name(np.dtype(form.dtype))
    if isinstance(form, VarLenFeature):
        return FeatureForm(shape=None, dtype=dtype)
    default = form.default_value
    listed = None if default is None else np.asarray(default).tolist()
    return FeatureForm(shape=tuple(form.shape), dtype=dtype, default_value=listed)


def prepare(info: PreparationInfo, inputs: dict[str, np.ndarray], allowed: Sequence[str]) -> Any:
    """Features, or labels, of the inputs' arrays, by functions of these modules alone."""
    if info.function is not None:
        return imported(info.function, allowed)(inputs)
    if info.features_of is not None:
        return _computed(_receiver(info.features_of, allowed).features, inputs)
    if info.labels_of is not None:
        return _computed(_receiver(info.labels_of, allowed).labels, inputs)
    if info.examples is not None:
        [messages] = inputs.values()
        return _parsed(info.examples, messages)
    if isinstance(info.names, dict):
        return {feature: inputs[name] for feature, name in info.names.items()}
    assert info.names is not None, "one of them is given"
    return inputs[info.names]


def _receiver(path: str, allowed: Sequence[str]) -> Receiver:
    """What the `serving_input_receiver_fn` of an export returns."""
    receiver = imported(path, allowed)()
    if not isinstance(receiver, Receiver):
        raise ValueError(f"{path} returns no receiver; export the model again")
    return receiver


def _computed(preparation: Preparation | None, inputs: dict[str, np.ndarray]) -> Any:
    if not isinstance(preparation, ComputeFromPlaceholders):
        raise ValueError(
            "the serving_input_receiver_fn of this export no longer computes with placeholders; "
            "export the model again"
        )
    return preparation(inputs)


def _parsed(forms: dict[str, FeatureForm], messages: np.ndarray) -> dict[str, np.ndarray]:
    wanted = {name: _form_of(form) for name, form in forms.items()}
    rows = [parse_example(message, wanted) for message in messages]
    return {name: _stacked(form, [row[name] for row in rows]) for name, form in forms.items()}


def _form_of(form: FeatureForm) -> FixedLenFeature | VarLenFeature:
    dtype = str if form.dtype == _TEXT else np.dtype(form.dtype)
    if form.shape is None:
        return VarLenFeature(dtype)
    return FixedLenFeature(form.shape, dtype, form.default_value)


def _stacked(form: FeatureForm, rows: list[np.ndarray]) -> np.ndarray:
    if form.shape is not None:
        return np.stack(rows)
    length = max([len(row) for row in rows])
    filler: Any = "" if form.dtype == _TEXT else -1
    padded = [np.concatenate([row, np.full(length - len(row), filler, row.dtype)]) for row in rows]
    return np.stack(padded)


def import_path(function: Callable[..., Any]) -> str | None:
    """ "module:name" by which another program finds a function; None where it does not."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not isinstance(module, str) or module == _MAIN or not name or "<" in name:
        return None
    path = f"{module}:{name}"
    try:
        return path if imported(path, (module,)) is function else None
    except ValueError:
        return None


def script_path(function: Callable[..., Any]) -> str | None:
    """ "__main__.script:name" by which the same script finds a function of its own; else None."""
    name, script = getattr(function, "__qualname__", ""), _script()
    is_found = getattr(function, "__module__", None) == _MAIN and _found(_MAIN, name) is function
    return f"{_MAIN}.{script}:{name}" if script and is_found else None


def imported(path: str, allowed: Sequence[str]) -> Callable[..., Any]:
    """The function that `import_path` or `script_path` named.

    Args:
        path: What a file says, which is not trusted.
        allowed: The modules and packages from which it may be; nothing of Python's own is.

    Raises:
        ValueError: It may not be called, or is not there (any more).
    """
    path = printable(path)  # no other one names a function, and it is told
    module, _, name = path.partition(":")
    head, _, script = module.partition(".")
    if head == _MAIN and script:
        if script != _script():
            raise ValueError(f"{name} is a function of the script {script}.py, which is not run")
        module = _MAIN
    if not is_allowed(module, allowed):
        raise ValueError(
            f"{path} is not called, since it is not of {', '.join(allowed) or 'any module'}: if "
            f"you trust it, pass load(path, allowed=({module!r},))"
        )
    try:
        found = _found(module, name)
    except ImportError as error:
        raise ValueError(f"{path} cannot be imported: {error}") from error
    # A function that the module has imported from elsewhere is not its own.
    names = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if names != (module, name) or isinstance(found, type) or not callable(found):
        raise ValueError(f"{path} cannot be imported: {module} defines no such function")
    return found


def is_allowed(module: str, allowed: Sequence[str]) -> bool:
    """Whether a module is one of those, or in a package that is; none of Python's own ever is."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts) or parts[0] in sys.stdlib_module_names:
        return False
    return any(parts[: len(other)] == other for other in (name.split(".") for name in allowed))


def _found(module: str, name: str) -> Any:
    """What has this name in a module; None where nothing has."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _script() -> str:
    """The name of the script that this process runs, without suffix; empty where it runs none."""
    return Path(getattr(sys.modules[_MAIN], "__file__", None) or "").stem
