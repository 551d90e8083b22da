"""Loading an exported model, to ask it questions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from ...autodiff import Array
from ...checkpoint import lease, list_exports
from ...checkpoint import load as load_checkpoint
from ...strategies import VariableStore
from ...training import ModeKeys
from ..export import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from ..model_function import ModelFunction
from ..run_config import RunConfig
from .running import Program, arrays_of
from .signature import ExportInfo, ModeInfo, TensorInfo, as_input, imported, made_up, read_info

_logger = logging.getLogger("paceline")


def load(
    path: str | os.PathLike[str],
    model_fn: Callable[..., Any] | None = None,
    mode: str = ModeKeys.PREDICT,
    *,
    allowed: Sequence[str] | None = None,
    params: Any = None,
) -> LoadedModel:
    """Load an exported model, for this process alone.

    The export names functions that are imported and called: its `model_fn`, and those that make
    features of inputs. To import a module runs it. So say in `allowed` from which modules they may
    be, unless you trust the export. Functions of Python's own modules are never called.

    Args:
        path: What `Estimator.export_saved_model` returned; of a directory of exports the newest.
        model_fn: The function that it was exported with; by default it is imported.
        mode: For which of the modes that it was exported for.
        allowed: The modules and packages from which functions may be, such as `["mypackage"]`. By
            default those of the package (the first part of the module's name) that `model_fn` is
            from.
        params: The parameters that the export does not hold, by name: those that are no JSON, such
            as feature columns. All of them, where they were no dict.

    Returns:
        The model: a function of a batch.

    Raises:
        CheckpointError: There is no export, or it is damaged.
        ValueError: `model_fn` cannot be imported, or its variables are not those of the export; or
            a function is of a module that is not allowed, or params are not those that it lacks.
        TypeError: `allowed` is a text and no sequence of texts.
    """
    if isinstance(allowed, str):
        raise TypeError(f"allowed must be a sequence of modules, such as ({allowed!r},)")
    path = os.fsdecode(path)
    path = next(reversed(list_exports(path)), path)
    with lease(path):
        info = read_info(path)
        if mode not in info.modes:
            raise ValueError(
                f"'{path}' is exported for mode(s) {', '.join(info.modes)}, not for {mode!r}"
            )
        reader = load_checkpoint(path)
        weights = _Weights(path, reader.arrays())
    trusted = _package_of(model_fn, info) if allowed is None else tuple(allowed)
    if model_fn is None:
        model_fn = _model_fn_of(info, path, trusted)
    store = VariableStore(restore=weights.restore)
    model = ModelFunction(model_fn, _params_of(info, path, params), RunConfig())
    found = info.modes[mode]
    program = Program(model, store, ModeKeys(mode), found.features, found.labels, trusted)
    loaded = LoadedModel(path, reader.step, program, found)
    program.ask(made_up(found.inputs, found.features, 1))
    if len(info.modes) == 1:  # a model for several takes some weights in another one
        weights.require_all_taken()
    return loaded


def _package_of(model_fn: Callable[..., Any] | None, info: ExportInfo) -> tuple[str, ...]:
    """The package that the `model_fn` is from, as given or as an export names it.

    Nothing where it is paceline's: that has functions enough that write and delete files.
    """
    module = info.model_fn if model_fn is None else getattr(model_fn, "__module__", None)
    package = (module or "").partition(":")[0].partition(".")[0]
    return (package,) if package not in ("", __name__.partition(".")[0]) else ()


def _model_fn_of(info: ExportInfo, path: str, allowed: Sequence[str]) -> Callable[..., Any]:
    if info.model_fn is None:
        raise ValueError(
            f"the model_fn of '{path}' was defined inside of a function or of a notebook, where "
            f"it cannot be found again; pass it: load(path, model_fn=...)"
        )
    try:
        return imported(info.model_fn, allowed)
    except ValueError as error:
        raise ValueError(
            f"the model_fn of '{path}' is not found: {error}; put its module on the import path, "
            f"or pass the function: load(path, model_fn=...)"
        ) from error


def _params_of(info: ExportInfo, path: str, given: Any) -> Any:
    """The parameters of the export, with those that it does not hold."""
    missing = info.params_to_pass
    if missing == "all" and given is not None:
        return given
    if isinstance(given, Mapping | None) and set(given or ()) == set(missing):
        return {**info.params, **(given or {})} if info.params is not None else None
    names = missing if missing == "all" else ", ".join(map(repr, missing)) or "none"
    raise ValueError(
        f"params must be those that '{path}' does not hold, since JSON cannot give them back "
        f"({names}), got {given!r}; pass what the Estimator was given: "
        f"load(path, params={{...}})"
    )


@final
class LoadedModel:
    """A model that answers; several threads may ask at once.

    Called, it answers by its default signature.

    Attributes:
        path: Where it was loaded from.
        step: The global step that it had been trained to.
        signatures: What can be asked for, by name.
    """

    def __init__(self, path: str, step: int, program: Program, info: ModeInfo) -> None:
        self.path = path
        self.step = step
        self.signatures: Mapping[str, LoadedSignature] = {
            name: LoadedSignature(name, program, info.inputs, found.method_name, found.outputs)
            for name, found in info.signatures.items()
        }

    def __call__(self, inputs: Any = None, /, **named: Any) -> dict[str, np.ndarray]:
        """The answer to a batch; see `LoadedSignature`."""
        names = iter(self.signatures)
        default = DEFAULT_SERVING_SIGNATURE_DEF_KEY
        chosen = default if default in self.signatures else next(names)
        return self.signatures[chosen](inputs, **named)

    def __repr__(self) -> str:
        return f"<LoadedModel {self.path!r}, step {self.step}: {', '.join(self.signatures)}>"


@final
class LoadedSignature:
    """One kind of question: a function of a batch.

    Attributes:
        name: Its name.
        inputs, outputs: By name, their shapes (None: any length) and dtypes.
        method_name: What kind it is, in the words of TensorFlow Serving.
        program: What answers.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        inputs: Mapping[str, TensorInfo],
        method_name: str,
        outputs: Mapping[str, TensorInfo],
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.method_name = method_name
        self.outputs = outputs
        self.program = program

    def __call__(self, inputs: Any = None, /, **named: Any) -> dict[str, np.ndarray]:
        """The answer to a batch.

        Args:
            inputs: Name → array; where there is one input, the array alone will do.
            **named: The same as keyword arguments.

        Returns:
            Name → array, each with the rows of the batch where the model keeps them.

        Raises:
            ValueError: An input is missing or unknown, or has another shape or dtype.
        """
        given = dict(self._by_name(inputs, named))
        odd = given.keys() ^ self.inputs.keys()
        if odd:
            raise ValueError(
                f"signature {self.name!r} takes the input(s) {', '.join(self.inputs)}; "
                f"got {', '.join(map(str, given)) or 'none'}"
            )
        arrays = {name: as_input(info, name, given[name]) for name, info in self.inputs.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the inputs differ in their number of examples: {lengths}")
        return arrays_of(self.program.ask(arrays)[self.name])

    def _by_name(self, inputs: Any, named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        if isinstance(inputs, Mapping):
            yield from inputs.items()
        elif inputs is not None and len(self.inputs) == 1:
            yield from ((name, inputs) for name in self.inputs)
        elif inputs is not None:
            raise ValueError(
                f"signature {self.name!r} takes the inputs {', '.join(self.inputs)}: pass a dict"
            )
        yield from named.items()


@final
class _Weights:
    """Gives the variables of a model the values of an export, each once.

    Args:
        path: The export.
        arrays: Its weights by name.
    """

    def __init__(self, path: str, arrays: dict[str, np.ndarray]) -> None:
        self._path = path
        self._left = arrays

    def restore(self, name: str, value: Array, trainable: bool) -> np.ndarray:
        if name not in self._left:
            raise ValueError(
                f"variable {name!r} of model_fn is not among the weights of '{self._path}' "
                f"({', '.join(sorted(self._left)) or 'none left'}): model_fn or params are others "
                f"than those that it was exported with"
            )
        found = self._left.pop(name)
        if found.shape != value.shape or found.dtype != value.dtype:
            raise ValueError(
                f"variable {name!r} of model_fn has shape {value.shape} and dtype {value.dtype}, "
                f"and the weights in '{self._path}' {found.shape} and {found.dtype}: model_fn or "
                f"params are others than those that it was exported with"
            )
        return found

    def require_all_taken(self) -> None:
        """Refuse a model that is another one: weights are left over.

        Raises:
            ValueError: Which these are.
        """
        if self._left:
            raise ValueError(
                f"nothing in model_fn takes {', '.join(sorted(self._left))} from '{self._path}': "
                f"it is another one than that which was exported"
            )
