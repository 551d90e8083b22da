"""`tf.io`: files, and what is in them, for functions that a dataset maps."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ...inputs import FixedLenFeature, VarLenFeature
from ...inputs import parse_example as parse_one
from ...inputs.columnwise import Record, note_call, parsed
from ...inputs.example_columns import parse_examples
from ...nn.layers import SymbolicTensor
from ..names import NameTable, register, serve
from .advice import advice
from .arguments import refuse
from .csv_lines import CsvFormat, CsvLines
from .text import one_byte_string, one_text, texts

_NAMES = {
    "FixedLenFeature": "inputs.FixedLenFeature",
    "TFRecordWriter": "inputs.TFRecordWriter",
    "VarLenFeature": "inputs.VarLenFeature",
}
_G = "compat.tf.gfile."

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))
register(__name__, {"gfile": (("compat.tf.gfile",), {})}, advice)


def read_file(filename: Any, name: str | None = None) -> np.ndarray:
    """The bytes of a file, as an array of uint8: NumPy's own bytes would lose zeros at the end."""
    return np.fromfile(one_text("filename", filename), np.uint8)


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """A file with these bytes or this text."""
    path = one_text("filename", filename)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(one_byte_string("contents", contents))


def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Byte strings as numbers, along a new last axis.

    Args:
        input_bytes: One byte string, or an array of several of one length.
        out_type: The dtype of the numbers.
        little_endian: The order of their bytes.
        fixed_length: The number of bytes to read of each: longer ones are cut, shorter ones are
            followed by zeros. By default all.

    Raises:
        ValueError: The length is not that of whole numbers.
    """
    rows, shape = _byte_strings("input_bytes", input_bytes)
    if fixed_length is not None:
        rows = [row[:fixed_length].ljust(fixed_length, b"\0") for row in rows]
    lengths = {len(row) for row in rows}
    dtype = np.dtype(out_type).newbyteorder("<" if little_endian else ">")
    if len(lengths) > 1 or any(n % dtype.itemsize for n in lengths):
        raise ValueError(
            f"decode_raw: byte strings must have one length, a multiple of {dtype.itemsize} for "
            f"{np.dtype(out_type)}; they have {sorted(lengths)}; pass fixed_length"
        )
    numbers = np.frombuffer(b"".join(rows), dtype).astype(out_type)
    return Tensor(numbers.reshape((*shape, -1) if rows else (*shape, 0)))


def _byte_strings(what: str, value: Any) -> tuple[list[bytes], tuple[int, ...]]:
    """Byte strings one after another, and the shape of the array that they are in."""
    if isinstance(value, str | bytes):
        return [one_byte_string(what, value)], ()
    if isinstance(value, list | tuple):
        return [one_byte_string(what, item) for item in value], (len(value),)
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        flat = array.reshape(-1)
        # Slices, as an item would lose zeros at its end.
        items = [flat[i : i + 1].reshape(()) for i in range(len(flat))]
        return [one_byte_string(what, item) for item in items], array.shape
    last = array.shape[-1:] or (1,)
    return [row.tobytes() for row in array.reshape(-1, *last)], array.shape[:-1]


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Any]:
    """The fields of lines: for each column a tensor of the shape of `records`.

    Args:
        records: One line, or an array of lines of any shape.
        record_defaults: For each column what stands for an empty field, whose dtype all have; a
            dtype alone, or an empty list, where no field may be empty.
        field_delim: What is between fields.
        use_quote_delim: Whether quotes hold fields together.
        na_value: One more text that stands for an empty field.
        select_cols: The positions, in ascending order, of the columns that are wanted; by default
            all.

    Raises:
        ValueError: A line has another number of fields, an empty one without a default, or one
            that is not of its dtype.
    """
    selected = None if select_cols is None else tuple(select_cols)
    parser = CsvLines(record_defaults, CsvFormat(field_delim, use_quote_delim, na_value, selected))
    if type(records) is Record:
        return parsed(records, parser.parse, parser.num_columns)
    if isinstance(records, SymbolicTensor):
        from .placeholders import noted_columns  # imports estimators, which a pipeline can spare

        arguments = field_delim, use_quote_delim, na_value, select_cols
        return noted_columns(decode_csv, records, record_defaults, arguments)
    note_call()
    lines = texts("records", records)
    return [Tensor(column.reshape(lines.shape)) for column in parser.parse(lines.ravel().tolist())]


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = np.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """An image (height, width, channels) from the bytes of a PNG, JPEG or other file.

    Args:
        contents: The bytes of one file. Of an animation the first image is taken.
        channels: 1, 3 or 4; 0 or None leave the image as it is.
        dtype: uint8, or a floating dtype, whose values are from 0 to 1.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: There are several files, or no such channels or dtype.
    """
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    kind = np.dtype(dtype)
    if channels and channels not in modes:
        raise ValueError(f"channels must be 0, 1, 3 or 4, got {channels}")
    if kind != np.uint8 and kind.kind != "f":
        raise ValueError(f"dtype must be uint8 or floating, got {kind}; cast what is decoded")
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "decoding images needs Pillow: pip install pillow; or keep images as arrays (.npy)"
        ) from error
    with Image.open(io.BytesIO(one_byte_string("contents", contents))) as image:
        found = np.asarray(image.convert(modes[channels]) if channels else image)
    pixels = found[..., None] if found.ndim == 2 else found
    return Tensor((pixels / 255).astype(dtype) if kind.kind == "f" else pixels.astype(dtype))


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = np.uint8, name: str | None = None
) -> Tensor:
    """An image (height, width, channels) from the bytes of a PNG; see `decode_image`."""
    return decode_image(contents, channels, dtype)


def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> Tensor:
    """An image (height, width, channels) from the bytes of a BMP; see `decode_image`."""
    return decode_image(contents, channels)


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """An image (height, width, channels) from the bytes of a JPEG; see `decode_image`."""
    refuse(
        "decode_jpeg",
        ("ratio", ratio, 1, "make the image smaller after it is decoded"),
        ("fancy_upscaling", fancy_upscaling, True, "Pillow always interpolates"),
        ("try_recover_truncated", try_recover_truncated, False, "repair the file first"),
        ("acceptable_fraction", acceptable_fraction, 1, "repair the file first"),
    )
    return decode_image(contents, channels)


def parse_single_example(
    serialized: Any,
    features: Mapping[str, Any],
    example_names: Any = None,
    name: str | None = None,
) -> dict[str, Any]:
    """The features of one example of a TFRecord file.

    Raises:
        ValueError: There are several, which `parse_example` takes.
    """
    if type(serialized) is Record:
        return dict(zip(features, parsed(serialized, *_of_records(features)), strict=True))
    note_call()
    return parse_one(one_byte_string("serialized", serialized), features)


def _of_records(features: Mapping[str, Any]) -> tuple[Callable[[Any], list[np.ndarray]], int]:
    """A parser of records into one array for each feature, and how many these are."""

    def parse(records: Sequence[Any]) -> list[np.ndarray]:
        rows = [one_byte_string("serialized", record) for record in records]
        return list(parse_examples(rows, features).values())

    return parse, len(features)


def parse_example(
    serialized: Any,
    features: Mapping[str, Any],
    example_names: Any = None,
    name: str | None = None,
) -> dict[str, Any]:
    """The features of examples: for each an array that begins with the shape of `serialized`.

    Args:
        serialized: A sequence of byte strings, or one.
        features: Names and forms of the features.
        example_names: Has no effect.

    Raises:
        ValueError: Examples have different numbers of values, as a `VarLenFeature` may.
    """
    rows, shape = _byte_strings("serialized", serialized)
    if rows and not any(isinstance(form, VarLenFeature) for form in features.values()):
        columns = parse_examples(rows, features)
        return {key: array.reshape(*shape, *array.shape[1:]) for key, array in columns.items()}
    examples = [parse_one(row, features) for row in rows]
    found = {}
    for key in features:
        values = [example[key] for example in examples]
        lengths = sorted({value.shape for value in values})
        if len(lengths) != 1:
            raise ValueError(
                f"parse_example: feature {key!r} must have one shape in all examples of a batch, "
                f"they have {lengths}; parse in Dataset.map before padded_batch"
            )
        found[key] = np.stack(values).reshape(*shape, *lengths[0])
    return found


def matching_files(pattern: Any, name: str | None = None) -> list[str]:
    """The files that match one pattern or several."""
    from . import gfile

    return gfile.glob(texts("pattern", pattern).reshape(-1).tolist())


__all__ = ["FixedLenFeature", "VarLenFeature"]
