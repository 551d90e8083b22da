"""A stand-in for CuPy that is as strict as CuPy is, for machines without a GPU.

A `StrictArray` holds a NumPy array as if it lay in the memory of a GPU. It takes part in NumPy's
protocols as CuPy's arrays do and has exactly CuPy's functions, methods, arguments and loops, by the
list in `cupy_api.json`. It does not become a NumPy array by itself, and refuses NumPy's as
operands; results have C order and are 0-d arrays where NumPy gives numbers; indices beyond an array
wrap round; the order in which a scatter adds, and which of two writes to one element stays, is
another one than NumPy's. `COUNTS` counts kernels, uploads and waits for the device.

Tests may look: where a function of tests/ asks, be it through NumPy's own, an array gives its
values, takes NumPy's beside it, and nothing is counted. The package never may.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from paceline.strategies.devices import gpu

from . import strict_cuda as cuda
from . import strict_fusion as fusion
from . import strict_graphs as graphs
from . import strict_nccl as nccl

API = json.loads(Path(__file__).with_name("cupy_api.json").read_text())
FUNCTIONS, METHODS = API["functions"], API["methods"]
LOOPS = {
    name: [tuple(loop.split("->")) for loop in types.split()]
    for name, types in API["ufuncs"].items()
}

KEEPS_ORDER = {"astype", "copy", "empty_like", "ones_like", "zeros_like", "full_like"}
"""Whose results keep the order of memory of their argument; all others are in C order."""

FROM_HOST = {
    "array",
    "asarray",
    "ascontiguousarray",
    "take",
    "full",
    "full_like",
    "take_along_axis",
}
"""Functions that take arrays in host memory: for their values, or as indices."""

WAITS = {
    *("argwhere", "bincount", "compress", "extract", "flatnonzero", "histogram", "nonzero"),
    *("trim_zeros", "union1d", "unique", "unique_counts", "unique_inverse", "unique_values"),
    *("intersect1d", "setdiff1d", "setxor1d", "delete", "ravel_multi_index", "unravel_index"),
}
"""Functions that wait for the device: the shape of what they give depends on values."""

DTYPES = "?bhilqBHILQefdFD"
"""What arrays of CuPy's hold, by NumPy's letters for dtypes, beside bfloat16: no text, no dates."""

VIEWS = {"reshape", "transpose", "swapaxes", "squeeze", "view", "diagonal"}
"""Methods that read nothing, where they need no copy: any thread may call them."""

SCATTERS = {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"}
SCATTERED = "ieILQfdFD"
"""The dtypes that are added to by `ufunc.at`: those that atomicAdd knows."""

REDUCTIONS = {
    ("add", "reduce"): "sum",
    ("multiply", "reduce"): "prod",
    ("add", "accumulate"): "cumsum",
    ("multiply", "accumulate"): "cumprod",
}


@dataclass
class Counts:
    """What the package has asked of the device, by name: kernels, uploads, waits.

    A wait is for all that a stream was given so far; one for an event, which is behind some of it,
    is among the events.
    """

    launches: list[str] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


COUNTS = Counts()


@contextmanager
def counted() -> Iterator[Counts]:
    """What is asked of the device within, by all threads together."""
    parts = (COUNTS.launches, COUNTS.uploads, COUNTS.waits, COUNTS.events)
    for part in parts:
        part.clear()
    found = Counts()
    yield found
    found.launches, found.uploads, found.waits, found.events = (list(part) for part in parts)


def _where() -> str:
    """The line of the package that asks."""
    frame = _asking()
    return f"{_name_of(frame.f_code.co_filename)}:{frame.f_lineno}"


def _asking() -> Any:
    frame: Any = sys._getframe(1)
    while _is_between(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@cache
def _is_between(filename: str) -> bool:
    """Whether a file only passes on what another one asks: this one, NumPy's, or built of words."""
    path = Path(filename)
    return path.parent == Path(__file__).parent or "numpy" in path.parts or filename[0] == "<"


@cache
def _name_of(path: str) -> str:
    return Path(path).name


@cache
def _is_test(filename: str) -> bool:
    return "tests" in Path(filename).parts or "pytest" in filename or "_pytest" in filename


