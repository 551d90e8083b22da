"""`Tensor`: one array, and how it came about.

A `Tensor` holds a NumPy or CuPy array and takes part in NumPy's own protocols, so that a model is
written in plain NumPy: `np.tanh(x @ w + b)`. Each result remembers its inputs and the function that
carries a gradient back to them (its *vjp*, vector-Jacobian product). The graph hangs on the tensors
and nowhere else, so threads do not meet in it and it goes away with the last tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import placement
from .placement import on_host, placed
from .printing import described, printed
from .recording import creation_order, open_tapes, recording
from .refusals import unknown_dtype
from .tensor_like import Array, TensorLike

Vjp: TypeAlias = Callable[[Array, Sequence[Array | None]], Sequence[Any]]
"""`vjp(gradient, outs)` gives one gradient for each input, or None for an input that needs none.

It owns `gradient` and may overwrite it. What it returns belongs to the caller: fresh arrays, or
`gradient` itself, or views of it, but no memory twice; or `IndexedSlices` or a `Patch`, whose
values are only read. `outs[i]`, where it is not None, is a buffer into which the gradient of input
`i` may be written straight away; returning that very buffer says that this was done.

It may be called more than once, with nothing changed but its gradient: it leaves alone what forward
saved.

For a gradient of a gradient it is called with a `Tensor`, and records what it computes like any
other code: `g *= y` then binds a name anew. So it takes the operands by `operand`, results by
computing them again, and leaves `out=` away; or it refuses by `first_order_only`.
"""


def is_floating(dtype: np.dtype) -> bool:
    """Whether a gradient can have this dtype; NumPy takes bfloat16 for something else."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def check_floating(dtype: np.dtype) -> None:
    """Refuse a leaf whose gradient would be cut to whole numbers, or to the real part."""
    if not is_floating(dtype):
        raise TypeError(
            f"a tensor of dtype {dtype} has no gradient; convert the array to a floating dtype "
            f"first, or leave requires_grad and watch away"
        )


