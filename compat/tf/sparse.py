"""`tf.sparse`: texts in parts, as the one sparse value that scripts make with `tf.string_split`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ...autodiff import Tensor
from ..names import NameTable, serve
from .advice import advice
from .conversion import plain
from .text import texts

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))


class SparseTensorValue(NamedTuple):
    """Some elements of an array, in the order of rows.

    Args:
        indices: Where each is, an array of int64 of shape (n, rank).
        values: The elements, of shape (n,).
        dense_shape: The shape of the array, of int64.
    """

    indices: Any
    values: Any
    dense_shape: Any


def to_dense(
    sp_input: SparseTensorValue,
    default_value: Any = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """The whole array, in which `default_value` stands where there is no element.

    Args:
        sp_input: What `tf.string_split` gives.
        default_value: By default zero, or empty text.
        validate_indices, name: Have no effect; an index outside of the shape is always refused.
    """
    values, indices = plain(sp_input.values), plain(sp_input.indices)
    shape = tuple(int(length) for length in plain(sp_input.dense_shape))
    is_text = values.dtype.kind == "U"
    default = np.array(("" if is_text else 0) if default_value is None else default_value)
    dtype = np.promote_types(values.dtype, default.dtype) if is_text else values.dtype
    dense = np.full(shape, default, dtype)
    dense[tuple(indices.T)] = values
    return Tensor(dense)


def string_split(
    source: Any,
    sep: str | None = None,
    skip_empty: bool = True,
    delimiter: str = " ",
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> SparseTensorValue:
    """TensorFlow 1's `tf.string_split`: the parts of each of several texts.

    Args:
        source: Texts, of shape (n,).
        sep, delimiter: Characters, each of which divides; with "" every character is a part.
        skip_empty: Whether empty parts are left out.
        result_type: Must be "SparseTensor".
        name: Has no effect.

    Raises:
        ValueError: `source` has another rank, or `result_type` is another.
    """
    rows = texts("source", source)
    if rows.ndim != 1:
        raise ValueError(
            f"string_split: source must have shape (n,), got {rows.shape}; put one text into a list"
        )
    if result_type != "SparseTensor":
        raise ValueError(
            f"string_split: result_type must be 'SparseTensor', got {result_type!r}; use "
            f"tf.strings.split of each text for parts without padding"
        )
    dividing = delimiter if sep is None else sep
    pattern = re.compile(f"[{re.escape(dividing)}]") if dividing else None
    parts = [list(row) if pattern is None else pattern.split(row) for row in rows.tolist()]
    kept = [[part for part in row if part or not skip_empty] for row in parts]
    indices = [(row, column) for row, found in enumerate(kept) for column in range(len(found))]
    width = max((len(found) for found in kept), default=0)
    return SparseTensorValue(
        Tensor(np.array(indices, np.int64).reshape(-1, 2)),
        Tensor(np.array([part for found in kept for part in found], str)),
        Tensor(np.array([len(kept), width], np.int64)),
    )
