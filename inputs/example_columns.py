"""Many tf.train.Example messages at once, one array for each feature.

Messages are walked by the layout in which all writers put them: names before lists, packed numbers,
nothing between. What has another layout, or is damaged, is read by `parse_example`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .example import (
    FixedLenFeature,
    VarLenFeature,
    array_of,
    list_values,
    packed_varints,
    parse_example,
)

_FIRST, _SECOND = 1 << 3 | 2, 2 << 3 | 2
_FLOAT_LIST, _INT64_LIST = 2, 3
_LISTS = {1 << 3 | 2, _FLOAT_LIST << 3 | 2, _INT64_LIST << 3 | 2}

Place = tuple[int, bytes]
"""The kind of a list of values, and the message that holds them."""


Layout = tuple[str, int, int]
"""Of an entry with a certain beginning: the feature, the kind of its list, and the whole size."""


class _OtherLayoutError(Exception):
    """A message is not laid out as usual."""


def parse_examples(
    records: Sequence[bytes], features: Mapping[str, FixedLenFeature | VarLenFeature]
) -> dict[str, np.ndarray]:
    """The wanted features of several Examples, each stacked along a new leading axis.

    Raises:
        ValueError: A message is damaged, a feature is missing, its values do not fit its form, or
            they have other shapes in other records.
    """
    try:
        names = {name.encode(): name for name in features}
        layouts: dict[bytes, Layout] = {}
        found = [_places(record, names, layouts) for record in records]
        integers = _integer_columns(features, found)
        return {
            name: integers[name] if name in integers else _column(name, form, found)
            for name, form in features.items()
        }
    except (_OtherLayoutError, IndexError, ValueError):
        # Record by record the error is that of the first damaged one.
        rows = [parse_example(record, features) for record in records]
    return {name: np.stack([row[name] for row in rows]) for name in features}


def _places(
    record: bytes, names: Mapping[bytes, str], layouts: dict[bytes, Layout]
) -> dict[str, Place]:
    """Where in a message the values of each wanted feature are.

    `layouts` remembers the beginnings of short entries, name and sizes, which come in each record.
    """
    found: dict[str, Place] = {}
    end = len(record)
    if not end:
        return found
    position, stop = _inside(record, 0, _FIRST)
    if stop != end:
        raise _OtherLayoutError
    while position < end:
        values_start = position + 8 + record[position + 3]
        beginning = record[position:values_start]
        layout = layouts.get(beginning)
        if layout is not None:
            name, kind, size = layout
            position += size
            found[name] = kind, record[values_start:position]
            continue
        if record[position] != _FIRST:
            raise _OtherLayoutError
        size = record[position + 1]
        if size < 0x80:
            # Most entries of the map are short, so that each size in them takes one byte.
            position += 2
            stop = position + size
            start = position + 2 + record[position + 1]
            key = record[position + 2 : start]
            left = stop - start
            tag = record[start + 2]
            if (
                record[position] != _FIRST
                or record[start] != _SECOND
                or record[start + 1] != left - 2
                or record[start + 3] != left - 4
            ):
                raise _OtherLayoutError
            start += 4
        else:
            position, stop = _inside(record, position, _FIRST)
            start, name_stop = _inside(record, position, _FIRST)
            key = record[start:name_stop]
            start, feature_stop = _inside(record, name_stop, _SECOND)
            tag = record[start]
            start, list_stop = _inside(record, start, tag)
            if not feature_stop == list_stop == stop:
                raise _OtherLayoutError
        if tag not in _LISTS or start > stop or stop > end:
            raise _OtherLayoutError
        place = tag >> 3, record[start:stop]
        wanted = names.get(key)
        if wanted is None:
            key.decode()
            list_values(place[0], memoryview(place[1]))  # it may be damaged
        else:
            found[wanted] = place
            if size < 0x80:
                layouts[beginning] = wanted, place[0], size + 2
        position = stop
    if position != end:
        raise _OtherLayoutError
    return found


def _inside(record: bytes, position: int, tag: int) -> tuple[int, int]:
    """Where the message begins that a field of this tag holds, and where it ends."""
    if record[position] != tag:
        raise _OtherLayoutError
    size = record[position + 1]
    position += 2
    if size >= 0x80:
        size &= 0x7F
        for shift in range(7, 35, 7):
            byte = record[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise _OtherLayoutError
    return position, position + size


def _column(
    name: str, form: FixedLenFeature | VarLenFeature, found: Sequence[Mapping[str, Place]]
) -> np.ndarray:
    places = [places.get(name) for places in found]
    kinds = {None if place is None else place[0] for place in places}
    dtype = np.dtype(form.dtype)
    if isinstance(form, FixedLenFeature) and len(kinds) == 1:
        kind, count = kinds.pop(), math.prod(form.shape)
        shape = (len(places), *form.shape)
        messages = [place[1] for place in places if place is not None]
        if count and kind == _FLOAT_LIST and dtype.kind == "f":
            return _floats(messages, count).astype(dtype).reshape(shape)
    return np.stack([array_of(name, form, _values(place)) for place in places])


def _values(place: Place | None) -> tuple[int, Any] | None:
    return None if place is None else (place[0], list_values(place[0], memoryview(place[1])))


def _packed(messages: Sequence[bytes]) -> list[bytes]:
    """The packed numbers in lists, each of which has one field."""
    short = [m[2:] for m in messages if m[:1] == b"\n" and m[1] == len(m) - 2 < 0x80]
    if len(short) == len(messages):
        return short
    places = [(message, *_inside(message, 0, _FIRST)) for message in messages]
    if any(stop != len(message) for message, _, stop in places):
        raise _OtherLayoutError
    return [message[start:] for message, start, _ in places]


def _floats(messages: Sequence[bytes], count: int) -> np.ndarray:
    pieces = _packed(messages)
    if {*map(len, pieces)} != {4 * count}:
        raise _OtherLayoutError
    return np.frombuffer(b"".join(pieces), "<f4")


def _integer_columns(
    features: Mapping[str, FixedLenFeature | VarLenFeature], found: Sequence[Mapping[str, Place]]
) -> dict[str, np.ndarray]:
    """The features that are integers in all records: their varints are decoded together."""
    messages: list[bytes] = []
    counts: list[int] = []
    forms: dict[str, FixedLenFeature] = {}
    for name, form in features.items():
        if not isinstance(form, FixedLenFeature) or np.dtype(form.dtype).kind not in "iufb":
            continue
        own = [p[1] for places in found if (p := places.get(name)) and p[0] == _INT64_LIST]
        count = math.prod(form.shape)
        if count and len(own) == len(found):
            forms[name] = form
            messages += own
            counts += [count] * len(own)
    pieces = _packed(messages)
    data = b"".join(pieces)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) < 0x80)
    stops = np.cumsum(counts, dtype=np.int64)
    borders = np.cumsum([len(piece) for piece in pieces], dtype=np.int64) - 1
    if len(ends) != sum(counts) or not np.array_equal(ends[stops - 1], borders):
        raise _OtherLayoutError
    numbers = packed_varints(memoryview(data))
    columns, start = {}, 0
    for name, form in forms.items():
        stop = start + len(found) * math.prod(form.shape)
        column = numbers[start:stop].astype(form.dtype)
        columns[name], start = column.reshape(len(found), *form.shape), stop
    return columns
