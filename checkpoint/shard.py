"""One shard: a safetensors file, written at once and read by the byte range.

The form: eight bytes with the length of the header, the header (JSON, from key to dtype, shape and
place), then the bytes of all arrays. See https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from .errors import CheckpointError
from .manifest import BLOCK_BYTES, Manifest, SliceEntry, TensorEntry
from .places import store_of
from .storage import OpenFile

MAX_HEADER_BYTES: Final = 100_000_000  # as in the safetensors library
_LENGTH_BYTES = 8
_DTYPES = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"} | {
    f"{letter}{bits}": f"{kind}{bits}"
    for letter, kind in (("I", "int"), ("U", "uint"))
    for bits in (8, 16, 32, 64)
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Place:
    """What a header says of one array."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True)
class Header:
    """A shard's header: the place of each array, and the CRC-32 of its bytes."""

    places: dict[str, Place]
    crc32: int


def read_header(path: str) -> Header:
    """Reads the header alone, and checks that the arrays fill the file exactly."""
    storage = store_of(path)
    size_bytes = storage.size(path)
    with storage.opened(path) as file:
        start = _read_bytes(file, min(_LENGTH_BYTES, size_bytes), 0)
        num_bytes = int.from_bytes(start, "little")
        data_bytes = size_bytes - _LENGTH_BYTES - num_bytes
        if len(start) < _LENGTH_BYTES or data_bytes < 0:
            raise ValueError(f"it says that its header has {num_bytes} bytes, and is shorter")
        if num_bytes > MAX_HEADER_BYTES:
            raise ValueError(
                f"its header has {num_bytes:,} bytes and may have at most {MAX_HEADER_BYTES:,}"
            )
        text = _read_bytes(file, num_bytes, _LENGTH_BYTES)
    places = _parse_header(text, _LENGTH_BYTES + num_bytes)
    found = sum(_num_bytes(place) for place in places.values())
    if found != data_bytes:
        raise ValueError(f"it has {data_bytes} bytes of arrays and its header lists {found}")
    return Header(places, zlib.crc32(text, zlib.crc32(start)))


