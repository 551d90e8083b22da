"""Arrays of several parts of one card are added up, and handed on, where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...autodiff import Array
from . import gpu


def add_up(arrays: Sequence[Array]) -> Any:
    """Begin to add the arrays of other parts of a card to the first; the event is its end.

    It is behind what all parts have computed so far, and beside what they compute next. Until they
    have been told to wait for the event, nobody touches the arrays.
    """
    with _communicating(arrays) as stream:
        first, *others = arrays
        for array in others:
            np.add(first, array, out=first)
        return stream.record()


def overwrite(arrays: Sequence[Array]) -> Any:
    """Begin to overwrite all arrays by the first one, as in `add_up`."""
    with _communicating(arrays) as stream:
        first, *others = arrays
        for array in others:
            array[...] = first
        return stream.record()


@contextmanager
def _communicating(arrays: Sequence[Array]) -> Iterator[Any]:
    """On the first array's stream for communication, behind what the parts of all have computed."""
    computed = []
    for array in arrays[1:]:
        card, part = gpu.home(array)
        with gpu.use(card, part):
            computed.append(gpu.recorded(card))
    with gpu.communicating(*gpu.home(arrays[0])) as stream:
        for event in computed:
            stream.wait_event(event)
        yield stream
