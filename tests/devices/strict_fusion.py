"""`cupy.fuse` for the stand-in: what it takes, in which dtypes, and one kernel for each call.

Facts of CuPy 14.2's `cupy/_core/fusion.pyx`: a function is run on variables that have operators,
`x[...] = y`, `copy` and `astype`, no shape, and do not take part in NumPy's protocols; CuPy's own
ufuncs, `where`, `clip` and `copy` take them. A number that is an argument or a constant takes the
dtype of the array beside it; what is computed of numbers alone is float64 and widens an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DTYPES = "?bhilqBHILQefdFD"
KNOWN = {"where", "clip", "copy"}
"""Of CuPy's functions those that may be fused; and all ufuncs."""


class Variable:
    """An array or number in a fused function; `weak` is the type of a number, and None else."""

    __slots__ = ("array", "is_written", "ufunc", "weak")
    __array_ufunc__ = None

    def __init__(self, array: Any, ufunc: Any, weak: type | None = None) -> None:
        self.array, self.ufunc, self.weak = array, ufunc, weak
        self.is_written = False

    @property
    def dtype(self) -> np.dtype:
        return np.asarray(self.array).dtype

    @property
    def ndim(self) -> int:
        return -1 if isinstance(self.array, (int, float, np.generic)) else self.array.ndim

    def __bool__(self) -> bool:
        raise Exception("Can't cast to bool")

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis and index != slice(None):
            raise ValueError("The fusion supports `[...]` or `[:]`.")
        written = value.array if isinstance(value, Variable) else value
        np.copyto(self.array, written, casting="same_kind")
        self.is_written = True

    def copy(self) -> Variable:
        return Variable(np.array(self.array), self.ufunc)

    def astype(self, dtype: Any) -> Variable:
        return Variable(np.asarray(self.array).astype(dtype), self.ufunc)


def _operator(name: str, turned: bool) -> Callable[..., Any]:
    def call(self: Variable, other: Any) -> Any:
        return self.ufunc(name, *((other, self) if turned else (self, other)))

    return call


def _in_place(name: str) -> Callable[..., Any]:
    def call(self: Variable, other: Any) -> Any:
        return self.ufunc(name, self, other, self)

    return call


_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
for _name, _ufunc in _BINARY.items():
    setattr(Variable, f"__{_name}__", _operator(_ufunc, False))
    setattr(Variable, f"__r{_name}__", _operator(_ufunc, True))
    setattr(Variable, f"__i{_name}__", _in_place(_ufunc))
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
for _name, _ufunc in {**_COMPARISONS, "eq": "equal", "ne": "not_equal", "pow": "power"}.items():
    setattr(Variable, f"__{_name}__", _operator(_ufunc, False))
Variable.__hash__ = object.__hash__  # type: ignore[method-assign]
Variable.__neg__ = lambda self: self.ufunc("negative", self)  # type: ignore[attr-defined]
Variable.__invert__ = lambda self: self.ufunc("invert", self)  # type: ignore[attr-defined]


def is_fusing(arguments: Any) -> bool:
    return any(isinstance(argument, Variable) for argument in arguments)


def call(loop_of: Callable[..., Any], name: str, *operands: Any, **kwargs: Any) -> Variable:
    """A ufunc, `where` or `clip` of variables, as CuPy computes it in a kernel.

    Args:
        loop_of: The dtypes of operands and result, by the name of a ufunc and values that have the
            dtypes of its operands.
        name: Of the function.
        operands: Its inputs, and behind them what it overwrites.
        kwargs: `out` only.
    """
    out = kwargs.pop("out", None)
    if kwargs:
        raise TypeError(f"Wrong arguments {kwargs}")
    function = getattr(np, name)
    num_inputs = 3 if name in ("where", "clip") else 1 if name == "copy" else function.nin
    inputs, given = operands[:num_inputs], operands[num_inputs:]
    (out,) = given or (out,)
    variables = [x if isinstance(x, Variable) else Variable(x, None, type(x)) for x in inputs]
    values = [x.array for x in variables]
    if all(x.weak for x in variables):  # numbers alone: float64 from here on
        values = [np.asarray(x)[()] for x in values]
    found = np.asarray(function(*values))
    if name not in KNOWN:
        found = found.astype(np.dtype(loop_of(name, values)[1]))
    like = next(x for x in operands if isinstance(x, Variable))
    if out is None:
        is_number = all(x.ndim < 0 for x in variables)
        return Variable(found[()] if is_number else found, like.ufunc)
    if not isinstance(out, Variable) or out.ndim < max(x.ndim for x in variables):
        raise ValueError("non-broadcastable output operand")
    np.copyto(out.array, found, casting="same_kind")
    out.is_written = True
    return out


def run(function: Callable[..., Any], values: list[Any], ufunc: Callable[..., Any]) -> Any:
    """What a fused function gives of arrays and numbers, and which of them it has overwritten."""
    if not any(isinstance(value, np.ndarray) for value in values):
        raise TypeError("nothing to fuse: no array is an argument")
    unknown = [v.dtype for v in values if isinstance(v, np.ndarray) and v.dtype.char not in DTYPES]
    if unknown:
        raise TypeError(f"cupy.fuse does not take {unknown}")
    variables = [Variable(v, ufunc, None if isinstance(v, np.ndarray) else type(v)) for v in values]
    with np.errstate(all="ignore"):  # a GPU does not warn
        found = function(*variables)
    is_tuple = isinstance(found, tuple)
    results = found if is_tuple else () if found is None else (found,)
    if (is_tuple and not found) or not all(isinstance(x, Variable) for x in results):
        raise TypeError(f"Fusion function can't return {type(found)}")
    arrays = tuple(np.array(x.array) for x in results)
    written = [variable.is_written for variable in variables]
    return (arrays if is_tuple else arrays[0] if arrays else None), written
