"""`tf.io`: files, and what is in them, for functions that a dataset maps."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ...inputs import FixedLenFeature, VarLenFeature
from ...inputs import parse_example as parse_one
from ..names import NameTable, register, serve
from .advice import advice
from .conversion import convert, plain

_NAMES = {
    "FixedLenFeature": "inputs.FixedLenFeature",
    "TFRecordWriter": "inputs.TFRecordWriter",
    "VarLenFeature": "inputs.VarLenFeature",
}
_G = "compat.tf.gfile."

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))
register(__name__, {"gfile": (("compat.tf.gfile",), {})}, advice)


def as_str(value: Any) -> str:
    """Text from text, bytes, or an array or tensor of one."""
    value = np.asarray(value)[()] if not isinstance(value, str | bytes) else value
    return value.decode() if isinstance(value, bytes) else str(value)


def as_bytes(value: Any) -> bytes:
    """Bytes from bytes, text, or an array or tensor: of numbers, those of memory."""
    if not isinstance(value, str | bytes):
        array = np.asarray(value)
        if array.dtype.kind != "U":
            return array.tobytes()  # of bytes, too: item() would lose zeros at their end
        value = array[()]
    return value if isinstance(value, bytes) else str(value).encode()


def read_file(filename: Any, name: str | None = None) -> np.ndarray:
    """The bytes of a file, as an array of uint8: NumPy's own bytes would lose zeros at the end."""
    return np.fromfile(as_str(filename), np.uint8)


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """A file with these bytes or this text."""
    path = as_str(filename)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(as_bytes(contents))


def decode_raw(
    input_bytes: Any, out_type: Any, little_endian: bool = True, name: Any = None
) -> Tensor:
    """Bytes as numbers."""
    dtype = np.dtype(out_type).newbyteorder("<" if little_endian else ">")
    return Tensor(np.frombuffer(as_bytes(input_bytes), dtype).astype(out_type))


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    **hints: Any,
) -> list[Any]:
    """The fields of one line, each in the dtype of its default, which stands for an empty one."""
    import csv

    quoting: Any = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    fields = next(csv.reader([as_str(records)], delimiter=field_delim, quoting=quoting))
    if len(fields) != len(record_defaults):
        raise ValueError(
            f"decode_csv: the line has {len(fields)} fields and there are {len(record_defaults)} "
            f"record_defaults: {as_str(records)!r}"
        )
    pairs = zip(fields, record_defaults, strict=True)
    return [_field(text, default, na_value) for text, default in pairs]


def _field(text: str, default: Any, na_value: str) -> Any:
    is_dtype = isinstance(default, np.dtype | type)
    values = np.zeros(0, default) if is_dtype else plain(default).reshape(-1)
    if text == na_value:
        if not values.size:
            raise ValueError("decode_csv: a field without default is empty")
        return convert(values[0])
    return convert(np.asarray(text).astype(str if values.dtype.kind == "U" else values.dtype)[()])


def decode_image(
    contents: Any, channels: int | None = None, dtype: Any = np.uint8, **hints: Any
) -> Tensor:
    """An image (height, width, channels) from the bytes of a PNG, JPEG or other file.

    Raises:
        ImportError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "decoding images needs Pillow: pip install pillow; or keep images as arrays (.npy)"
        ) from error
    with Image.open(io.BytesIO(as_bytes(contents))) as image:
        modes = {1: "L", 3: "RGB", 4: "RGBA"}
        found = np.asarray(image.convert(modes[channels]) if channels else image)
    pixels = found[..., None] if found.ndim == 2 else found
    is_float = np.dtype(dtype).kind == "f"
    return Tensor((pixels / 255).astype(dtype) if is_float else pixels.astype(dtype))


decode_png = decode_jpeg = decode_bmp = decode_image


def parse_single_example(
    serialized: Any, features: Mapping[str, Any], *unused: Any
) -> dict[str, Any]:
    """The features of an example of a TFRecord file."""
    return parse_one(serialized, features)


def parse_example(serialized: Any, features: Mapping[str, Any], *unused: Any) -> dict[str, Any]:
    """The features of a batch of examples, stacked."""
    rows = [parse_one(record, features) for record in serialized]
    return {name: np.stack([row[name] for row in rows]) for name in features}


def matching_files(pattern: Any, name: str | None = None) -> list[str]:
    """The files that match."""
    from . import gfile

    return gfile.glob(as_str(pattern))


__all__ = ["FixedLenFeature", "VarLenFeature"]
