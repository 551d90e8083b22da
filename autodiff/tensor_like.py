"""`TensorLike`: what stands in NumPy's expressions in the place of an array, and by which table.

What is differentiable is listed in one table, from NumPy's functions to ours; the modules beside
this one fill it with `implements`. A function that is not in the table is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from .creation import CREATION
from .recording import is_recording, is_watched
from .refusals import (
    array_of_tensors,
    check_arguments,
    plain_number,
    unknown_function,
    write_into_tensor,
)

Array: TypeAlias = Any
"""A NumPy or a CuPy array. Kernels call `np.*` on either: NumPy hands CuPy's arrays to CuPy."""

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Enter the decorated function into the table as the differentiable form of `functions`."""

    def enter(ours: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = ours
        return ours

    return enter


def _operator(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods behind an operator and behind its reflection (`x - y` where only y is ours)."""

    def forward(self: Any, other: Any) -> Any:
        return FUNCTIONS[function](self, other)

    def reflected(self: Any, other: Any) -> Any:
        return FUNCTIONS[function](other, self)

    return forward, reflected


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method of an array that does what one of NumPy's functions does."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[function](self, *args, **kwargs)

    call.__name__ = function.__name__
    call.__doc__ = f"As `np.{function.__name__}` of this tensor."
    return call


class StaticShape(tuple[int, ...]):
    """A shape with the methods of TensorFlow's `TensorShape`; None is a length that is open."""

    __slots__ = ()

    @property
    def ndims(self) -> int:
        return len(self)

    rank = ndims

    def as_list(self) -> list[int]:
        return list(self)

    def is_fully_defined(self) -> bool:
        return None not in self


