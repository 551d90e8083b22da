"""What holds while a layer is called, for the layers in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...observe import log_once
from ..masks import masked, masks_of

INFERENCE_CALLS: ContextVar[list[str] | None] = ContextVar("paceline_inference_calls", default=None)
"""Where to note the names of layers that are called as outside training, if anybody wants to know:
to find a `training=True` that was forgotten."""
TRAINING: ContextVar[bool] = ContextVar("paceline_training", default=False)
"""Whether the layer that is being called was called for training: what layers in it go by that are
not told."""


@contextmanager
def noting_inference_calls() -> Iterator[list[str]]:
    """Within it, in this thread, layers that train otherwise than they predict note their names.

    Yields:
        The names of those that were called without training: in the order of the calls.
    """
    names: list[str] = []
    token = INFERENCE_CALLS.set(names)
    try:
        yield names
    finally:
        INFERENCE_CALLS.reset(token)


def taken_by_keyword(layer: Any, name: str, kwargs: dict[str, Any]) -> Any:
    """The inputs of a layer, taken out of what its call was given by keyword.

    Raises:
        TypeError: They are not there.
    """
    if name not in kwargs:
        raise TypeError(
            f"layer {layer.name!r} was called without {name}; call it with an array, as "
            f"layer({name})"
        )
    return kwargs.pop(name)


def with_layers_mask(layer: Any, inputs: Any, outputs: Any, mask: Any) -> Any:
    """The outputs of a layer with the mask that they have where the inputs have `mask`."""
    if masks_of(outputs) is not None:
        return outputs
    if layer.supports_masking:
        return masked(outputs, layer.compute_mask(inputs, mask))
    if not layer.sublayers:  # which have done with the mask what they do
        log_once(
            logging.WARNING,
            "Layer %r was given inputs with a mask, which it does not support: what comes behind "
            "it does not see the mask.",
            layer.name,
        )
    return outputs