def asked_by_a_test() -> bool:
    return _is_test(_asking().f_code.co_filename)


def _launch(name: str) -> None:
    if not graphs.is_launching() and graphs.capturing() is None and not asked_by_a_test():
        COUNTS.launches.append(f"{name} {_where()}")


def _wait(name: str) -> None:
    graphs.require_none(f"{name} waits for the device")
    if not asked_by_a_test():
        COUNTS.waits.append(f"{name} {_where()}")


def _wait_for_event() -> None:
    if not asked_by_a_test():
        COUNTS.events.append(_where())


cuda.on_event_wait = _wait_for_event
graphs.on_launch = _launch


def _upload() -> None:
    graphs.require_none("a copy from memory that is not pinned")
    if not asked_by_a_test():
        COUNTS.uploads.append(_where())


@cache
def _signature(parameters: str) -> inspect.Signature:
    found = ast.parse(f"def f({parameters}): ...").body[0].args  # type: ignore[attr-defined]
    kinds = inspect.Parameter
    named = [(a.arg, kinds.POSITIONAL_ONLY) for a in found.posonlyargs]
    named += [(a.arg, kinds.POSITIONAL_OR_KEYWORD) for a in found.args]
    no_default = len(named) - len(found.defaults)
    made = [
        kinds(name, kind, default=kinds.empty if i < no_default else 0)
        for i, (name, kind) in enumerate(named)
    ]
    if found.vararg:
        made.append(kinds(found.vararg.arg, kinds.VAR_POSITIONAL))
    for arg, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        made.append(
            kinds(arg.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else 0)
        )
    if found.kwarg:
        made.append(kinds(found.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(made)


def _check(name: str, parameters: str, args: Any, kwargs: Any) -> None:
    try:
        _signature(parameters).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"cupy.{name}({parameters}): {error}") from None


class StrictArray(NDArrayOperatorsMixin):
    """One array in the memory of a GPU.

    Args:
        array: Its values, which it keeps.
        device: The GPU; by default that of the calling thread.
    """

    __slots__ = ("__weakref__", "_array", "_memory", "device")
    __array_priority__ = 100

    def __init__(self, array: np.ndarray, device: cuda.Device | None = None) -> None:
        assert type(array) is np.ndarray, type(array)
        if array.dtype.char not in DTYPES and array.dtype.name != "bfloat16":
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._array = array
        self.device = device or cuda.Device()
        self._memory = cuda.Memory()

    # What is read of it.

    @property
    def base(self) -> Any:
        return None if self._array.base is None else self

    @property
    def flags(self) -> _Flags:
        return _Flags(self._array)

    @property
    def data(self) -> Any:
        """Where its memory is, as `MemoryPointer`."""
        return _Pointer(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._array.__array_interface__, "version": 3, "stream": 1}

    def flat_memory(self) -> np.ndarray:
        """What lies there, for `strict_nccl`."""
        return self._array.reshape(-1)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **kwargs: _method(self, name, args, kwargs)
        if name in _READ:
            return _wrapped(getattr(self._array, name), self)
        raise AttributeError(f"cupy.ndarray has no {name!r}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if asked_by_a_test():
            self._memory.make_copies()
            return np.array(self._array, dtype)
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    # What waits for the device.

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True):
        """A copy in host memory."""
        with self.device:  # also for a thread that computes on another one
            stream = stream or cuda.get_current_stream()
            self._memory.read(stream)
        if blocking:
            _wait("get")
            stream.synchronize()
        if out is None:
            return np.array(self._array, order=order)
        assert out.shape == self._array.shape, "get(out=) takes an array of the same shape"
        assert out.dtype == self._array.dtype, "get(out=) takes an array of the same dtype"
        if blocking or not cuda.is_pinned(out):
            out[...] = self._array
        else:
            stream.download_later(self._array, out)
        return out

    def set(self, arr: np.ndarray, stream: cuda.Stream | None = None) -> None:
        """Overwrite it with an array in host memory, of its shape and dtype."""
        assert type(arr) is np.ndarray, "set takes an array in host memory"
        assert (arr.shape, arr.dtype) == (self._array.shape, self._array.dtype)
        _upload()
        stream = stream or cuda.get_current_stream()
        if cuda.is_pinned(arr):
            self._memory.copy_later(self._array, arr, stream)
        else:
            self._memory.write(stream)
            self._array[...] = arr

    def item(self) -> Any:
        if self._array.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self._waited_for("item").item()

    def tolist(self) -> Any:
        return self._waited_for("tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return self._waited_for("tobytes").tobytes(order)

    def __bool__(self) -> bool:
        return bool(self._waited_for("bool"))

    def __int__(self) -> int:
        return int(self._waited_for("int"))

    def __float__(self) -> float:
        return float(self._waited_for("float"))

    def __repr__(self) -> str:
        return repr(self._waited_for("repr"))

    def __str__(self) -> str:
        return str(self._waited_for("str"))

    def __format__(self, spec: str) -> str:
        values = self._waited_for("format")
        return format(values.item() if spec else values, spec)

    def _waited_for(self, name: str) -> np.ndarray:
        """The values, when the host has waited for the stream that gives them."""
        _wait(name)
        with self.device:  # as `get`
            stream = cuda.get_current_stream()
            self._memory.read(stream)
            stream.synchronize()
        return self._array

    # Elements.

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[StrictArray]:
        if not self._array.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    @graphs.noted
    def __getitem__(self, index: Any) -> StrictArray:
        places, is_view = _places(index, self._array.shape)
        if not is_view:
            self._memory.read()
            _launch("getitem")
        found = np.asarray(self._array[places])
        return _wrapped(found if is_view else _in_c_order(found), self)

    @graphs.noted
    def __setitem__(self, index: Any, value: Any) -> None:
        places, is_view = _places(index, self._array.shape)
        is_host = isinstance(value, np.ndarray) and not asked_by_a_test()
        if is_host and is_view and value.ndim:  # also `x[:] = value`, unless CuPy is told otherwise
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if is_view and isinstance(value, StrictArray) and self._is_at(places, value):
            return  # what `x[index] += y` writes back is there already
        if is_host:
            _upload()
        if isinstance(value, StrictArray):
            value._memory.read()
        self._write()
        _launch("setitem")
        _set(self._array, places, value._array if isinstance(value, StrictArray) else value)

    def _is_at(self, places: Any, value: StrictArray) -> bool:
        ours, given = self._array[places], value._array
        return (np.shape(ours), np.asarray(ours).strides) == (given.shape, given.strides) and (
            np.asarray(ours).__array_interface__["data"] == given.__array_interface__["data"]
        )

    def _write(self) -> None:
        _on_device(self)
        _written(self)

    # NumPy's protocols.

    @graphs.noted
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        outs = kwargs.get("out", ())
        if len(outs) > 1:
            raise ValueError("The 'out' parameter must have exactly one array value")
        if name not in LOOPS and name not in FUNCTIONS:
            return NotImplemented
        if not all(isinstance(x, _OPERANDS) for x in (*inputs, *outs)) and method != "at":
            return NotImplemented
        if method == "at":
            return _scatter(ufunc, *inputs)
        if (name, method) in REDUCTIONS:
            kwargs |= {"out": outs[0]} if outs else {}
            kwargs.setdefault("axis", 0)
            return getattr(inputs[0], REDUCTIONS[name, method])(**kwargs)
        if (name, method) == ("add", "reduceat"):
            _launch("add.reduceat")
            return _written(_wrapped(_reduceat(*(_operand(x) for x in inputs), **kwargs)))
        if method != "__call__":
            raise NotImplementedError(f"cupy.{name}.{method}")
        known = {"out", "dtype", "casting"} if name in LOOPS else {"out", "dtype", "axes"}
        if set(kwargs) - known:
            raise TypeError(f"cupy.{name}: wrong arguments {sorted(set(kwargs) - known)}")
        _launch(name)
        return _ufunc(ufunc, [_operand(x) for x in inputs], outs, kwargs)

    @graphs.noted
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        parts = [*func.__module__.split(".")[1:], func.__name__]
        name = ".".join(parts)
        if name not in FUNCTIONS or not all(issubclass(t, _HANDLED) for t in types):
            return NotImplemented
        _check(name, FUNCTIONS[name], args, kwargs)
        return _call(func, name, args, kwargs)


def _reduceat(values: np.ndarray, starts: np.ndarray, axis: int = 0) -> np.ndarray:
    """`cupy.add.reduceat` for rising starts: differences of sums from the beginning."""
    before = np.moveaxis(np.cumsum(values, axis, values.dtype), axis, 0)
    before = np.concatenate([np.zeros_like(before[:1]), before])
    found = before[[*starts[1:], len(before) - 1]] - before[starts]
    return np.moveaxis(found, 0, axis)


_OPERANDS = (StrictArray, np.ndarray, np.generic, bool, int, float, complex)
_HANDLED = (StrictArray, np.ndarray)
_READ = {"T", "dtype", "imag", "itemsize", "mT", "nbytes", "ndim", "real", "shape", "size"}
_READ |= {"strides"}


class _Pointer:
    """The place of an array in its memory."""

    def __init__(self, array: StrictArray) -> None:
        self._array = array

    @property
    def ptr(self) -> int:
        return cuda.address_of(self._array)

    @property
    def mem(self) -> Any:
        return self._array._memory.mem


class _Flags:
    """The three that CuPy's arrays have."""

    def __init__(self, array: np.ndarray) -> None:
        self.c_contiguous = array.flags.c_contiguous
        self.f_contiguous = array.flags.f_contiguous
        self.owndata = array.base is None

    def __getitem__(self, name: str) -> bool:
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous}[name]


def _on_device(array: StrictArray) -> None:
    """Refuse what CuPy would carry between cards behind one's back, or not at all."""
    if array.device != cuda.Device() and not asked_by_a_test():
        raise ValueError(
            f"Array device must be same as the current device: array device = {array.device.id} "
            f"while current = {cuda.Device().id}."
        )


def _operand(value: Any, name: str = "") -> Any:
    """The values behind an argument."""
    if isinstance(value, StrictArray):
        _on_device(value)
        value._memory.read()
        return value._array
    if isinstance(value, np.ndarray) and not asked_by_a_test():
        if name not in FROM_HOST:
            raise TypeError(f"Unsupported type {type(value)}: it is in host memory ({_where()})")
        _upload()
    if isinstance(value, (tuple, list)):
        return type(value)([_operand(item, name) for item in value])
    if isinstance(value, dict):
        return {key: _operand(item, name) for key, item in value.items()}
    return value


def _wrapped(value: Any, like: StrictArray | None = None) -> Any:
    """A result on the device: arrays for numbers, too."""
    if isinstance(value, (np.ndarray, np.generic)):
        found = StrictArray(np.asarray(value), like.device if like is not None else None)
        if like is not None:
            found._memory = like._memory
        return found
    if isinstance(value, (tuple, list)) and any(isinstance(x, np.ndarray) for x in value):
        items = [_wrapped(item, like) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _result(name: str, value: Any, arrays: list[StrictArray]) -> Any:
    """What a function gives: a view of an argument as it is, anything new in C order."""
    if isinstance(value, (tuple, list)) and any(isinstance(x, np.ndarray) for x in value):
        items = [_result(name, item, arrays) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, (bool, np.bool_)) and arrays and name in ("allclose", "array_equal"):
        value = np.asarray(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value)
    for source in arrays:
        if array is source._array:
            return source
        if array.base is not None and np.may_share_memory(array, source._array):
            return _wrapped(array, source)
    if name in FROM_HOST and not arrays:
        array = array.copy(order="C")  # an upload, which is counted already
    elif name not in ("empty", "empty_like"):  # these are no kernels
        _launch(name)
    return _written(_wrapped(array if name in KEEPS_ORDER else _in_c_order(array)))


def _written(array: StrictArray) -> StrictArray:
    array._memory.write()
    graph = graphs.capturing()
    if graph is not None:
        graph.written.append(array)
    return array


def _arrays(value: Any) -> list[StrictArray]:
    if isinstance(value, StrictArray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in _arrays(item)]
    return []


def _call(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if name in WAITS:
        _wait(name)
    if name.endswith("sliding_window_view"):  # it looks at the lengths on the device
        _upload()
        _wait(name)
    if name in ("take", "take_along_axis"):
        bound = _signature(FUNCTIONS[name]).bind(*args, **kwargs).arguments
        args = bound["a"], _wrapped_round(bound)
        kwargs = {k: v for k, v in bound.items() if k not in ("a", "indices")}
    arrays = _arrays((args, kwargs))
    values, options = _operand(args, name), _operand(kwargs, name)
    if name == "copyto":
        args[0]._write()
        _launch(name)
    for array in _arrays(kwargs.get("out")):
        array._write()
    return _result(name, func(*values, **options), arrays)


def _wrapped_round(bound: dict[str, Any]) -> Any:
    """Indices beyond an axis as CuPy takes them: from its beginning again."""
    indices, array, axis = bound["indices"], bound["a"], bound.get("axis")
    length = array.size if axis is None or not array.ndim else array.shape[axis]
    if not length or isinstance(indices, int):
        return indices
    values = np.asarray(_operand(indices, "take")) % length
    return StrictArray(values, cuda.Device()) if values.size else indices


@graphs.noted
def _method(array: StrictArray, name: str, args: Any, kwargs: Any) -> Any:
    _check(f"ndarray.{name}", METHODS[name], args, kwargs)
    if name in ("take", "repeat") or name == "astype":
        function = getattr(np, name)
        options = {k: v for k, v in kwargs.items() if v is not None}
        if name == "astype":
            return _astype(array, *args, **options)
        return _call(function, name, (array, *args), kwargs)
    if name in WAITS:
        _wait(name)
    if name in ("fill", "sort", "partition", "put"):
        array._write()
        _launch(name)
    arrays = [array, *_arrays((args, kwargs))]
    for out in _arrays(kwargs.get("out")):
        out._write()
    values, options = _operand(args, name), _operand(kwargs, name)
    own = array._array if name in VIEWS else _operand(array)
    return _result(name, getattr(own, name)(*values, **options), arrays)


def _astype(array: StrictArray, dtype: Any, order: str = "K", copy: bool = True, **_: Any) -> Any:
    """Without `casting`, which CuPy ignores."""
    if not copy and array.dtype == dtype and order in ("K", "A"):
        return array  # on whichever card
    found = _operand(array).astype(dtype, order=order, copy=copy)
    return array if found is array._array else _result("astype", found, [])


def _loop(name: str, operands: list[Any]) -> tuple[str, str] | None:
    """The first loop that takes these operands; Python's numbers take the dtype of the others."""
    arrays = [x.dtype for x in operands if hasattr(x, "dtype")]
    common = [x if hasattr(x, "dtype") else np.result_type(x, *arrays) for x in operands]
    return _loop_of(name, *[getattr(x, "dtype", x) for x in common])


@cache
def _loop_of(name: str, *dtypes: np.dtype[Any]) -> tuple[str, str] | None:
    for loop in LOOPS[name]:
        if len(loop[0]) == len(dtypes) and all(
            np.can_cast(dtype, np.dtype(char)) for dtype, char in zip(dtypes, loop[0], strict=True)
        ):
            return loop
    return None


def _ufunc(ufunc: Any, operands: list[Any], outs: Any, kwargs: dict[str, Any]) -> Any:
    """Computed by NumPy, in the dtype of CuPy's loop."""
    name = ufunc.__name__
    kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    with np.errstate(all="ignore"):  # a GPU divides by zero without a word
        result = ufunc(*operands, **kwargs)
    if name in LOOPS and "dtype" not in kwargs and not _is_bfloat16(operands):
        loop = _loop(name, operands)
        if loop is None:
            raise TypeError(
                f"cupy.{name} has no loop for {[np.asarray(x).dtype for x in operands]}"
            )
        if not isinstance(result, tuple) and np.dtype(loop[1]) != result.dtype:
            result = np.asarray(result).astype(loop[1])
    if outs:
        if isinstance(outs[0], np.ndarray) and asked_by_a_test():
            np.copyto(outs[0], result)
            return outs[0]
        if not isinstance(outs[0], StrictArray):
            raise TypeError(f"cupy.{name} writes into its own arrays, not {type(outs[0])}")
        outs[0]._write()
        np.copyto(outs[0]._array, result, casting=kwargs.get("casting", "same_kind"))
        return outs[0]
    if isinstance(result, tuple):
        return tuple(_written(_wrapped(_in_c_order(part))) for part in result)
    return _written(_wrapped(_in_c_order(result)))


def _in_c_order(result: Any) -> np.ndarray:
    array = np.asarray(result)
    return array if array.flags.c_contiguous else array.copy(order="C")


def _is_bfloat16(operands: list[Any]) -> bool:
    return any(getattr(getattr(x, "dtype", None), "name", "") == "bfloat16" for x in operands)


def _places(index: Any, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """An index as NumPy takes it, and whether it is one of a view."""
    parts = index if isinstance(index, tuple) else (index,)
    is_array = [isinstance(p, (StrictArray, np.ndarray, list)) for p in parts]
    if not any(is_array):
        return index, True
    found, axis = [], 0
    arrays = [_index_array(p) if a else p for p, a in zip(parts, is_array, strict=True)]
    if sum(_is_mask(p) for p in arrays) > 1:
        raise NotImplementedError("more than one boolean array in an index")
    taken = sum(_num_axes(p) for p in arrays)
    for part in arrays:
        if isinstance(part, np.ndarray):
            if _is_mask(part):
                _wait("boolean index")
            elif shape[axis]:
                part = part % shape[axis]
        found.append(part)
        axis += len(shape) - taken if part is Ellipsis else _num_axes(part)
    return tuple(found), False


def _index_array(part: Any) -> np.ndarray:
    if isinstance(part, StrictArray):
        return _operand(part)
    _upload()
    array = np.asarray(part)
    return array if array.size else array.astype(np.int32)


def _num_axes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if _is_mask(part) else 1


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == np.bool_


def _set(array: np.ndarray, places: Any, value: Any) -> None:
    """Where an element is written twice, what came first stays: CuPy promises neither."""
    if isinstance(places, tuple) and any(
        isinstance(p, np.ndarray) and not _is_mask(p) for p in places
    ):
        numbers = np.arange(array.size).reshape(array.shape)[places]
        values = np.broadcast_to(value, numbers.shape).reshape(-1)[::-1]
        array.flat[numbers.reshape(-1)[::-1]] = values
        return
    array[places] = value


def _scatter(ufunc: Any, dense: StrictArray, index: Any, values: Any = None) -> None:
    """`ufunc.at`, from the last value to the first: atomic operations come in any order."""
    name = ufunc.__name__
    if name not in SCATTERS:
        raise NotImplementedError(f"cupy.{name}.at")
    if isinstance(dense, np.ndarray) and asked_by_a_test():
        ufunc.at(dense, np.asarray(index), np.asarray(values))
        return
    if dense.dtype.char not in SCATTERED:
        raise TypeError(f"cupy.{name}.at does not support {dense.dtype}")
    if isinstance(values, np.ndarray):
        _upload()
    places, _ = _places(index, dense.shape)
    dense._write()
    _launch(f"{name}.at")
    numbers = np.arange(dense.size).reshape(dense.shape)[places]
    given = _operand(values) if isinstance(values, StrictArray) else np.asarray(values)
    flat = np.broadcast_to(given, numbers.shape).reshape(-1)[::-1].astype(dense.dtype)
    target = dense._array.reshape(-1) if dense._array.flags.c_contiguous else None
    if target is None:
        whole = dense._array.copy(order="C").reshape(-1)
        ufunc.at(whole, numbers.reshape(-1)[::-1], flat)
        dense._array[...] = whole.reshape(dense.shape)
    else:
        ufunc.at(target, numbers.reshape(-1)[::-1], flat)


@graphs.noted
def array(obj: Any, dtype: Any = None, copy: Any = True, order: str = "K", **_: Any) -> StrictArray:
    """`cupy.array`: what a program moves to the device."""
    if isinstance(obj, StrictArray):
        if obj.device == cuda.Device():
            return obj.astype(dtype or obj.dtype, order=order, copy=copy)
        obj._memory.read()
        _launch("copy between devices")
        return _written(StrictArray(obj._array.astype(dtype or obj.dtype, order=order)))
    _upload()
    if order in ("K", "A"):  # what has Fortran's order keeps it (`_send_object_to_gpu`)
        is_fortran = isinstance(obj, np.ndarray) and obj.flags.f_contiguous
        order = "F" if is_fortran else "C"
    return _written(StrictArray(np.array(obj, dtype, order=order)))


def to_device(values: Any, device: int = 0) -> StrictArray:
    """What a test begins with: values in the memory of a GPU."""
    return StrictArray(np.array(values), cuda.Device(device))


def module(num_devices: int) -> Any:
    """What `import cupy` gives on a machine with so many GPUs."""
    return _Module(num_devices)


@contextmanager
def cards(num_devices: int, has_nccl: bool = True) -> Iterator[Any]:
    """Within it this package finds so many GPUs here; yields their CuPy."""
    library = module(num_devices)
    with (
        patch.object(gpu, "_cupy", lambda: library),
        patch.object(gpu, "_nccl", lambda: nccl if has_nccl else None),
    ):
        yield library


class _Module:
    def __init__(self, num_devices: int) -> None:
        self.cuda = cuda.Cuda(num_devices)
        self.cuda.MemoryPool = graphs.MemoryPool
        self.ndarray = StrictArray
        self.__version__ = API["version"]
        self.array = array

    def is_available(self) -> bool:
        return True

    def get_default_memory_pool(self) -> Any:
        """Of 1 GiB, without a limit."""
        return SimpleNamespace(
            get_limit=lambda: 0, total_bytes=lambda: 1 << 30, free_all_blocks=lambda: None
        )

    def __getattr__(self, name: str) -> Any:
        return globals()["__getattr__"](name)


def __getattr__(name: str) -> Any:
    """The functions of CuPy's own namespace, such as make arrays without being given one."""
    if name == "lib":
        return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))
    if name not in FUNCTIONS and name not in LOOPS:
        raise AttributeError(f"cupy has no {name!r}")
    function = reduce(getattr, name.split("."), np)

    @graphs.noted
    def call(*args: Any, **kwargs: Any) -> Any:
        if fusion.is_fusing(args):
            return _in_kernel(name, *args, **kwargs)
        if name in LOOPS:
            return function(*args, **kwargs)
        _check(name, FUNCTIONS[name], args, kwargs)
        return _call(function, name, args, kwargs)

    return call


@graphs.noted
def _as_strided(x: StrictArray, shape: Any = None, strides: Any = None) -> StrictArray:
    """A view, for which nothing is launched."""
    return _wrapped(np.lib.stride_tricks.as_strided(x._array, shape, strides), x)


def fuse(kernel_name: str) -> Any:
    """`cupy.fuse(kernel_name=...)`: decorates a function."""
    assert kernel_name.isidentifier(), f"{kernel_name!r} is no name in C"
    return lambda function: lambda *args: _fused(kernel_name, function, args)


def _in_kernel(name: str, *operands: Any, **kwargs: Any) -> Any:
    if name not in LOOPS and name not in fusion.KNOWN:
        raise TypeError(f"cupy.{name} cannot be fused")
    return fusion.call(_loop, name, *operands, **kwargs)


@graphs.noted
def _fused(name: str, function: Any, args: Any) -> Any:
    """A fused function, called: one kernel."""
    _launch(f"fuse:{name}")
    if any(isinstance(x, (np.ndarray, np.generic)) for x in args):
        raise TypeError(f"Invalid argument type for {name!r}: {[type(x) for x in args]}")
    found, written = fusion.run(function, [_operand(x) for x in args], _in_kernel)
    for array, is_written in zip(args, written, strict=True):
        if is_written:
            array._write()
    return _fresh(found)


def _fresh(found: Any) -> Any:
    """What a kernel has made, on the device."""
    if isinstance(found, tuple):
        return tuple(_fresh(array) for array in found)
    return None if found is None else _written(_wrapped(_in_c_order(found)))
