"""Making tensors, and changing their shape: what stands in `tf` itself."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ... import autodiff
from ...autodiff import Tensor, TensorLike, stop_gradient
from .arguments import adapt_all
from .conversion import (
    accept_symbolic,
    as_tensor,
    axes,
    cast,
    convert,
    has_dtype,
    integers,
    on_symbolic,
    one_or_all,
    operands,
    plain,
)
from .conversion import conjugate as conjugated

__all__ = [
    "boolean_mask",
    "broadcast_to",
    "cast",
    "clip_by_value",
    "concat",
    "constant",
    "convert_to_tensor",
    "ensure_shape",
    "expand_dims",
    "eye",
    "fill",
    "gather",
    "gather_nd",
    "identity",
    "is_tensor",
    "linspace",
    "meshgrid",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "range",
    "rank",
    "repeat",
    "reshape",
    "reverse",
    "roll",
    "scatter_nd",
    "searchsorted",
    "sequence_mask",
    "shape",
    "size",
    "slice",
    "sort",
    "split",
    "squeeze",
    "stack",
    "stop_gradient",
    "tile",
    "to_float",
    "to_int32",
    "to_int64",
    "transpose",
    "unique",
    "unstack",
    "where",
    "zeros",
    "zeros_like",
]


def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Tensor:
    """A tensor of a value; of `shape`, if given, which a single number fills.

    Raises:
        ValueError: With `verify_shape`, the value has another shape.
    """
    tensor = convert(value, dtype)
    if verify_shape and shape is not None and tensor.shape != integers(shape):
        raise ValueError(f"value must have shape {integers(shape)}, it has {tensor.shape}")
    if shape is None:
        return tensor
    return broadcast_to(tensor, shape) if tensor.size == 1 else reshape(tensor, shape)


def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Tensor:
    """A tensor of a value; a variable gives the tensor of its value now.

    Args:
        value: Any value.
        dtype: The dtype to convert to.
        dtype_hint: The same for a value without a dtype of its own, where no digits are lost.
    """
    found = convert(value, dtype)
    if dtype is None and dtype_hint is not None and not has_dtype(value):
        hint = np.dtype(dtype_hint)
        found = convert(value, hint) if np.can_cast(found.dtype, hint, "same_kind") else found
    tensor: Tensor = found.tensor()
    return tensor


def identity(input: Any, name: str | None = None) -> Any:
    """The value as a tensor: of a variable a snapshot; gradients flow through it."""
    tensor = convert(input)
    return tensor.value() if hasattr(tensor, "assign") else tensor


def is_tensor(x: Any) -> bool:
    """Whether it is a tensor or a variable."""
    return isinstance(x, TensorLike)


def cast_of(dtype: Any) -> Any:
    def to(x: Any, name: str | None = None) -> Tensor:
        return cast(x, dtype)

    return to


to_float, to_int32, to_int64 = cast_of(np.float32), cast_of(np.int32), cast_of(np.int64)


def zeros(
    shape: Any, dtype: Any = np.float32, name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of zeros."""
    return Tensor(np.zeros(integers(shape), dtype))


def ones(
    shape: Any, dtype: Any = np.float32, name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of ones."""
    return Tensor(np.ones(integers(shape), dtype))


def zeros_like(
    input: Any, dtype: Any = None, name: str | None = None, layout: Any = None
) -> Tensor:
    """Zeros of the shape and dtype of a tensor."""
    like = convert(input)
    return Tensor(np.zeros(like.shape, dtype or like.dtype))


def ones_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Tensor:
    """Ones of the shape and dtype of a tensor."""
    like = convert(input)
    return Tensor(np.ones(like.shape, dtype or like.dtype))


def fill(dims: Any, value: Any, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of one value."""
    return broadcast_to(convert(value), dims)


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Any = None,
    dtype: Any = np.float32,
    name: str | None = None,
) -> Tensor:
    """The identity matrix, or an array of `batch_shape` of them."""
    matrix = np.eye(num_rows, num_columns, dtype=dtype)
    before = () if batch_shape is None else integers(batch_shape)
    return Tensor(np.broadcast_to(matrix, (*before, *matrix.shape)).copy())


