"""Models as JSON; saving and loading them whole, or their weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..serialization import deserialize
from .model import Model


def model_from_json(text: str, custom_objects: Mapping[str, Any] | None = None) -> Model:
    """The model that `Model.to_json` has written down, with new weights, not compiled.

    Args:
        text: What it returned.
        custom_objects: Classes and functions that are not of this package, by their names.

    Raises:
        ValueError: It is no JSON of a model, or names what is neither here nor there.
    """
    model = deserialize(json.loads(text), custom_objects)
    if not isinstance(model, Model):
        raise ValueError(f"it is the JSON of {model!r}, which is no model: use nn.deserialize")
    return model


def clone_model(model: Model) -> Model:
    """A model of the same class, layers and arguments, with weights of its own, not compiled."""
    return type(model).from_config(model.get_config())
