"""`Tensor`: one array, and how it came about.

A `Tensor` holds a NumPy or CuPy array and takes part in NumPy's own protocols, so that a model is
written in plain NumPy: `np.tanh(x @ w + b)`. Each result remembers its inputs and the function that
carries a gradient back to them (its *vjp*, vector-Jacobian product). The graph hangs on the tensors
and nowhere else, so threads do not meet in it and it goes away with the last tensor.

What is differentiable is listed in one table, from NumPy's functions to ours; the modules beside
this one fill it with `implements`. A function that is not in the table is refused by name.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from .printing import described, printed
from .refusals import (
    check_arguments,
    plain_number,
    unknown_dtype,
    unknown_function,
    write_into_tensor,
)

Array: TypeAlias = Any
"""A NumPy or a CuPy array. Kernels call `np.*` on either: NumPy hands CuPy's arrays to CuPy."""

Vjp: TypeAlias = Callable[[Array, Sequence[Array | None]], Sequence[Any]]
"""`vjp(gradient, outs)` gives one gradient for each input, or None for an input that needs none.

It owns `gradient` and may overwrite it. What it returns belongs to the caller: fresh arrays, or
`gradient` itself, or views of it, but no memory twice; or `IndexedSlices` or a `Patch`, whose
values are only read. `outs[i]`, where it is not None, is a buffer into which the gradient of input
`i` may be written straight away; returning that very buffer says that this was done.

It may be called more than once, with nothing changed but its gradient: it leaves alone what forward
saved.
"""

_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
_CREATION: frozenset[Callable[..., Any]] = frozenset(
    {np.zeros, np.ones, np.full, np.empty, np.arange, np.eye, np.array, np.asarray}
)
_creation_order = itertools.count()


