"""What a summary is made of: a number, a histogram, images as PNG, text."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, final

import numpy as np

from ..autodiff import lift_array
from ..strategies import to_host

_LARGEST = 1e20
_GROWTH = 1.1
_SMALLEST = 1e-12
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of PNG, by the number of channels
_MAX_IMAGES = 3


@final
@dataclass(frozen=True)
class Histogram:
    """How many numbers lie in each of the buckets that all histograms share.

    The buckets are those of TensorFlow: their limits grow by a tenth from 1e-12 on, on both sides
    of zero. So histograms of several replicas can be added up.

    Args:
        min, max, num, sum, sum_squares: Of the numbers.
        counts: How many lie in each bucket that is not empty, by its index.
    """

    min: float = math.inf
    max: float = -math.inf
    num: float = 0.0
    sum: float = 0.0
    sum_squares: float = 0.0
    counts: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Any) -> Self:
        """That of the finite numbers of an array."""
        array = as_array(values)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"a histogram must be of numbers, its values are of {array.dtype}")
        numbers = array.astype(np.float64).reshape(-1)
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return cls()
        found = np.bincount(np.searchsorted(_limits(), numbers))
        used = np.flatnonzero(found).tolist()
        return cls(
            float(numbers.min()),
            float(numbers.max()),
            float(numbers.size),
            float(numbers.sum()),
            float(np.square(numbers).sum()),
            {index: float(found[index]) for index in used},
        )

    def __add__(self, other: Histogram) -> Histogram:
        both = self.counts.keys() | other.counts.keys()
        return Histogram(
            min(self.min, other.min),
            max(self.max, other.max),
            self.num + other.num,
            self.sum + other.sum,
            self.sum_squares + other.sum_squares,
            {i: self.counts.get(i, 0.0) + other.counts.get(i, 0.0) for i in sorted(both)},
        )

    def as_json(self) -> dict[str, Any]:
        """For another worker; `from_json` takes it."""
        return {**vars(self), "counts": list(self.counts.items())}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        return cls(**{**told, "counts": {int(i): float(n) for i, n in told["counts"]}})

    def buckets(self) -> tuple[list[float], list[float]]:
        """The upper limits of buckets, and what is in each; empty ones only between others."""
        if not self.counts:
            return [0.0], [0.0]
        first, last = min(self.counts), max(self.counts)
        indices = range(max(0, first - 1), last + 1)
        limits = [float(limit) for limit in _limits()[indices.start : indices.stop]]
        return limits, [self.counts.get(index, 0.0) for index in indices]


@cache
def _limits() -> np.ndarray:
    count = math.ceil(math.log(_LARGEST / _SMALLEST) / math.log(_GROWTH))
    positive = _SMALLEST * _GROWTH ** np.arange(count)
    largest = np.finfo(np.float64).max
    return np.concatenate([[-largest], -positive[::-1], [0.0], positive, [largest]])


@final
@dataclass(frozen=True)
class Images:
    """Images of one size, as PNG files."""

    height: int
    width: int
    pngs: tuple[bytes, ...]

    @classmethod
    def of(cls, name: str, value: Any) -> Self:
        """The first images of an array; see `FileWriter.image`."""
        images = as_array(value)
        shape, dtype = images.shape, images.dtype
        if images.ndim == 2:
            images = images[:, :, None]
        if images.ndim == 3:
            images = images[None]
        is_image = images.ndim == 4 and images.shape[-1] in _COLOUR_TYPES and images.size
        if not is_image or (dtype != np.uint8 and dtype.kind != "f"):
            raise ValueError(
                f"the image summary {name!r} must be of shape (height, width), (height, width, "
                f"channels) or (images, height, width, channels) with 1 to 4 channels, uint8 or "
                f"floats in [0, 1]; it is of shape {shape} and dtype {dtype}"
            )
        pngs = tuple(_png(_as_bytes(image)) for image in images[:_MAX_IMAGES])
        return cls(images.shape[1], images.shape[2], pngs)


def as_array(value: Any) -> np.ndarray:
    """A tensor, a variable, or what NumPy takes, as an array on the host.

    Raises:
        TypeError: It is nothing of this.
    """
    if isinstance(value, str):
        return np.asarray(value)
    found = lift_array(value).data
    if not hasattr(found, "dtype"):
        raise TypeError(
            f"a summary must be a number, an array, a tensor or a variable, it is {value!r}"
        )
    return to_host(found)


def as_number(name: str, value: Any) -> float:
    """The number that an array of one element has.

    Raises:
        TypeError: It has several, or they are no numbers.
    """
    array = as_array(value)
    if array.size != 1 or array.dtype.kind not in "iufb":
        raise TypeError(
            f"the scalar summary {name!r} must be one number, it is of shape {array.shape} and "
            f"dtype {array.dtype}; take a mean of it, or write a histogram"
        )
    return float(array.reshape(())[()])


def as_text(name: str, value: Any) -> str:
    """A text as it is.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, str):
        raise TypeError(
            f"the text summary {name!r} must be a str, it is {type(value).__name__}; "
            f"pass str(value)"
        )
    return value


def _as_bytes(image: np.ndarray) -> np.ndarray:
    """An image of floats in [0, 1] as uint8."""
    if image.dtype == np.uint8:
        return image
    clipped = np.clip(np.nan_to_num(image.astype(np.float64)), 0.0, 1.0)
    return np.rint(clipped * 255.0).astype(np.uint8)


def _png(image: np.ndarray) -> bytes:
    """An image of (height, width, channels) as a PNG file (https://www.w3.org/TR/png/)."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Each row begins with the number of its filter: none.
    rows = np.insert(image.reshape(height, width * channels), 0, 0, axis=1)
    content = zlib.compress(rows.tobytes())
    chunks = [(b"IHDR", header), (b"IDAT", content), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))
