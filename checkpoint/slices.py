"""What is to be saved: tensors and slices of tensors, checked, and divided among writers."""

from __future__ import annotations

import math
import operator
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, final, get_args

import numpy as np

DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
Shape = tuple[int, ...]
_DTYPES = frozenset(get_args(DType))
_PRIME: Final = 2**61 - 1
_RESERVED_NAME = "__metadata__"  # by the safetensors format


@final
@dataclass(frozen=True, eq=False)
class TensorSlice:
    """A part of a partitioned tensor, as one of its writers holds it.

    Args:
        array: the part.
        start: where it begins in the whole, one index an axis.
        full_shape: the shape of the whole.

    Raises:
        ValueError: the part does not lie within the whole.
    """

    array: np.ndarray
    start: Shape
    full_shape: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", tuple(map(operator.index, self.start)))
        object.__setattr__(self, "full_shape", tuple(map(operator.index, self.full_shape)))
        if not lies_within(self.start, np.shape(self.array), self.full_shape):
            raise ValueError(
                f"a slice of shape {np.shape(self.array)} that starts at {self.start} does not "
                f"lie within full_shape {self.full_shape}; give one start an axis"
            )


Arrays = Mapping[str, np.ndarray | np.generic | Sequence[TensorSlice]]
"""What is saved: name to array, or to slices that make up one."""


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


def pieces_of(arrays: Arrays, anywhere: bool = False) -> dict[str, Piece]:
    """What is to be written, under the keys that it has in its shard; nothing is copied.

    Args:
        arrays: See `paceline.checkpoint.save`.
        anywhere: Whether arrays may be in other memory than the host's.
    """
    pieces: dict[str, Piece] = {}
    for name, value in arrays.items():
        parts = _pieces(_checked_name(name), value, anywhere)
        if len({(piece.full_shape, piece.array.dtype.name) for piece in parts}) > 1:
            raise ValueError(f"the slices of tensor {name!r} differ in full_shape or dtype")
        for piece in parts:
            key = slice_key(name, piece.start, piece.array.shape, piece.full_shape)
            if key in pieces:
                raise ValueError(f"{key!r} is to be saved twice: give each slice once")
            pieces[key] = piece
    return pieces


def _pieces(name: str, value: Any, anywhere: bool) -> list[Piece]:
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(part, TensorSlice) for part in value)
    ):
        arrays = [_checked_array(name, part.array, anywhere) for part in value]
        pairs = zip(arrays, value, strict=True)
        return [Piece(name, array, part.start, part.full_shape) for array, part in pairs]
    array = _checked_array(name, value, anywhere)
    return [Piece(name, array, (0,) * array.ndim, array.shape)]


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or name == _RESERVED_NAME or not is_unicode(name):
        raise ValueError(
            f"a tensor's name must be a string that is not empty and not '{_RESERVED_NAME}'; "
            f"got {name!r}"
        )
    return name


def _checked_array(name: str, array: Any, anywhere: bool) -> Any:
    is_here = isinstance(array, np.ndarray | np.generic)
    if not is_here and not (anywhere and hasattr(array, "__array_ufunc__")):
        raise TypeError(
            f"tensor {name!r} must be a NumPy array or a list of TensorSlice; got "
            f"{type(array).__name__}: convert it first (cupy.asnumpy, numpy.asarray)"
        )
    if array.dtype.name not in _DTYPES:
        raise TypeError(
            f"tensor {name!r} has dtype {array.dtype}, which a checkpoint cannot hold: "
            f"convert it to one of {', '.join(sorted(_DTYPES))}"
        )
    return np.asarray(array) if is_here else array


def plain(piece: Piece) -> Piece:
    """The piece row-major and little-endian; copies only where needed."""
    dtype = piece.array.dtype.newbyteorder("<")
    return replace(piece, array=np.asarray(piece.array, dtype=dtype, order="C"))


