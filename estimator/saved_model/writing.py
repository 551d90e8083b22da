"""Exporting: a model's weights, what it takes and gives, and where its function is found."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from ...checkpoint import plain_json, save_export
from ...observe import log_once
from ...strategies import DEFAULT_STRATEGY, VariableStore
from ...training import ModeKeys
from ..export import Receiver
from ..model_function import ModelFunction
from .running import Program, arrays_of
from .signature import (
    FILE_NAME,
    FORMAT_VERSION,
    ExportInfo,
    ModeInfo,
    SignatureInfo,
    TensorInfo,
    ToPass,
    content_of,
    dtype_name,
    import_path,
    input_info,
    made_up,
    preparation_info,
    script_path,
)

_logger = logging.getLogger("paceline")
_ASSETS = "assets.extra"
_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)

ReceiverFn: TypeAlias = Callable[[], Receiver]
"""Says what a model takes: a `serving_input_receiver_fn`, for instance."""


@final
@dataclass(frozen=True)
class Exported:
    """A model that is to be exported.

    Args:
        model_fn: The user's function.
        params: What it is given.
        model: What calls it.
        store: Its variables, which begin with the values to export.
        step: Their global step.
    """

    model_fn: Callable[..., Any]
    params: dict[str, Any] | None
    model: ModelFunction
    store: VariableStore
    step: int


def _written(params: Any) -> tuple[dict[str, Any] | None, ToPass]:
    """The parameters that come back from JSON as they are, and which must be passed to `load`."""
    if params is None:
        return None, ()
    if not isinstance(params, dict) or not all(isinstance(name, str) for name in params):
        return None, "all"
    written = {name: value for name, value in params.items() if _is_json(value)}
    return written, tuple(name for name in params if name not in written)


def _is_json(value: Any) -> bool:
    try:
        plain_json("params", value)
    except TypeError:
        return False
    return True


def export_model(
    base: str | os.PathLike[str],
    exported: Exported,
    receivers: Mapping[str, ReceiverFn],
    assets_extra: Mapping[str, str | os.PathLike[str]] | None = None,
) -> str:
    """Write an export under `base`, all of it or nothing; its path.

    Args:
        base: A directory or URL; created if missing.
        exported: The model.
        receivers: What it takes, by the mode in which it is called.
        assets_extra: Files that are copied along: name below "assets.extra" → path.

    Raises:
        ValueError: It cannot be called with what the receivers say, or a file is missing.
        CheckpointError: `base` cannot be written to.
    """
    params, to_pass = _written(exported.params)
    if not receivers or receivers.keys() - set(_MODES):
        raise ValueError(
            f"a model is exported for the modes {', '.join(_MODES)}; "
            f"got {', '.join(map(str, receivers)) or 'none'}"
        )
    files: dict[str, Any] = {f"{_ASSETS}/{k}": path for k, path in (assets_extra or {}).items()}
    missing = [os.fspath(path) for path in files.values() if not os.path.isfile(path)]
    if missing:
        raise ValueError(f"assets_extra names {', '.join(missing)}, which is no file")
    modes = {
        mode.value: _mode_info(exported, mode, receivers[mode])
        for mode in _MODES
        if mode in receivers
    }
    path_of_function = import_path(exported.model_fn)
    info = ExportInfo(
        format_version=FORMAT_VERSION,
        paceline=_own_version(),
        model_fn=path_of_function or script_path(exported.model_fn),
        params=params,
        params_to_pass=to_pass,
        modes=modes,
    )
    files[FILE_NAME] = content_of(info)
    # Calling the model may have moved some values (moving means, in training).
    with exported.store.as_created(), DEFAULT_STRATEGY.scope():
        values = exported.store.saved_values()
    path = save_export(base, exported.step, values, files)
    _logger.info("The model of step %d is exported to %s", exported.step, path)
    if path_of_function is None:
        log_once(
            logging.WARNING,
            "Another program must pass model_fn %r to load its exports, as it cannot import it: "
            "load(path, model_fn=...), with a function at the top of a module, or the model_fn of "
            "a premade Estimator that is made alike.",
            getattr(exported.model_fn, "__qualname__", repr(exported.model_fn)),
        )
    if to_pass:
        names = to_pass if to_pass == "all" else ", ".join(map(repr, to_pass))
        log_once(
            logging.WARNING,
            "Exports of this model do not hold its params (%s), which JSON would not give back as "
            "they are. To load one, pass them: load(path, params={...}).",
            names,
        )
    return path


def _mode_info(exported: Exported, mode: ModeKeys, receiver_fn: ReceiverFn) -> ModeInfo:
    receiver = receiver_fn()
    if not isinstance(receiver, Receiver):
        raise TypeError(
            f"a serving_input_receiver_fn returns a ServingInputReceiver, or another one of "
            f"paceline.estimator.export; it returned {receiver!r}"
        )
    inputs = {name: input_info(spec) for name, spec in receiver.inputs.items()}
    features = preparation_info(receiver.features, receiver_fn, "features")
    labels = (
        None
        if receiver.labels is None
        else preparation_info(receiver.labels, receiver_fn, "labels")
    )
    own_modules = tuple(info.module for info in (features, labels) if info and info.module)
    program = Program(exported.model, exported.store, mode, features, labels, own_modules)
    try:
        found = [program.ask(made_up(inputs, features, count)) for count in (2, 3)]
    except Exception as error:
        error.add_note(
            "This was a call with made-up inputs (zeros, or empty texts), by which an export finds "
            "out what the model gives. If it cannot take them, describe the inputs by a batch that "
            "it can: build_raw_serving_input_receiver_fn({'x': batch})."
        )
        raise
    signatures = {
        name: SignatureInfo(
            method_name=output.method_name,
            outputs=_outputs(arrays_of(output), arrays_of(found[1][name])),
        )
        for name, output in found[0].items()
    }
    return ModeInfo(inputs=inputs, features=features, labels=labels, signatures=signatures)


def _outputs(of_two: dict[str, np.ndarray], of_three: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a model gives, from what it gave for two examples and for three."""
    return {name: _output(array, of_three[name]) for name, array in of_two.items()}


def _output(of_two: np.ndarray, of_three: np.ndarray) -> TensorInfo:
    lengths = zip(of_two.shape, of_three.shape, strict=True)
    shape = tuple(n if n == m else None for n, m in lengths)
    return TensorInfo(shape=shape, dtype=dtype_name(of_two.dtype))


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow, and needed here only

    try:
        return version("paceline")
    except PackageNotFoundError:
        return "source tree"
