"""Whether two values are the same to whoever computes with them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from .tensor import MutableLeaf, Tensor

BY_VALUE = (bool, int, float, complex, str, bytes, np.dtype, np.generic, enum.Enum, range)


def alike(one: Any, other: Any) -> bool:
    """Whether operations make the same of both.

    They are one object; or equal numbers, texts, arrays, or containers of such; or functions of the
    same code and surroundings; or objects of one class which say what they are made of, by
    `made_of()`, and are made of the same, or which say that they are equal (`==`).
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, BY_VALUE):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, slice):
        return alike((one.start, one.stop, one.step), (other.start, other.stop, other.step))
    if isinstance(one, Tensor):
        return not isinstance(one, MutableLeaf) and alike(one.data, other.data)
    if hasattr(one, "__array_ufunc__"):
        return _are_equal_arrays(one, other)
    if isinstance(one, (FunctionType, BuiltinFunctionType, MethodType, partial)):
        return _are_the_same_function(one, other)
    if hasattr(one, "made_of"):
        return alike(one.made_of(), other.made_of())
    return bool(one == other)  # of most objects: False


def _are_equal_arrays(one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    host = [array if isinstance(array, np.ndarray) else array.get() for array in (one, other)]
    if one.dtype.kind == "O":
        return alike(host[0].tolist(), host[1].tolist())
    return host[0].tobytes() == host[1].tobytes()


def _are_the_same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    return alike(_parts_of(one), _parts_of(other))


def _parts_of(function: Any) -> Any:
    if isinstance(function, partial):
        return [function.func, function.args, function.keywords]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    if isinstance(function, FunctionType):
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        # A function among them is compared by itself: it may be the very one, which calls itself.
        cells = [id(cell) if isinstance(cell, FunctionType) else cell for cell in cells]
        given = [function.__defaults__, function.__kwdefaults__]
        return [id(function.__code__), id(function.__globals__), *given, cells]
    return id(function)


def described(value: Any) -> str:
    """What a message calls an argument or a result."""
    array = value.like() if isinstance(value, Tensor) else value
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        return f"an array of shape {tuple(array.shape)} and dtype {array.dtype}"
    if isinstance(value, (bool, int, float, complex, str)):
        return f"{type(value).__name__} {value!r}"
    return f"an object ({type(value).__name__})"