def share_of(
    arrays: Mapping[str, np.ndarray], index: int, count: int
) -> dict[str, np.ndarray | list[TensorSlice]]:
    """What writer `index` of `count` writes of arrays that all of them hold: about as many bytes.

    Large arrays are divided by rows. All writers have the same names in the same order.
    """
    total = sum(array.nbytes for array in arrays.values())
    first, stop = (total * edge // count for edge in (index, index + 1))
    share: dict[str, np.ndarray | list[TensorSlice]] = {}
    offset = 0
    for name, array in arrays.items():
        if array.nbytes == 0 and index == 0:  # no byte says whose it is
            share[name] = array
        if array.nbytes:
            num_rows = len(array) if array.ndim else 1
            begin, end = (
                min(max(0, -(-(edge - offset) * num_rows // array.nbytes)), num_rows)
                for edge in (first, stop)
            )
            if (begin, end) == (0, num_rows):
                share[name] = array
            elif begin < end:
                place = (begin, *(0,) * (array.ndim - 1))
                share[name] = [TensorSlice(array[begin:end], place, array.shape)]
        offset += array.nbytes
    return share


def lies_within(start: Shape, shape: Shape, full_shape: Shape) -> bool:
    """Whether the part is a part of the whole."""
    return len(start) == len(shape) == len(full_shape) and all(
        first >= 0 and first + length <= full
        for first, length, full in zip(start, shape, full_shape, strict=True)
    )


def slice_key(name: str, start: Shape, shape: Shape, full_shape: Shape) -> str:
    """What a slice is called in its shard: a whole tensor by its name, a part as in NumPy."""
    if shape == full_shape:
        return name
    return f"{name}[{', '.join(f'{a}:{a + n}' for a, n in zip(start, shape, strict=True))}]"


def tiling_problem(parts: Sequence[tuple[Shape, Shape]], full_shape: Shape) -> str | None:
    """What is wrong with (start, shape) parts that should make up a whole, each place once."""
    for start, shape in parts:
        if not lies_within(start, shape, full_shape):
            return f"the slice of shape {shape} at {start} does not lie within {full_shape}"
    if parts and _is_tiled(parts, full_shape):
        return None
    # Only now: the first problem ends the reading, and to name it may take long.
    overlapping = _overlap(parts)
    if overlapping is not None:
        return f"two slices overlap, one at {overlapping[0]} and one at {overlapping[1]}"
    found, expected = sum(math.prod(shape) for _, shape in parts), math.prod(full_shape)
    return f"its slices hold {found} of its {expected} elements"


def _is_tiled(parts: Sequence[tuple[Shape, Shape]], full_shape: Shape) -> bool:
    """Whether the parts hold each place of the whole once, in time linear in their number.

    Each coordinate of an axis is given a random number, and a part is worth the product over the
    axes of (number at its end - number at its start). The parts of a tiling are together worth
    what the whole is, whatever the numbers. Their sum is a polynomial in the numbers, and two sums
    of parts that do not cover the same places are different polynomials: by the lemma of Schwartz
    and Zippel they agree by chance with a probability below (number of axes) / 2^61.
    """
    if len(parts) == 1:  # as of most tensors
        return math.prod(parts[0][1]) == math.prod(full_shape)
    numbers: defaultdict[tuple[int, int], int] = defaultdict(lambda: secrets.randbelow(_PRIME))

    def worth(start: Shape, shape: Shape) -> int:
        product = 1
        for axis, (first, length) in enumerate(zip(start, shape, strict=True)):
            length_worth = numbers[axis, first + length] - numbers[axis, first]
            product = product * length_worth % _PRIME
        return product

    total = sum(worth(start, shape) for start, shape in parts) % _PRIME
    return total == worth((0,) * len(full_shape), full_shape)


def _overlap(parts: Sequence[tuple[Shape, Shape]]) -> tuple[Shape, Shape] | None:
    filled = [(start, shape) for start, shape in parts if 0 not in shape]
    if len(filled) < 2:
        return None
    starts = np.array([start for start, _ in filled], np.int64).reshape(len(filled), -1)
    stops = starts + np.array([shape for _, shape in filled], np.int64).reshape(starts.shape)
    for i in range(1, len(filled)):
        common = (starts[i] < stops[:i]) & (starts[:i] < stops[i])
        hit = common.all(axis=1)
        if hit.any():
            return filled[int(hit.argmax())][0], filled[i][0]
    return None


def is_unicode(text: str) -> bool:
    # A lone surrogate (from os.fsdecode, say) is in a str but in no UTF-8 file.
    return not any("\ud800" <= character <= "\udfff" for character in text)