def range(
    start: Any,
    limit: Any = None,
    delta: Any = 1,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from `start` (0, if only one is given) to before `limit`."""
    given = (0, start, delta) if limit is None else (start, limit, delta)
    first, end, step = [np.asarray(v).item() for v in given]
    numbers = np.arange(first, end, step)
    return convert(numbers.tolist() if dtype is None else numbers, dtype)


def linspace(start: Any, stop: Any, num: int, name: str | None = None, axis: int = 0) -> Tensor:
    """So many numbers at equal distances."""
    first, last = convert(start), convert(stop)
    return Tensor(np.linspace(first.data, last.data, num, axis=axis, dtype=first.dtype))


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: Any = np.float32,
    name: str | None = None,
) -> Tensor:
    """1 (`on_value`) at each index along a new axis of length `depth`, and 0 elsewhere."""
    numbers = plain(indices)
    chosen = numbers[..., None] == np.arange(int(depth))
    values = np.where(chosen, on_value, off_value).astype(dtype)
    return Tensor(values if axis == -1 else np.moveaxis(values, -1, axis))


def shape(input: Any, out_type: Any = np.int32, name: str | None = None) -> Tensor:
    """The shape as a tensor."""
    return Tensor(np.array(convert(input).shape, out_type))


def size(input: Any, out_type: Any = np.int32, name: str | None = None) -> Tensor:
    """The number of elements as a tensor."""
    return Tensor(np.array(convert(input).size, out_type))


def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of axes as a tensor."""
    return Tensor(np.int32(convert(input).ndim))


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """The same values in another shape, of which one length may be -1."""
    return np.reshape(convert(tensor), integers(shape))


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Any:
    """`x`, if it has this shape; None stands for any length.

    Raises:
        ValueError: It has another one.
    """
    x = convert(x)
    if len(shape) != x.ndim or any(w not in (None, n) for w, n in zip(shape, x.shape, strict=True)):
        raise ValueError(f"the tensor has shape {x.shape}, which is not {tuple(shape)}")
    return x


def expand_dims(input: Any, axis: int, name: str | None = None) -> Any:
    """With a new axis of length 1."""
    return np.expand_dims(convert(input), axis)


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Without the axes of length 1, or without these."""
    return np.squeeze(convert(input), axis=axes(axis))


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None) -> Any:
    """With the axes in another order, by default reversed; complex numbers perhaps conjugated."""
    turned = np.transpose(convert(a), None if perm is None else integers(perm))
    return conjugated(turned) if conjugate else turned


def concat(values: Any, axis: int, name: str | None = None) -> Any:
    """Tensors one after another along an axis."""
    return as_tensor(np.concatenate([convert(v) for v in values], axis=axis))


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Tensors of one shape along a new axis."""
    return as_tensor(np.stack([convert(v) for v in values], axis=axis))


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str | None = None) -> list:
    """The parts of a tensor along an axis, without that axis.

    Raises:
        ValueError: There are not `num` of them.
    """
    x = np.moveaxis(convert(value), axis, 0)
    if num not in (None, x.shape[0]):
        raise ValueError(f"num must be the length of axis {axis}, {x.shape[0]}, got {num}")
    return [x[i] for i in builtins.range(x.shape[0])]


def split(
    value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None, name: Any = None
) -> list[Any]:
    """Parts of equal size, or of these sizes, along an axis."""
    if isinstance(num_or_size_splits, int):
        return list(np.split(convert(value), num_or_size_splits, axis=axis))
    ends = np.cumsum(integers(num_or_size_splits))[:-1]
    return list(np.split(convert(value), ends.tolist(), axis=axis))


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """So many elements of each axis from `begin` on; -1 is all that are left."""
    starts, sizes = integers(begin), integers(size)
    pairs = zip(starts, sizes, strict=True)
    return convert(input_)[tuple(builtins.slice(b, None if n == -1 else b + n) for b, n in pairs)]