def _parse_header(text: bytes, data_start: int) -> dict[str, Place]:
    try:
        content = json.loads(text)
        content.pop("__metadata__", None)
        return {key: _parse_place(value, data_start) for key, value in content.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({type(error).__name__}: {error})") from error


def _parse_place(value: dict, data_start: int) -> Place:
    shape, (begin, end) = tuple(value["shape"]), value["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError(f"odd numbers in {value}")
    place = Place(_DTYPES[value["dtype"]], shape, data_start + begin)
    if _num_bytes(place) != end - begin:
        raise ValueError(f"{end - begin} bytes for {value}")
    return place


def _num_bytes(place: Place) -> int:
    return math.prod(place.shape) * np.dtype(place.dtype).itemsize


def write_shard_file(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a new shard, which is the caller's to flush; arrays are row-major, little-endian."""
    # The largest elements come first, and the header is filled up to eight bytes: so each array
    # begins at a multiple of its elements' size, and may be mapped into memory.
    keys = sorted(arrays, key=lambda key: (-arrays[key].itemsize, key))
    header, end = {}, 0
    for key in keys:
        array = arrays[key]
        begin, end = end, end + array.nbytes
        name = _NAMES[array.dtype.name]
        header[key] = {"dtype": name, "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the header of shard '{path}' would have {len(text):,} bytes and may have at most "
            f"{MAX_HEADER_BYTES:,}: save fewer tensors, or with shorter names"
        )
    try:
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
            for key in keys:
                file.write(arrays[key].reshape(-1).view(np.uint8).data)
    except OSError as error:
        error.filename = path  # of a write that fails the system names no file
        raise


def block_crcs(array: np.ndarray) -> str:
    """The CRC-32 of each block of a row-major array, as the manifest holds them."""
    return " ".join(f"{crc:08x}" for crc in _crcs(array.reshape(-1).view(np.uint8)))


def _crcs(data: np.ndarray) -> list[int]:
    starts = range(0, len(data), BLOCK_BYTES)
    return [zlib.crc32(data[start : start + BLOCK_BYTES].data) for start in starts]


def check_shard_size(directory: str, shard: str, manifest: Manifest) -> None:
    """Refuses a shard that is missing or of another size than the manifest says."""
    path = os.path.join(directory, shard)
    with damage_named(path):
        found, expected = store_of(path).size(path), manifest.shards[shard].size_bytes
        if found != expected:
            raise ValueError(f"it has {found} bytes and the manifest says {expected}")


def check_shard_headers(directory: str, manifest: Manifest) -> None:
    """Refuses shards whose headers are damaged or list other arrays than the manifest."""
    for shard, pieces in manifest.pieces_by_shard().items():
        _check_shard_header(directory, shard, manifest, pieces)


def _check_shard_header(
    directory: str,
    shard: str,
    manifest: Manifest,
    pieces: Mapping[str, tuple[TensorEntry, SliceEntry]],
) -> None:
    path = os.path.join(directory, shard)
    with damage_named(path):
        header = read_header(path)
        if header.crc32 != manifest.shards[shard].header_crc32:
            raise ValueError("its header does not fit the checksum in the manifest")
    expected = {
        key: Place(tensor.dtype, part.shape, part.offset_bytes)
        for key, (tensor, part) in pieces.items()
    }
    odd = sorted(
        key
        for key in header.places.keys() | expected.keys()
        if header.places.get(key) != expected.get(key)
    )
    if odd:
        raise CheckpointError(
            f"shard '{path}' and the manifest contradict each other: tensor {odd[0]!r} is "
            f"{_described(header.places.get(odd[0]))} in the shard and "
            f"{_described(expected.get(odd[0]))} in the manifest"
        )


def _described(place: Place | None) -> str:
    if place is None:
        return "not listed"
    return f"{place.dtype} of shape {place.shape} at byte {place.offset_bytes}"


def read_rows(
    path: str, name: str, tensor: TensorEntry, part: SliceEntry, rows: slice
) -> np.ndarray:
    """Reads rows of a slice (along its first axis), verified; reads no more than their blocks."""
    whole_bytes = tensor.slice_bytes(part)
    num_rows = part.shape[0] if part.shape else 1
    row_bytes = whole_bytes // num_rows if num_rows else 0
    # Whole blocks, since each has one checksum; what was not asked for is cut off at the end.
    first = rows.start * row_bytes // BLOCK_BYTES
    stop = -(-rows.stop * row_bytes // BLOCK_BYTES)
    begin, end = first * BLOCK_BYTES, min(stop * BLOCK_BYTES, whole_bytes)
    data, expected = np.empty(max(0, end - begin), np.uint8), part.block_crcs[first:stop]
    with damage_named(path), store_of(path).opened(path) as file:
        for low in range(0, len(data), file.request_bytes):
            view = data[low : low + file.request_bytes]
            _read_into(file, view, part.offset_bytes + begin + low)
            found = _crcs(view)
            if found != expected[low // BLOCK_BYTES :][: len(found)]:
                raise ValueError(
                    f"the bytes of tensor {name!r} do not fit its checksum in the manifest"
                )
    wanted = data[rows.start * row_bytes - begin : rows.stop * row_bytes - begin]
    shape = (rows.stop - rows.start, *part.shape[1:]) if part.shape else ()
    return wanted.view(np.dtype(tensor.dtype).newbyteorder("<")).reshape(shape)


def _read_bytes(file: OpenFile, num_bytes: int, offset: int) -> bytes:
    data = np.empty(num_bytes, np.uint8)
    _read_into(file, data, offset)
    return data.tobytes()


def _read_into(file: OpenFile, view: np.ndarray, offset: int) -> None:
    done = 0
    while done < len(view):
        count = file.read_into(view[done:], offset + done)
        if count == 0:
            raise ValueError(f"it ends at byte {offset + done}, before its arrays do")
        done += count


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turns what can go wrong with a file into a CheckpointError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(f"shard '{path}' is missing") from error
    except OSError as error:
        raise CheckpointError(f"cannot read shard '{path}': {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"shard '{path}' is damaged: {error}") from error
