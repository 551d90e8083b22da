"""Text and byte strings as the functions of `tf.io` and `tf.strings` take them: in any shape.

Here text is `str`, a byte string is `bytes` or an array of uint8 along the last axis. NumPy's own
byte strings are read, and never made, because they lose zeros at their end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...autodiff import Tensor


def texts(what: str, value: Any) -> np.ndarray:
    """An array of text, of the shape of the value.

    Raises:
        TypeError: The value is not made of text.
    """
    array = np.asarray(value)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        flat = [v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1).tolist()]
        if not all(isinstance(v, str) for v in flat):
            raise TypeError(f"{what} must be text, got {array!r}; convert it with tf.as_string")
        return np.array(flat, str).reshape(array.shape)
    if array.dtype == np.uint8 and array.ndim:  # one byte string along the last axis
        rows = array.reshape(-1, array.shape[-1])
        return np.array([row.tobytes().decode() for row in rows]).reshape(array.shape[:-1])
    if array.dtype.kind != "U":
        raise TypeError(
            f"{what} must be text, got values of {array.dtype}; convert them with tf.as_string"
        )
    return array


def one_text(what: str, value: Any) -> str:
    """One text.

    Raises:
        TypeError: The value is not text.
        ValueError: It is an array of several.
    """
    array = texts(what, value)
    if array.ndim:
        raise ValueError(
            f"{what} must be one text, got an array of shape {array.shape}; call the function for "
            f"each, as in Dataset.map before batch"
        )
    return str(array)


def one_byte_string(what: str, value: Any) -> bytes:
    """One byte string; text is encoded, and numbers along one axis stand for their memory.

    Raises:
        ValueError: It is an array of several.
    """
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    array = np.asarray(value)
    num_axes = 0 if array.dtype.kind in "USO" else 1
    if array.ndim > num_axes:
        raise ValueError(
            f"{what} must be one byte string, got an array of shape {array.shape}; call the "
            f"function for each, as in Dataset.map before batch"
        )
    if array.dtype.kind in "UO":
        return one_byte_string(what, array.item())
    return array.tobytes()  # of NumPy's byte strings, too: item() would lose zeros at their end


def each(function: Callable[..., Any], *values: Any, dtype: Any = None) -> Tensor:
    """A function of each element of arrays, which are broadcast against each other."""
    arrays = np.broadcast_arrays(*values)
    rows = zip(*(array.reshape(-1).tolist() for array in arrays), strict=True)
    found = np.array([function(*row) for row in rows], dtype or str)
    return Tensor(found.reshape(arrays[0].shape))