def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """The tensor repeated along each axis."""
    return np.tile(convert(input), integers(multiples))


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Each element repeated."""
    return np.repeat(convert(input), one_or_all(integers(repeats)), axis=axis)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """In reverse order along axes."""
    return np.flip(convert(tensor), axes(axis))


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    """Moved along axes; what leaves at one end comes in at the other."""
    return np.roll(convert(input), one_or_all(integers(shift)), axes(axis))


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: Any = 0,
    name: str | None = None,
) -> Any:
    """With a border along each axis: (before, after)."""
    widths = [tuple(pair) for pair in plain(paddings).tolist()]
    if mode.upper() == "CONSTANT":
        return np.pad(convert(tensor), widths, constant_values=constant_values)
    x = convert(tensor)
    for axis, width in enumerate(widths):
        rows = np.pad(np.arange(x.shape[axis]), width, mode.lower())  # type: ignore[call-overload]
        x = np.take(x, rows, axis)
    return x


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """The tensor repeated to a shape that it fits."""
    return as_tensor(np.broadcast_to(convert(input), integers(shape)))


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """`x` where the condition holds and else `y`; without them the places where it holds."""
    condition = plain(condition)
    if x is None:
        return Tensor(np.argwhere(condition))
    return as_tensor(np.where(condition, *operands(x, y)))


def boolean_mask(tensor: Any, mask: Any, axis: int = 0, name: str | None = None) -> Any:
    """The elements where the mask holds."""
    return convert(tensor)[(builtins.slice(None),) * axis + (plain(mask),)]


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Any:
    """The slices at these positions of an axis, by default the first behind the batch's axes."""
    positions = plain(indices)
    return autodiff.gather(
        convert(params), positions, batch_dims if axis is None else axis, batch_dims
    )


def gather_nd(params: Any, indices: Any, batch_dims: int = 0, name: str | None = None) -> Any:
    """The elements, or slices, at these places: the last axis of `indices` is one place."""
    if batch_dims:
        raise ValueError("gather_nd: batch_dims is not there; use gather, which takes it")
    return autodiff.gather_nd(convert(params), plain(indices))


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Zeros, and at these places the sum of the updates for each."""
    return autodiff.scatter_nd(plain(indices), convert(updates), integers(shape))


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Not below and not above these."""
    return as_tensor(np.clip(convert(t), clip_value_min, clip_value_max))


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Any:
    """In ascending (or "DESCENDING") order along an axis."""
    x = convert(values)
    order = np.argsort(np.asarray(x), axis=axis, kind="stable")
    order = order if direction == "ASCENDING" else np.flip(order, axis)
    return np.take_along_axis(x, order, axis)


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = np.int32,
    name: str | None = None,
) -> Tensor:
    """Where values belong in a sorted sequence."""
    found = np.searchsorted(
        plain(sorted_sequence),
        plain(values),
        side=side,  # type: ignore[call-overload]
    )
    return Tensor(np.asarray(found, out_type))


def unique(x: Any, out_idx: Any = np.int32, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Each value once, in the order of first occurrence, and where each element is in that."""
    values, first, numbers = np.unique(plain(x), return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.argsort(order)
    return Tensor(values[order]), Tensor(place[numbers.reshape(-1)].astype(out_idx))


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """Coordinate matrices from coordinate vectors."""
    vectors = [plain(v) for v in args]
    return [Tensor(grid) for grid in np.meshgrid(*vectors, indexing=indexing)]  # type: ignore


def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = np.bool_, name: str | None = None
) -> Tensor:
    """For each length, so many times True and then False."""
    numbers = plain(lengths)
    longest = int(numbers.max()) if maxlen is None else int(maxlen)
    return Tensor((np.arange(longest) < numbers[..., None]).astype(dtype))


cast = on_symbolic(cast)
accept_symbolic(globals())
adapt_all(globals(), "tf")