class Tensor(TensorLike):
    """One array with its place in the gradient graph.

    Args:
        data: A NumPy or CuPy array (anything else that `np.asarray` takes becomes a NumPy array).
        requires_grad: Whether this is a leaf whose gradient is wanted; its dtype must be a floating
            one then.
        owner: Whatever the maker of a leaf wants to find again at its gradient.
    """

    __slots__ = ("data", "inputs", "mask", "order", "owner", "requires_grad", "vjp")

    go_backward: Callable[..., Any] | None = None
    """Of a tensor that knows a way of its own: `backward(self, seed, into, on_ready)`, or None."""

    changed_at = -1
    """The place in the order of creation of the last change of `data` in place."""

    def __init__(self, data: Any, requires_grad: bool = False, owner: Any = None) -> None:
        if isinstance(data, TensorLike):
            raise TypeError(
                "Tensor(data) takes an array, and this is a tensor already; use it as it is, or "
                "stop_gradient(tensor) for its values outside the graph"
            )
        self.data: Array = placed(data if hasattr(data, "__array_ufunc__") else np.asarray(data))
        if requires_grad:
            check_floating(self.data.dtype)
        self.requires_grad = requires_grad
        self.owner = owner
        self.inputs: tuple[Tensor, ...] = ()
        self.vjp: Vjp | None = None
        self.order = -1

    def tensor(self) -> Tensor:
        return self

    def like(self) -> Array:
        return self.data

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

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

    Who copies the array behind the owner's back `lend`s it: the next change waits for that.

    Attributes:
        is_shared: Whether somebody has said that he keeps the array.
        is_free: Whether nobody has, and it is not lent.
    """

    __slots__ = ("_before_change", "changed_at", "is_free", "is_shared")

    def __init__(self, data: Array, requires_grad: bool, owner: Any = None) -> None:
        super().__init__(data, requires_grad, owner)
        self.data = data  # where it lies its owner has said
        self.changed_at = -1
        self.is_free = True
        self.is_shared = False
        self._before_change: Callable[[], object] | None = None

    def share(self) -> None:
        self.is_shared, self.is_free = True, False

    def lend(self, before_change: Callable[[], object]) -> None:
        self._before_change, self.is_free = before_change, False

    def end_loan(self) -> None:
        """Have it copied by whoever it was lent to."""
        if self._before_change is not None:
            self._before_change()
            self._before_change, self.is_free = None, not self.is_shared

    def writable(self) -> Array:
        """`data`, about to be overwritten."""
        if not self.is_free:
            self.end_loan()
        if self.is_shared:
            self.move(self.data.copy())
        else:
            self.changed_at = next(creation_order)
        return self.data

    def move(self, data: Array) -> None:
        """Have the same values in another array, about to be overwritten.

        Who holds the old one keeps it. Where nobody has said so, operations that have read it are
        over all the same, as if it had been overwritten itself.
        """
        if not self.is_shared:
            self.changed_at = next(creation_order)
        self.data = data
        self.is_shared, self.is_free = False, True


def note_change(leaves: Iterable[MutableLeaf]) -> None:
    """Note that the arrays of leaves are about to be overwritten that are all free."""
    now = next(creation_order)
    for leaf in leaves:
        leaf.changed_at = now


class _Constant(Tensor):
    """An operand that is no tensor: nothing but its value, since many are made on the hot path."""

    __slots__ = ()
    requires_grad = False
    inputs = ()
    vjp = None


def note_read(variable: TensorLike, tensor: Tensor) -> None:
    """Tell the open tapes that `tensor` was read for `variable`."""
    if tensor.requires_grad:
        for tape in open_tapes.get():
            tape.note(variable)


def lift(value: Any) -> Tensor:
    """The operand of an operation as a `Tensor`.

    A Python number, or a NumPy scalar such as the result of `np.sqrt(2.0)`, stays a number: it
    takes the dtype of the array that it meets, so that float32 stays float32. Arrays keep their
    dtype, and NumPy's rules say what comes of two: int64 with float32 gives float64.
    """
    kind = type(value)
    if kind is Tensor or kind is _Constant:
        return _brought(value) if placement.is_in_use else value
    if kind is not np.ndarray:
        if isinstance(value, TensorLike):
            tensor: Tensor = value.tensor()
            if tensor is not value and open_tapes.get():
                note_read(value, tensor)
            return _brought(tensor) if placement.is_in_use else tensor
        if isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, (np.ndarray, list, tuple)):
            value = np.asarray(value)
    constant = _Constant.__new__(_Constant)
    constant.data = placed(value)
    return constant


def _brought(tensor: Tensor) -> Tensor:
    """A tensor of host memory where the thread computes on a device: a copy there; else itself."""
    return _copied(tensor, placed, on_host) if placement.is_away(tensor.like()) else tensor


def _copied(
    tensor: Tensor, there: Callable[[Array], Array], back: Callable[[Array], Array]
) -> Tensor:
    def vjp(g: Any, outs: Any) -> tuple[Any]:
        return (_copied(g, back, there) if type(g) is Tensor else back(g),)

    return record(there(tensor.data), (tensor,), vjp)


def lift_array(value: Any) -> Tensor:
    """The same for an operand that must be an array, be it of one number."""
    if type(value) is Tensor and not placement.is_in_use:
        return value
    tensor = lift(value)
    is_number = type(tensor) is _Constant and isinstance(tensor.data, (int, float))
    return Tensor(tensor.data) if is_number else tensor


def lift_together(*values: Any) -> tuple[Tensor, ...]:
    """Operands of one operation as tensors: numbers become arrays beside the first array."""
    tensors = tuple(lift(value) for value in values)
    like = next((t.data for t in tensors if hasattr(t.data, "dtype")), np.empty(0))
    return tuple(
        tensor
        if hasattr(tensor.data, "dtype")
        else Tensor(np.asarray(tensor.data, np.result_type(tensor.data, like.dtype), like=like))
        for tensor in tensors
    )


def record(data: Array, inputs: tuple[Tensor, ...], vjp: Vjp) -> Tensor:
    """The result of an operation, tied to `inputs` where one of them needs a gradient."""
    # Past __init__, whose checks are for users: this is done for every operation of every step.
    result = Tensor.__new__(Tensor)
    result.data = np.asarray(data) if isinstance(data, np.generic) else data
    result.owner = None
    result.requires_grad = False
    if recording.get():
        for tensor in inputs:
            if tensor.requires_grad:
                if result.data.dtype.kind != "f" and not is_floating(result.data.dtype):
                    raise unknown_dtype(result.data.dtype)
                result.requires_grad = True
                result.inputs = inputs
                result.vjp = vjp
                result.order = next(creation_order)
                return result
    result.inputs = ()
    result.vjp = None
    return result


def operand(g: Any, x: Tensor, a: Array) -> Any:
    """What a vjp computes with in the place of `a`, the values that x had when it was recorded.

    Args:
        g: The gradient that the vjp was given. Where it is a tensor, a gradient of this gradient is
            wanted: what the vjp computes is recorded, and has to depend on `x` itself.
    """
    if type(g) is not Tensor or not x.requires_grad:
        return a
    return x if x.data is a else record(a, (x,), lambda g, outs: (g,))  # a variable since changed


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
