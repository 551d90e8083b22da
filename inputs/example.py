"""Parsing and making tf.train.Example messages, the usual content of TFRecord files.

An Example maps names to features, each a list of bytes, of floats or of 64-bit integers
(tensorflow/core/example/feature.proto). It is a message of Protocol Buffers: a sequence of fields,
each a tag (field number and wire type as a varint) and a value
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ..formats.protobuf import (
    MAX_VARINT_BYTES,
    VARINT,
    WireValue,
    bytes_field,
    encoded_varint,
    fields,
    signed,
)
from .values import as_text

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_KINDS = {_BYTES_LIST: "bytes", _FLOAT_LIST: "floats", _INT64_LIST: "integers"}

Values = tuple[int, Any]
"""Which of the three kinds of list, and the values."""


@final
@dataclass(frozen=True)
class FixedLenFeature:
    """A feature whose number of values is always the same.

    Args:
        shape: of the array that the values become.
        dtype: a dtype of numbers, or `str` for text. Of a feature of bytes with a dtype of
            numbers, the bytes are the array itself, as `tobytes` gives them (little-endian).
        default_value: stands for a feature that is missing, one value or an array of them that
            can be broadcast to the shape; without one that is an error.
    """

    shape: tuple[int, ...]
    dtype: Any
    default_value: Any = None


@final
@dataclass(frozen=True)
class VarLenFeature:
    """A feature of any number of values, which become an array of one axis.

    Args:
        dtype: as in `FixedLenFeature`. A missing feature has no values.
    """

    dtype: Any


def parse_example(
    record: bytes | np.ndarray, features: Mapping[str, FixedLenFeature | VarLenFeature]
) -> dict[str, Any]:
    """The wanted features of an Example.

    Args:
        record: the message, as bytes or a uint8 array (an element of `tf_records`).
        features: names and forms of the features; others are passed over.

    Returns:
        A dict in the order of `features`, of NumPy arrays.

    Raises:
        ValueError: the message is damaged, a feature is missing, or its values do not fit its form.
    """
    data = record.tobytes() if isinstance(record, np.ndarray) else record
    found = _features_of(memoryview(data))
    return {name: array_of(name, form, found.get(name)) for name, form in features.items()}


def encode_example(features: Mapping[str, Any]) -> bytes:
    """An Example with these features.

    Args:
        features: bytes, text or a list of them; or numbers (arrays of any shape, flattened):
            floats are stored in 32 bits, integers and truth values in 64.
    """
    entries = b""
    for name, value in features.items():
        entry = bytes_field(1, name.encode()) + bytes_field(2, _feature(name, value))
        entries += bytes_field(1, entry)
    return bytes_field(1, entries)


def _features_of(example: memoryview) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for features in _messages(example, 1):
        for entry in _messages(features, 1):
            name, values = _entry(entry)
            found[name] = values
    return found


def _entry(entry: memoryview) -> tuple[str, Values]:
    # Of a field that comes twice the last one counts.
    *_, name = [memoryview(b""), *_messages(entry, 1)]
    *_, feature = [memoryview(b""), *_messages(entry, 2)]
    values: Values = (0, [])
    for number, _, value in fields(feature):
        if number in _KINDS:
            values = number, list_values(number, _message(value))
    return bytes(name).decode(), values


def _messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """The fields of that number, which hold messages or text."""
    return (_message(value) for found, _, value in fields(message) if found == number)


def list_values(list_kind: int, message: memoryview) -> Any:
    """The values of a list, packed or not."""
    pieces: list[Any] = []
    for number, kind, value in fields(message):
        if number != 1:
            continue
        if list_kind == _BYTES_LIST:
            pieces.append(bytes(_message(value)))
        elif list_kind == _FLOAT_LIST:
            # One float alone has the same bytes as a packed list of one.
            pieces.append(np.frombuffer(_message(value), "<f4"))
        elif kind == VARINT:
            pieces.append(np.array([signed(int(value))], np.int64))
        else:
            pieces.append(packed_varints(_message(value)))
    if list_kind == _BYTES_LIST:
        return pieces
    empty = np.zeros(0, np.float32 if list_kind == _FLOAT_LIST else np.int64)
    return np.concatenate([empty, *pieces])


def _message(value: WireValue) -> memoryview:
    if isinstance(value, int):
        raise ValueError("the record is no tf.train.Example: a number stands for a message")
    return value


def array_of(name: str, form: FixedLenFeature | VarLenFeature, values: Values | None) -> Any:
    is_missing = values is None or len(values[1]) == 0
    if isinstance(form, VarLenFeature):
        if is_missing or values is None:
            return np.zeros(0, form.dtype)
        return _converted(name, form.dtype, values)
    if is_missing or values is None:
        if form.default_value is None and math.prod(form.shape) > 0:
            raise ValueError(f"feature {name!r} is missing and has no default_value")
        if form.default_value is None:
            return np.zeros(form.shape, form.dtype)
        return np.broadcast_to(np.asarray(form.default_value, form.dtype), form.shape).copy()
    array = _converted(name, form.dtype, values)
    if array.size != math.prod(form.shape):
        raise ValueError(
            f"feature {name!r} must have shape {form.shape}, the record has {array.size} values"
        )
    return array.reshape(form.shape)


def _converted(name: str, wanted: Any, values: Values) -> np.ndarray:
    list_kind, found = values
    dtype = np.dtype(wanted)
    if list_kind == _BYTES_LIST:
        if dtype.kind == "U":
            return np.array([as_text(text.decode()) for text in found])
        if dtype.kind in "iufb":
            return np.frombuffer(b"".join(found), dtype.newbyteorder("<")).astype(dtype)
    elif dtype.kind in "iufb" and not (list_kind == _FLOAT_LIST and dtype.kind in "iub"):
        return found.astype(dtype)
    raise ValueError(
        f"feature {name!r} is to be of dtype {dtype}, the record has {_KINDS[list_kind]}. Bytes "
        "become text (str) or the numbers that they hold (np.uint8, ...), and integers floats."
    )


def _feature(name: str, value: Any) -> bytes:
    items = [value] if isinstance(value, bytes | str) else value
    if isinstance(items, list) and items and isinstance(items[0], bytes | str):
        texts = [item.encode() if isinstance(item, str) else bytes(item) for item in items]
        return bytes_field(_BYTES_LIST, b"".join(bytes_field(1, t) for t in texts))
    array = np.ravel(np.asarray(items))
    if array.dtype.kind == "f":
        packed = array.astype("<f4").tobytes()
        return bytes_field(_FLOAT_LIST, bytes_field(1, packed))
    if array.dtype.kind in "iub":
        packed = b"".join(encoded_varint(int(number)) for number in array)
        return bytes_field(_INT64_LIST, bytes_field(1, packed))
    raise TypeError(
        f"feature {name!r} must be bytes, text or numbers, got {type(value).__name__} "
        f"({array.dtype})."
    )


def packed_varints(data: memoryview) -> NDArray[np.int64]:
    """The signed numbers of a packed field."""
    values = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(values < 0x80)
    if len(values) and (not len(ends) or ends[-1] != len(values) - 1):
        raise ValueError("a packed number is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    sizes = ends - starts + 1
    if len(sizes) and sizes.max() > MAX_VARINT_BYTES:
        raise ValueError(f"a packed number takes more than {MAX_VARINT_BYTES} bytes")
    numbers = np.zeros(len(ends), np.uint64)
    for index in range(int(sizes.max(initial=0))):
        long_enough = sizes > index
        bits = (values[starts[long_enough] + index] & 0x7F).astype(np.uint64)
        numbers[long_enough] |= bits << np.uint64(7 * index)
    return numbers.view(np.int64)
