"""Models from what was written down: from JSON, from another model, from a saved one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...checkpoint import CheckpointError
from ..serialization import custom_object_scope, deserialize
from .model import Model
from .saving import Path, read_saved


def model_from_json(text: str, custom_objects: Mapping[str, Any] | None = None) -> Model:
    """The model that `Model.to_json` has written down, with new weights, not compiled.

    Args:
        text: What it returned.
        custom_objects: Classes and functions that are not of this package, by their names.

    Raises:
        ValueError: It is no JSON of a model, or names what is neither here nor there.
    """
    return _made(json.loads(text), custom_objects)


def clone_model(model: Model) -> Model:
    """A model of the same class, layers and arguments, with weights of its own, not compiled."""
    return type(model).from_config(model.get_config())


def load_model(
    filepath: Path, custom_objects: Mapping[str, Any] | None = None, compile: bool = True
) -> Model:
    """The model that `Model.save` has written: layers, weights, and what it was compiled with.

    Under a strategy, load it in its scope; it need not be the one that it was saved under.

    Args:
        filepath: A directory or URL.
        custom_objects: Classes and functions that are not of this package, by their names.
        compile: Whether it goes on with the optimizer, its state, the loss and the metrics.

    Raises:
        CheckpointError: There is no saved model, or it is damaged.
        ValueError: It names a class or function that is neither here nor there.
    """
    state, values = read_saved(filepath)
    if "model" not in state:
        raise CheckpointError(
            f"'{filepath}' holds weights and no model: make the model as it was made then, and "
            f"call model.load_weights('{filepath}')"
        )
    with custom_object_scope(custom_objects or {}):
        model = _made(state["model"], None)
        if compile and state["compile"] is not None:
            model.compile(**deserialize(state["compile"]))
    model.restore(state, values)
    return model


def _made(written: Any, custom_objects: Mapping[str, Any] | None) -> Model:
    model = deserialize(written, custom_objects)
    if not isinstance(model, Model):
        raise ValueError(f"it is the JSON of {model!r}, which is no model: use nn.deserialize")
    return model