class TensorLike:
    """What can stand in a differentiable expression: a `Tensor`, or something that gives one.

    There are no in-place operators: `x += y` binds the name to a new tensor.
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # CuPy's operators defer by priority, NumPy's by __array_ufunc__.
    __hash__ = object.__hash__

    __add__, __radd__ = _operator(np.add)
    __sub__, __rsub__ = _operator(np.subtract)
    __mul__, __rmul__ = _operator(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.divide)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide)
    __mod__, __rmod__ = _operator(np.remainder)
    __pow__, __rpow__ = _operator(np.power)
    __matmul__, __rmatmul__ = _operator(np.matmul)
    __lt__, __gt__ = _operator(np.less)
    __le__, __ge__ = _operator(np.less_equal)
    __and__, __rand__ = _operator(np.bitwise_and)
    __or__, __ror__ = _operator(np.bitwise_or)
    __xor__, __rxor__ = _operator(np.bitwise_xor)
    __eq__ = _operator(np.equal)[0]
    __ne__ = _operator(np.not_equal)[0]
    __getitem__ = _operator(operator.getitem)[0]

    def tensor(self) -> Any:
        """The tensor that stands for this object in the calling thread."""
        raise NotImplementedError

    def source(self) -> Any:
        """The tensor that a gradient of this object is the gradient of.

        Another one than `tensor()` where that is a copy, made anew for each operation.
        """
        return self.tensor()

    def like(self) -> Array:
        """An array of its shape, dtype and kind, whose values are not to be relied on.

        To be overridden, as `read_rows`, by what need not have its values at hand for this.
        """
        return self.tensor().data

    def read_rows(self, rows: Array) -> tuple[Any, Array]:
        """The tensor to which a gradient of its rows flows, and the rows of these numbers.

        They may be `Awaited`.
        """
        source = self.tensor()
        return source, np.take(source.data, rows, axis=0)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            raise write_into_tensor(ufunc.__name__)
        function = FUNCTIONS.get(ufunc) if method == "__call__" else None
        if function is None:
            raise unknown_function(ufunc, method)
        try:
            return function(*inputs, **kwargs)
        except TypeError:  # looked into now: before each call it would cost more than most calls
            check_arguments(ufunc, function, inputs, kwargs)
            raise

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        function = FUNCTIONS.get(func)
        if function is None:
            if func in CREATION:  # np.zeros(shape, like=tensor)
                return CREATION[func](self.like(), *args, **kwargs)
            raise unknown_function(func, "__call__")
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_arguments(func, function, args, kwargs)
            raise

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        tensor = self.tensor()
        if tensor.requires_grad:
            raise array_of_tensors()
        tensor.share()
        data = tensor.data
        is_here = isinstance(data, (np.ndarray, np.generic))
        return np.array(data if is_here else data.get(), dtype=dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.like().shape

    def get_shape(self) -> StaticShape:
        """The same as `shape`, with TensorFlow's `as_list()`."""
        return StaticShape(self.shape)

    def set_shape(self, shape: Any) -> None:
        """Check the shape, as where TensorFlow is told a shape that it does not know.

        Args:
            shape: Lengths, of which None may be any; None in the place of all of them any shape.

        Raises:
            ValueError: The tensor has another one.
        """
        found = self.shape
        if shape is None:
            return
        wanted = tuple(shape)
        if len(wanted) != len(found) or any(
            want not in (None, have) for want, have in zip(wanted, found, strict=True)
        ):
            raise ValueError(
                f"set_shape: shape must fit the tensor's, which is {found}, got {shape}; use "
                f"np.reshape for another shape"
            )

    @property
    def dtype(self) -> np.dtype:
        return self.like().dtype

    @property
    def device(self) -> str:
        """The name of the device in whose memory it is; logical CPUs share that of the first."""
        array = self.like()
        here = "CPU:0" if isinstance(array, np.ndarray) else f"GPU:{array.device.id}"
        return f"/job:localhost/replica:0/task:0/device:{here}"

    @property
    def ndim(self) -> int:
        return self.like().ndim

    @property
    def size(self) -> int:
        return self.like().size

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        return FUNCTIONS[np.transpose](self)

    @property
    def mT(self) -> Any:  # noqa: N802 (NumPy's name)
        return FUNCTIONS[np.matrix_transpose](self)

    def __len__(self) -> int:
        return len(self.like())

    def __bool__(self) -> bool:
        return bool(self.tensor().data)

    def __float__(self) -> float:
        """The value; refused where it `would_cut` a gradient (`item` is the way out on purpose)."""
        tensor = self.tensor()
        if would_cut(tensor):
            raise plain_number("float()")
        return float(tensor.data)

    def __int__(self) -> int:
        return int(self.tensor().data)

    def __format__(self, spec: str) -> str:
        return format(self.tensor().data, spec) if spec else str(self)

    def __neg__(self) -> Any:
        return FUNCTIONS[np.negative](self)

    def __pos__(self) -> Any:
        return FUNCTIONS[np.positive](self)

    def __invert__(self) -> Any:
        return FUNCTIONS[np.invert](self)

    def __abs__(self) -> Any:
        return FUNCTIONS[np.absolute](self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a tensor cannot be written into; build a new one with np.where, np.concatenate or "
            "np.stack"
        )

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.tensor().data.item()

    def numpy(self) -> np.ndarray:
        """A copy of the values in host memory, outside the graph."""
        data = self.tensor().data
        return data.copy() if isinstance(data, np.ndarray) else data.get()

    def reshape(self, *shape: Any) -> Any:
        return FUNCTIONS[np.reshape](self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return FUNCTIONS[np.transpose](self, axes or None)

    def flatten(self) -> Any:
        return self.ravel().copy()

    all = _method(np.all)
    any = _method(np.any)
    argmax = _method(np.argmax)
    argmin = _method(np.argmin)
    argsort = _method(np.argsort)
    astype = _method(np.astype)
    clip = _method(np.clip)
    copy = _method(np.copy)
    cumprod = _method(np.cumprod)
    cumsum = _method(np.cumsum)
    diagonal = _method(np.diagonal)
    dot = _method(np.dot)
    max = _method(np.max)
    mean = _method(np.mean)
    min = _method(np.min)
    nonzero = _method(np.nonzero)
    prod = _method(np.prod)
    ravel = _method(np.ravel)
    repeat = _method(np.repeat)
    round = _method(np.round)
    squeeze = _method(np.squeeze)
    std = _method(np.std)
    sum = _method(np.sum)
    swapaxes = _method(np.swapaxes)
    take = _method(np.take)
    trace = _method(np.trace)
    var = _method(np.var)


def would_cut(tensor: Any) -> bool:
    """Whether a plain number in the place of `tensor` would lose a gradient that is wanted."""
    return tensor.requires_grad and is_watched() and is_recording()