_recording: ContextVar[bool] = ContextVar("paceline_recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Within it operations remember nothing: for evaluation and prediction.

    It holds for this thread, and for the replicas that a strategy runs from it.
    """
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


_watched: ContextVar[bool] = ContextVar("paceline_watched", default=False)


class watched:  # noqa: N801 (used in `with`, like a function; a class is entered faster)
    """Within it a gradient will be wanted: a tensor becomes no plain number unasked.

    A `GradientTape` and what a strategy runs, a `model_fn` for instance, are such places.
    Elsewhere, as behind the step of a custom loop, `float(loss)` is what it looks like.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _watched.set(True)

    def __exit__(self, *exc_info: object) -> None:
        _watched.reset(self._token)


def would_cut(tensor: Tensor) -> bool:
    """Whether a plain number in the place of `tensor` would lose a gradient that is wanted."""
    return tensor.requires_grad and _watched.get() and _recording.get()


def is_recording() -> bool:
    """Whether operations of this thread remember how they came about."""
    return _recording.get()


def check_floating(dtype: np.dtype) -> None:
    """Refuse a leaf whose gradient would be cut to whole numbers, or to the real part."""
    if dtype.kind != "f":
        raise TypeError(
            f"a tensor of dtype {dtype} has no gradient; convert the array to a floating dtype "
            f"first, or leave requires_grad and watch away"
        )


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Enter the decorated function into the table as the differentiable form of `functions`."""

    def enter(ours: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            _FUNCTIONS[function] = ours
        return ours

    return enter


def _operator(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods behind an operator and behind its reflection (`x - y` where only y is ours)."""

    def forward(self: Any, other: Any) -> Any:
        return _FUNCTIONS[function](self, other)

    def reflected(self: Any, other: Any) -> Any:
        return _FUNCTIONS[function](other, self)

    return forward, reflected


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
    __eq__ = _operator(np.equal)[0]
    __ne__ = _operator(np.not_equal)[0]
    __getitem__ = _operator(operator.getitem)[0]

    def tensor(self) -> Tensor:
        """The tensor that stands for this object in the calling thread."""
        raise NotImplementedError

    def like(self) -> Array:
        """An array of its shape, dtype and kind, whose values are not to be relied on.

        To be overridden, as `read_rows`, by what need not have its values at hand for this.
        """
        return self.tensor().data

    def read_rows(self, rows: Array) -> tuple[Tensor, Array]:
        """The tensor to which a gradient of its rows flows, and the rows of these numbers."""
        source = self.tensor()
        return source, np.take(source.data, rows, axis=0)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            raise write_into_tensor(ufunc.__name__)
        function = _FUNCTIONS.get(ufunc) if method == "__call__" else None
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
        function = _FUNCTIONS.get(func)
        if function is None:
            if func in _CREATION:  # np.zeros(shape, like=tensor)
                return func(*args, like=self.like(), **kwargs)
            raise unknown_function(func, "__call__")
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_arguments(func, function, args, kwargs)
            raise

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        tensor = self.tensor()
        if tensor.requires_grad:
            raise TypeError(
                "turning a tensor into a plain array would cut it silently out of the gradient "
                "graph; use np.stack for an array of tensors, .numpy() for the value, or "
                "stop_gradient(tensor) inside a model"
            )
        tensor.share()
        return np.array(tensor.data, dtype=dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.like().shape

    @property
    def dtype(self) -> np.dtype:
        return self.like().dtype

    @property
    def ndim(self) -> int:
        return self.like().ndim

    @property
    def size(self) -> int:
        return self.like().size

    @property
    def T(self) -> Tensor:  # noqa: N802 (NumPy's name)
        return _FUNCTIONS[np.transpose](self)

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

    def __neg__(self) -> Tensor:
        return _FUNCTIONS[np.negative](self)

    def __pos__(self) -> Tensor:
        return _FUNCTIONS[np.positive](self)

    def __abs__(self) -> Tensor:
        return _FUNCTIONS[np.absolute](self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a tensor cannot be written into; build a new one with np.where, np.concatenate or "
            "np.stack"
        )

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.tensor().data.item()

    def numpy(self) -> np.ndarray:
        """A copy of the values in host memory, outside the graph."""
        data = self.tensor().data
        return data.copy() if isinstance(data, np.ndarray) else data.get()

    def astype(self, dtype: Any) -> Tensor:
        return _FUNCTIONS[np.astype](self, dtype)

    def reshape(self, *shape: Any) -> Tensor:
        return _FUNCTIONS[np.reshape](self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _FUNCTIONS[np.transpose](self, axes or None)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return _FUNCTIONS[np.sum](self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return _FUNCTIONS[np.mean](self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return _FUNCTIONS[np.max](self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return _FUNCTIONS[np.min](self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> Array:
        return _FUNCTIONS[np.argmax](self, axis)


class Tensor(TensorLike):
    """One array with its place in the gradient graph.

    Args:
        data: A NumPy or CuPy array (anything else that `np.asarray` takes becomes a NumPy array).
        requires_grad: Whether this is a leaf whose gradient is wanted; its dtype must be a floating
            one then.
        owner: Whatever the maker of a leaf wants to find again at its gradient.
    """

    __slots__ = ("data", "inputs", "mask", "order", "owner", "requires_grad", "vjp")

    changed_at = -1
    """The place in the order of creation of the last change of `data` in place."""

    def __init__(self, data: Any, requires_grad: bool = False, owner: Any = None) -> None:
        if isinstance(data, TensorLike):
            raise TypeError(
                "Tensor(data) takes an array, and this is a tensor already; use it as it is, or "
                "stop_gradient(tensor) for its values outside the graph"
            )
        self.data: Array = data if hasattr(data, "__array_ufunc__") else np.asarray(data)
        if requires_grad:
            check_floating(self.data.dtype)
        self.requires_grad = requires_grad
        self.owner = owner
        self.inputs: tuple[Tensor, ...] = ()
        self.vjp: Vjp | None = None
        self.order = -1

    def tensor(self) -> Tensor:
        return self

    def share(self) -> None:
        """Note that somebody goes on reading `data`, or a view of it, whatever happens to self."""

    @property
    def label(self) -> str:
        """How a message calls it."""
        return f"a tensor of shape {self.data.shape}"

    def __repr__(self) -> str:
        return described(self.numpy(), ", requires_grad=True" if self.requires_grad else "")

    def __str__(self) -> str:
        return printed(self.numpy())


class MutableLeaf(Tensor):
    """A leaf whose array its owner changes in place, as a training step does with a variable's.

    Whoever keeps the array beyond a step says so by `share`, and the next change goes into a copy:
    views, snapshots, and what a persistent tape remembers stay as they are. The operations of a
    step keep it too, but only until backward, and a copy in each step would be wasted on them.
    Backward therefore compares `changed_at` with the place of the operations that read the leaf,
    and refuses those that are older.
    """

    __slots__ = ("_is_shared", "changed_at")

    def __init__(self, data: Array, requires_grad: bool, owner: Any = None) -> None:
        super().__init__(data, requires_grad, owner)
        self.changed_at = -1
        self._is_shared = False

    def share(self) -> None:
        self._is_shared = True

    def writable(self) -> Array:
        """`data`, about to be overwritten."""
        if self._is_shared:
            self.data = self.data.copy()
            self._is_shared = False
        else:
            self.changed_at = next(_creation_order)
        return self.data


class _Constant(Tensor):
    """An operand that is no tensor: nothing but its value, since many are made on the hot path."""

    __slots__ = ()
    requires_grad = False
    inputs = ()
    vjp = None


def lift(value: Any) -> Tensor:
    """The operand of an operation as a `Tensor`.

    A Python number, or a NumPy scalar such as the result of `np.sqrt(2.0)`, stays a number: it
    takes the dtype of the array that it meets, so that float32 stays float32. Arrays keep their
    dtype, and NumPy's rules say what comes of two: int64 with float32 gives float64.
    """
    if type(value) is Tensor:
        return value
    if isinstance(value, TensorLike):
        return value.tensor()
    constant = _Constant.__new__(_Constant)
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, (list, tuple)):
        value = np.asarray(value)
    constant.data = value
    return constant


def lift_array(value: Any) -> Tensor:
    """The same for an operand that must be an array, be it of one number."""
    tensor = lift(value)
    return Tensor(tensor.data) if isinstance(tensor.data, (int, float)) else tensor


def record(data: Array, inputs: tuple[Tensor, ...], vjp: Vjp) -> Tensor:
    """The result of an operation, tied to `inputs` where one of them needs a gradient."""
    # Past __init__, whose checks are for users: this is done for every operation of every step.
    result = Tensor.__new__(Tensor)
    result.data = np.asarray(data) if isinstance(data, np.generic) else data
    result.owner = None
    result.requires_grad = False
    if _recording.get():
        for tensor in inputs:
            if tensor.requires_grad:
                if result.data.dtype.kind != "f":
                    raise unknown_dtype(result.data.dtype)
                result.requires_grad = True
                result.inputs = inputs
                result.vjp = vjp
                result.order = next(_creation_order)
                return result
    result.inputs = ()
    result.vjp = None
    return result


def record_view(data: Array, source: Tensor, vjp: Vjp) -> Tensor:
    """The same as `record` for a result that shares the memory of its only input."""
    source.share()
    return record(data, (source,), vjp)


def snapshot(tensor: Tensor) -> Tensor:
    """The values of a tensor as they are now, through which gradients flow to it."""
    return record_view(tensor.data, tensor, lambda g, outs: (g,))


def stop_gradient(value: Any) -> Tensor:
    """The same values, cut out of the graph on purpose: no gradient flows through the result."""
    tensor = lift(value)
    tensor.share()
    return Tensor(tensor.data)
