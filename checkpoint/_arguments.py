"""Checks of what a caller wants saved, before anything is written."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, SupportsIndex, get_args

import numpy as np
from pydantic import JsonValue

from ._manifest import DType

DTYPES: frozenset[str] = frozenset(get_args(DType))
_RESERVED_NAME = "__metadata__"  # by the safetensors format


def checked_step(step: SupportsIndex) -> int:
    """`step` as an int at least 0."""
    value = operator.index(step)
    if isinstance(step, bool) or not 0 <= value < 10**18:
        raise ValueError(f"step must be an integer from 0 to 10**18 - 1; got {step!r}")
    return value


def plain_arrays(arrays: Mapping[str, np.ndarray | np.generic]) -> dict[str, np.ndarray]:
    """The arrays under their names, each row-major and little-endian; copies only where needed.

    Raises:
        TypeError: a value is not a NumPy array of a dtype that checkpoints hold.
        ValueError: a name that the file format cannot hold.
    """
    return {_checked_name(name): _plain_array(name, array) for name, array in arrays.items()}


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or name == _RESERVED_NAME or not _is_unicode(name):
        raise ValueError(
            f"a tensor's name must be a string that is not empty and not '{_RESERVED_NAME}'; "
            f"got {name!r}"
        )
    return name


def _plain_array(name: str, array: np.ndarray | np.generic) -> np.ndarray:
    if not isinstance(array, np.ndarray | np.generic):
        raise TypeError(
            f"tensor '{name}' must be a NumPy array; got {type(array).__name__}: "
            f"convert it first (cupy.asnumpy, numpy.asarray)"
        )
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"tensor '{name}' has dtype {array.dtype}, which a checkpoint cannot hold: "
            f"convert it to one of {', '.join(sorted(DTYPES))}"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def plain_state(state: Mapping[str, object]) -> dict[str, JsonValue]:
    """A deep copy of `state`.

    Raises:
        TypeError: a value that would not come back from JSON as it went in; says where it is.
    """
    plain = _plain_json("state", dict(state))
    assert isinstance(plain, dict)
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
