"""Checks of what a caller wants saved, before anything is written."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex, get_args

import numpy as np
from pydantic import JsonValue

from ._manifest import DType
from ._slices import Shape, TensorSlice, slice_key

DTYPES: frozenset[str] = frozenset(get_args(DType))
MAX_STATE_BYTES = 16 << 20
_RESERVED_NAME = "__metadata__"  # by the safetensors format

Arrays = Mapping[str, np.ndarray | np.generic | Sequence[TensorSlice]]


@dataclass(frozen=True, eq=False)
class Piece:
    """One array to write: a tensor, or a slice of one.

    Attributes:
        name: of the tensor.
        array: the values.
        start, full_shape: where they lie in the tensor.
    """

    name: str
    array: np.ndarray
    start: Shape
    full_shape: Shape


def checked_step(step: SupportsIndex) -> int:
    """`step` as an int at least 0."""
    value = operator.index(step)
    if isinstance(step, bool) or not 0 <= value < 10**18:
        raise ValueError(f"step must be an integer from 0 to 10**18 - 1; got {step!r}")
    return value


def pieces_of(arrays: Arrays) -> dict[str, Piece]:
    """What is to be written, under the keys that it has in its shard; nothing is copied.

    Raises:
        TypeError: a value is not a NumPy array of a dtype that checkpoints hold.
        ValueError: a name that the file format cannot hold.
    """
    pieces: dict[str, Piece] = {}
    for name, value in arrays.items():
        parts = _pieces(_checked_name(name), value)
        if len({(piece.full_shape, piece.array.dtype.name) for piece in parts}) > 1:
            raise ValueError(f"the slices of tensor '{name}' differ in full_shape or dtype")
        for piece in parts:
            key = slice_key(name, piece.start, piece.array.shape, piece.full_shape)
            if key in pieces:
                raise ValueError(f"'{key}' is to be saved twice: give each slice once")
            pieces[key] = piece
    return pieces


def _pieces(name: str, value: Any) -> list[Piece]:
    if not isinstance(value, list | tuple) or not value:
        array = _checked_array(name, value)
        return [Piece(name, array, (0,) * array.ndim, array.shape)]
    for part in value:
        if not isinstance(part, TensorSlice):
            raise TypeError(_not_an_array(name, value))
    return [
        Piece(name, _checked_array(name, part.array), part.start, part.full_shape) for part in value
    ]


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or name == _RESERVED_NAME or not _is_unicode(name):
        raise ValueError(
            f"a tensor's name must be a string that is not empty and not '{_RESERVED_NAME}'; "
            f"got {name!r}"
        )
    return name


def _checked_array(name: str, array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray | np.generic):
        raise TypeError(_not_an_array(name, array))
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"tensor '{name}' has dtype {array.dtype}, which a checkpoint cannot hold: "
            f"convert it to one of {', '.join(sorted(DTYPES))}"
        )
    return np.asarray(array)


def _not_an_array(name: str, value: object) -> str:
    return (
        f"tensor '{name}' must be a NumPy array or a list of TensorSlice; got "
        f"{type(value).__name__}: convert it first (cupy.asnumpy, numpy.asarray)"
    )


def plain(piece: Piece) -> Piece:
    """The piece row-major and little-endian; copies only where needed."""
    dtype = piece.array.dtype.newbyteorder("<")
    return replace(piece, array=np.asarray(piece.array, dtype=dtype, order="C"))


def plain_state(state: Mapping[str, object]) -> dict[str, JsonValue]:
    """A deep copy of `state`.

    Raises:
        TypeError: a value that would not come back from JSON as it went in; says where it is.
        ValueError: it is larger than a manifest should be.
    """
    plain = _plain_json("state", dict(state))
    assert isinstance(plain, dict)
    num_bytes = len(json.dumps(plain))
    if num_bytes > MAX_STATE_BYTES:
        raise ValueError(
            f"state has {num_bytes} bytes as JSON and may have {MAX_STATE_BYTES}: "
            f"save what is large as arrays"
        )
    return plain


def _plain_json(where: str, value: Any) -> JsonValue:
    match value:
        case dict() if all(isinstance(key, str) and _is_unicode(key) for key in value):
            return {key: _plain_json(f"{where}[{key!r}]", inner) for key, inner in value.items()}
        case list():
            return [_plain_json(f"{where}[{i}]", inner) for i, inner in enumerate(value)]
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str() if _is_unicode(value):
            return value
    raise TypeError(
        f"{where} must be JSON (dict with string keys, list, str, int, finite float, bool, None), "
        f"so that it comes back as it is; got {type(value).__name__} {str(value)[:80]!r}: "
        f"convert it, or save it as an array"
    )


def _is_unicode(text: str) -> bool:
    # A lone surrogate (from os.fsdecode, say) is in a str but in no UTF-8 file.
    return not any("\ud800" <= character <= "\udfff" for character in text)
