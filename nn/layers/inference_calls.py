"""Which layers were called as outside training: to find a `training=True` that was forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Layer

_noted: ContextVar[list[str] | None] = ContextVar("paceline_inference_calls", default=None)


@contextmanager
def noting_inference_calls() -> Iterator[list[str]]:
    """Within it, in this thread, layers that train otherwise than they predict note their names.

    Yields:
        The names of those that were called without training: in the order of the calls.
    """
    names: list[str] = []
    token = _noted.set(names)
    try:
        yield names
    finally:
        _noted.reset(token)


def note_inference_call(layer: Layer) -> None:
    """Note a call, if somebody wants to know.

    A layer that is frozen is meant to be called so, and one of layers only hands it on to them.
    """
    noted = _noted.get()
    if noted is not None and layer.trainable and not layer.sublayers:
        noted.append(layer.name)
