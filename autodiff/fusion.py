"""Elementwise arithmetic as one kernel, on devices on which launches and passes over memory cost.

`cupy.fuse` makes one kernel of a function whose steps are CuPy's ufuncs. The code of this package
is written with NumPy's, runs on arrays of both, and has numbers in it that differ from step to
step. So the function runs once on operands that note what is asked of them; CuPy is to fuse these
notes. Equal notes share one kernel, of which the numbers are arguments.

The arithmetic is that of the function, in the dtypes that it has in NumPy: a Python number takes
the dtype of its array. A GPU rounds a product and the sum that follows once and not twice, though,
so that results differ from those of the host in the last digit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .tensor_like import Array


def library(array: Array) -> Any:
    """The module that an array on a device is from, CuPy: for what NumPy has no function for."""
    return sys.modules[type(array).__module__]


_BFLOAT16 = "E"
"""The code of a dtype that `cupy.fuse` knows by halves: nothing is converted to it there."""


def fused(
    function: Callable[..., Any], *arrays: Array, numbers: tuple[float, ...] | None = None
) -> Any:
    """`function(*arrays)`, in one kernel where these lie on a GPU and none is of bfloat16.

    Args:
        function: Takes as many arrays, of which it knows the dtype alone, and gives an array, a
            tuple of them or None. What it does is elementwise: ufuncs, operators (in place, too),
            `np.where`, `np.clip`, `x[...] = y`, `x.copy()` and `x.astype(dtype)`. Its numbers are
            Python's; it may choose what to do by them, and by nothing else.
        arrays: Those that it changes have the shape of the broadcast of all.
        numbers: What it takes behind the arrays, and combines with them only. With these, or (),
            it does the same in every call, and runs only once.
    """
    first = arrays[0]
    on_host = isinstance(first, (np.ndarray, np.generic))
    if on_host or _BFLOAT16 in [array.dtype.char for array in arrays]:
        return function(*arrays, *(numbers or ()))
    if numbers is None:
        program, given = _traced(function, tuple([array.dtype for array in arrays]), 0)
    else:
        program, constants = _remembered(function, tuple([x.dtype for x in arrays]), len(numbers))
        given = (*numbers, *constants)
    if not (program.calls or program.results):
        return None
    found = _kernel(library(first), program)(*arrays, *given)
    return found if program.gives_tuple or found is None else found[0]


def _traced(
    function: Callable[..., Any], dtypes: tuple[np.dtype, ...], num_numbers: int
) -> tuple[_Program, tuple[float, ...]]:
    """What the function does, and the numbers that it has itself."""
    notes = _Notes(len(dtypes), num_numbers)
    arrays = [_Operand(notes, i, dtype) for i, dtype in enumerate(dtypes)]
    given = function(*arrays, *[_Operand(notes, ~i, None) for i in range(num_numbers)])
    results = given if isinstance(given, tuple) else () if given is None else (given,)
    indices = tuple([x.index for x in results])
    program = _Program(len(dtypes), tuple(notes.calls), indices, isinstance(given, tuple))
    return program, tuple(notes.numbers[num_numbers:])


_remembered = lru_cache(maxsize=1 << 10)(_traced)


_NAMED = {np.where: "where", np.clip: "clip"}
"""Functions that are no ufuncs in NumPy, and that `cupy.fuse` takes."""


class _Call(NamedTuple):
    """One step of a program.

    Args:
        name: Of a function of the library, or "astype" or "assign".
        inputs: Which values go in; ~i is number i.
        out: The value that is overwritten; None for a new one.
        dtype: Of the result, for "astype".
    """

    name: str
    inputs: tuple[int, ...]
    out: int | None = None
    dtype: str = ""


class _Program(NamedTuple):
    """What a function does to its arrays: values 0, 1, …, behind which come those that it makes."""

    num_arrays: int
    calls: tuple[_Call, ...]
    results: tuple[int, ...]
    gives_tuple: bool

    def run(self, xp: Any, arguments: Any) -> Any:
        """The results, of arrays and behind them numbers, by the functions of a library."""
        values, numbers = list(arguments[: self.num_arrays]), arguments[self.num_arrays :]
        for name, inputs, out, dtype in self.calls:
            operands = [values[i] if i >= 0 else numbers[~i] for i in inputs]
            if name == "astype":
                values.append(operands[0].astype(dtype))
            elif name == "assign":
                values[inputs[0]][...] = operands[1]
            elif out is None:
                values.append(getattr(xp, name)(*operands))
            else:
                getattr(xp, name)(*operands, values[out])
        return tuple([values[i] for i in self.results]) or None


@lru_cache(maxsize=1 << 10)
def _kernel(xp: Any, program: _Program) -> Callable[..., Any]:
    """The program as one kernel. CuPy compiles it for each combination of dtypes and axes."""
    steps = "_".join(call.name for call in program.calls)

    def run(*arguments: Any) -> Any:
        return program.run(xp, arguments)

    kernel: Callable[..., Any] = xp.fuse(kernel_name=f"paceline_{steps[:80]}")(run)
    return kernel


@final
class _Notes:
    """What a function has asked of its operands so far, and its numbers."""

    __slots__ = ("calls", "num_values", "numbers")

    def __init__(self, num_arrays: int, num_numbers: int) -> None:
        self.num_values = num_arrays
        self.calls: list[_Call] = []
        self.numbers: list[float] = [0.0] * num_numbers

    def index(self, value: Any) -> int:
        """The place of an operand or a number."""
        if isinstance(value, _Operand):
            return value.index
        if type(value) not in (float, int, bool):
            raise TypeError(f"fused arithmetic takes Python's numbers, it was given {value!r}")
        self.numbers.append(value)
        return ~(len(self.numbers) - 1)

    def add(
        self, name: str, operands: Any, out: Any = None, dtype: Any = None, source: Any = None
    ) -> _Operand:
        inputs = tuple([self.index(operand) for operand in operands])
        if max(inputs) < 0:  # CuPy would widen arrays by the result
            raise TypeError(
                "numbers are to be combined with arrays alone, and before they are given"
            )
        if out is not None:
            self.calls.append(_Call(name, inputs, out.index))
            return out
        self.calls.append(_Call(name, inputs, None, "" if dtype is None else np.dtype(dtype).char))
        self.num_values += 1
        return _Operand(self, self.num_values - 1, dtype, source)


@final
class _Operand(NDArrayOperatorsMixin):
    """An array that is not there: it notes what it is asked for."""

    __slots__ = ("_dtype", "_notes", "_source", "index")

    def __init__(
        self, notes: _Notes, index: int, dtype: np.dtype | None, source: Any = None
    ) -> None:
        self._notes = notes
        self._dtype = dtype
        self._source = source
        self.index = index

    @property
    def dtype(self) -> np.dtype:
        """Asked for seldom, and found out then."""
        if self._dtype is None:
            if self._source is None:
                raise TypeError("the dtype of what np.where or np.clip gives is not known here")
            ufunc, inputs = self._source
            kinds = [x.dtype if isinstance(x, _Operand) else type(x) for x in inputs]
            self._dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
        return self._dtype

    def __bool__(self) -> bool:
        raise TypeError("fused arithmetic cannot choose by values; use np.where")

    def copy(self) -> _Operand:
        return self._notes.add("copy", (self,), dtype=self.dtype)

    def astype(self, dtype: Any) -> _Operand:
        return self._notes.add("astype", (self,), dtype=dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis:
            raise IndexError(f"fused arithmetic writes whole arrays, x[...] = y, not {index!r}")
        self._notes.add("assign", (self, value), self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        (out,) = kwargs.pop("out", (None,))
        if method != "__call__" or kwargs or ufunc.nout != 1:
            raise TypeError(f"np.{ufunc.__name__}.{method} with {kwargs} is no fused arithmetic")
        return self._notes.add(ufunc.__name__, inputs, out, source=(ufunc, inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _NAMED or kwargs or len(args) != 3:
            raise TypeError(f"np.{function.__name__} with {kwargs} is no fused arithmetic")
        return self._notes.add(_NAMED[function], args)
