"""`tf.image`: what changes images of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..names import NameTable, serve
from .advice import advice
from .conversion import as_tensor, convert, plain
from .random import _generator

_IO = "compat.tf.io."

__getattr__, __dir__ = serve(
    NameTable(
        __name__,
        renamed={n: _IO + n for n in ("decode_image", "decode_jpeg", "decode_png")},
        advice=advice,
    )
)


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: Any = None) -> Any:
    """Whole numbers as floats from 0 to 1, and back; whole numbers of other sizes in proportion.

    Values that do not fit are the nearest that do, as with `saturate` in TensorFlow.
    """
    values, wanted = plain(image), np.dtype(dtype)
    is_whole, becomes_whole = (d.kind in "iu" for d in (values.dtype, wanted))
    if not is_whole and not becomes_whole:
        return as_tensor(values.astype(wanted))
    if is_whole and not becomes_whole:
        return as_tensor((values / np.iinfo(values.dtype).max).astype(wanted))
    least, largest = np.iinfo(wanted).min, np.iinfo(wanted).max
    if not is_whole:
        scaled = np.trunc(values * (largest + 0.5))  # half a step more, as it is cut off
        return as_tensor(np.clip(scaled, least, largest).astype(wanted))
    before, after = np.iinfo(values.dtype).max + 1, largest + 1
    scaled = (
        values.astype(object) * after // before if after > before else values // (before // after)
    )
    return as_tensor(np.clip(scaled, least, largest).astype(wanted))


def flip_left_right(image: Any) -> Any:
    """Mirrored."""
    return as_tensor(np.flip(plain(image), -2))


def flip_up_down(image: Any) -> Any:
    """Upside down."""
    return as_tensor(np.flip(plain(image), -3))


def random_flip_left_right(image: Any, seed: int | None = None) -> Any:
    """Mirrored every other time; of a batch each image by itself."""
    array, generator = plain(image), _generator(seed)
    if array.ndim == 3:
        return flip_left_right(image) if generator.random() < 0.5 else convert(image)
    is_turned = generator.random(len(array)) < 0.5
    return as_tensor(np.where(is_turned[:, None, None, None], np.flip(array, -2), array))


def random_crop(value: Any, size: Any, seed: int | None = None, name: Any = None) -> Any:
    """A part of this size, from anywhere."""
    array, generator = plain(value), _generator(seed)
    spare = [have - want for have, want in zip(array.shape, size, strict=True)]
    starts = [int(generator.integers(0, s + 1)) for s in spare]
    return as_tensor(array[tuple(slice(s, s + int(n)) for s, n in zip(starts, size, strict=True))])


def per_image_standardization(image: Any) -> Any:
    """With mean 0 and, if it is not all of one colour, deviation 1."""
    values = plain(image).astype(np.float32)
    axes = (-3, -2, -1)
    least = 1 / np.sqrt(np.prod(values.shape[-3:]))
    deviation = np.maximum(values.std(axis=axes, keepdims=True), least)
    standard = (values - values.mean(axis=axes, keepdims=True)) / deviation
    return as_tensor(standard.astype(np.float32))


def resize_with_crop_or_pad(image: Any, target_height: int, target_width: int) -> Any:
    """Cut, or given a border of zeros, around the middle."""
    array = plain(image)
    for axis, length in ((-3, target_height), (-2, target_width)):
        have = array.shape[axis]
        if have > length:
            first = (have - length) // 2
            array = np.take(array, range(first, first + length), axis)
        elif have < length:
            border = [(0, 0)] * array.ndim
            border[axis] = ((length - have) // 2, -(-(length - have) // 2))
            array = np.pad(array, border)
    return as_tensor(array)


resize_image_with_crop_or_pad = resize_with_crop_or_pad
