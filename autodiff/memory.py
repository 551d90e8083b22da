"""Copying arrays into order, quickly."""

from __future__ import annotations

import numpy as np

from .tensor import Array


def contiguous(array: Array) -> Array:
    """The array in C order: itself where it is so already, else a copy.

    Where the elements of the last axis lie together, each such run is copied as one large element,
    in about half of NumPy's time for runs of 32 floats.
    """
    if array.flags.c_contiguous:
        return array
    if not isinstance(array, np.ndarray) or array.strides[-1] != array.itemsize or not array.size:
        return array.copy(order="C")
    run = np.dtype((np.void, array.shape[-1] * array.itemsize))
    ordered = np.empty(array.shape, array.dtype)
    np.copyto(ordered.view(run), array.view(run))
    return ordered
