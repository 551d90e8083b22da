"""What holds while a layer is called, for the layers in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
