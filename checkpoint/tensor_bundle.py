"""A reader of TensorFlow's checkpoints: `NAME.index` with `NAME.data-00000-of-00001` and its like.

The format is TensorFlow's tensor bundle. The index is a sorted table in LevelDB's form
(https://github.com/google/leveldb/blob/main/doc/table_format.md): blocks of entries whose keys
share prefixes, then a footer. The empty key holds a `BundleHeaderProto`, each other key a
`BundleEntryProto` (tensorflow/core/protobuf/tensor_bundle.proto): dtype, shape, and the place of
the bytes in a data file with their CRC-32C. The entry of a partitioned variable lists its slices
instead; each has an entry of its own, whose key encodes the name and the bounds. An object-based
checkpoint (`tf.train.Checkpoint`, Keras's `save_weights`) has keys such as
`layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE`, and the tensor
`_CHECKPOINTABLE_OBJECT_GRAPH` tells the variables' own names.

Nothing of TensorFlow is needed, and nothing is returned whose checksum has not been compared.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

import numpy as np

from ..formats import protobuf
from ..formats.crc32c import crc32c, mask
from .errors import CheckpointError

_INDEX = ".index"
_MAGIC: Final = 0xDB4775248B80FB57
_FOOTER_BYTES: Final = 48
_MAX_INDEX_BYTES: Final = 1 << 30
_BLOCK_TRAILER: Final = struct.Struct("<BI")
_WORD32: Final = struct.Struct("<I")
_STRING: Final = 7
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# DataType of tensorflow/core/framework/types.proto.
_DTYPES: Final = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "u1",
    5: "<i2",
    6: "i1",
    8: "<c8",
    9: "<i8",
    10: "?",
    17: "<u2",
    18: "<c16",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
_BFLOAT16: Final = 14

Bounds = tuple[tuple[int, int], ...]


class _Entry(NamedTuple):
    """A `BundleEntryProto`; `slices` holds (start, length) along each axis, -1 for a whole axis."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: tuple[Bounds, ...] = ()


@final
class TensorBundle:
    """A TensorFlow checkpoint, opened for reading by `open_tensor_bundle`.

    Tensors are read and verified when asked for. A variable of an object-based checkpoint goes by
    its own name (`dense/kernel`) where the checkpoint tells one that no other variable has;
    TensorFlow's key (`layer/kernel/.ATTRIBUTES/VARIABLE_VALUE`) works as well.
    """

    def __init__(self, prefix: str, entries: Mapping[bytes, _Entry], num_shards: int) -> None:
        self._prefix = prefix
        self._entries = entries
        self._num_shards = num_shards
        tensors = {
            key.decode(): entry for key, entry in entries.items() if not key.startswith(b"\0")
        }
        self._tensors = {name: one for name, one in tensors.items() if name != _OBJECT_GRAPH}
        self._keys = self._keys_of_variables() if _OBJECT_GRAPH in tensors else {}

    @property
    def path(self) -> str:
        """The checkpoint's prefix: the path without `.index`."""
        return self._prefix

    @property
    def step(self) -> int:
        """The global step after which it was saved; 0 if it holds none."""
        for name in ("global_step", "optimizer/_iterations" + _VALUE_SUFFIX):
            if name in self._tensors and not self._tensors[name].shape:
                return int(self.read(name))
        return 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        named = {key: name for name, key in self._keys.items()}
        return tuple(sorted(named.get(key, key) for key in self._tensors))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to shape, without reading any tensor."""
        return {name: self._entry(name).shape for name in self.names}

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Tensor name to dtype, without reading any tensor; that of text is `object`."""
        return {name: self._dtype(name, self._entry(name)) for name in self.names}

    @property
    def size_bytes(self) -> int:
        """The size of its data files together."""
        return sum(os.path.getsize(self._shard(shard)) for shard in range(self._num_shards))

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor.

        Raises:
            CheckpointError: There is no such tensor.
        """
        return self._entry(name).shape

    def read(self, name: str) -> np.ndarray:
        """One tensor as a new, writable array; text is an object array of `bytes`.

        Raises:
            CheckpointError: There is no such tensor, or it is damaged.
        """
        entry = self._entry(name)
        if not entry.slices:
            return self._read_entry(name, entry)
        whole = np.empty(entry.shape, self._dtype(name, entry))
        num_read = 0
        for bounds in entry.slices:
            place = _region(name, bounds, entry.shape)
            part = self._entries.get(_slice_key(self._keys.get(name, name), bounds))
            if part is None or part.shape != tuple(axis.stop - axis.start for axis in place):
                raise CheckpointError(
                    f"'{self._prefix}' has no slice {bounds} of tensor '{name}': the checkpoint "
                    "is damaged"
                )
            whole[place] = self._read_entry(name, part)
            num_read += math.prod(part.shape)
        if num_read != whole.size:
            raise CheckpointError(
                f"the slices of tensor '{name}' in '{self._prefix}' hold {num_read} of "
                f"{whole.size} values: the checkpoint is damaged"
            )
        return whole

    def arrays(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Tensors by name; those of `names`, or all.

        Raises:
            CheckpointError: One of them is damaged, or not there.
        """
        return {name: self.read(name) for name in (self.names if names is None else names)}

    def verify(self) -> None:
        """Read every tensor and compare its checksum.

        Raises:
            CheckpointError: Something is damaged.
        """
        for name in self.names:
            self.read(name)

    def _entry(self, name: str) -> _Entry:
        entry = self._tensors.get(self._keys.get(name, name))
        if entry is None:
            listed = ", ".join(f"'{other}'" for other in self.names[:3]) or "nothing"
            raise CheckpointError(
                f"checkpoint '{self._prefix}' has no tensor '{name}'; among its "
                f"{len(self._tensors)} are {listed}"
            )
        return entry

    def _dtype(self, name: str, entry: _Entry) -> np.dtype[Any]:
        if entry.dtype == _STRING:
            return np.dtype(object)
        if entry.dtype == _BFLOAT16:
            try:
                import ml_dtypes
            except ImportError:
                raise CheckpointError(
                    f"tensor '{name}' of '{self._prefix}' is bfloat16: pip install ml_dtypes"
                ) from None
            return np.dtype(ml_dtypes.bfloat16)
        if entry.dtype not in _DTYPES:
            raise CheckpointError(
                f"tensor '{name}' of '{self._prefix}' has TensorFlow's dtype number "
                f"{entry.dtype}, which NumPy has no counterpart of"
            )
        return np.dtype(_DTYPES[entry.dtype])

    def _shard(self, shard: int) -> str:
        return f"{self._prefix}.data-{shard:05}-of-{self._num_shards:05}"

    def _read_entry(self, name: str, entry: _Entry) -> np.ndarray:
        dtype, count = self._dtype(name, entry), math.prod(entry.shape)
        if entry.dtype != _STRING and entry.size != count * dtype.itemsize:
            raise CheckpointError(
                f"tensor '{name}' of '{self._prefix}' has shape {entry.shape} and dtype {dtype}, "
                f"but {entry.size} bytes: the index is damaged"
            )
        data = self._bytes(name, entry)
        if entry.dtype == _STRING:
            values = np.empty(count, object)
            values[:] = self._strings(name, memoryview(data), count, entry.crc)
            return values.reshape(entry.shape)
        if mask(crc32c(data)) != entry.crc:
            raise self._damaged(name)
        return np.frombuffer(data, dtype).reshape(entry.shape)

    def _bytes(self, name: str, entry: _Entry) -> bytearray:
        path = self._shard(entry.shard)
        try:
            with open(path, "rb") as file:
                # A damaged size must not allocate more than there is.
                if entry.offset + entry.size > os.fstat(file.fileno()).st_size:
                    raise CheckpointError(
                        f"'{path}' is cut off: tensor '{name}' ends at byte "
                        f"{entry.offset + entry.size}"
                    )
                data = bytearray(entry.size)
                file.seek(entry.offset)
                if file.readinto(data) != entry.size:
                    raise self._damaged(name)
                return data
        except OSError as error:
            raise CheckpointError(f"cannot read '{path}': {error.strerror or error}") from error

    def _strings(self, name: str, data: memoryview, count: int, crc: int) -> list[bytes]:
        """Text: the lengths as varints, their checksum, and then the bytes one after the other.

        The checksums are of the lengths as 32-bit numbers, not of the varints.
        """
        lengths, position = [], 0
        try:
            for _ in range(count):
                length, position = protobuf.varint(data, position)
                lengths.append(length)
        except ValueError as error:
            raise self._damaged(name) from error
        end = position + _WORD32.size
        if max(lengths, default=0) >> 32 or end + sum(lengths) != len(data):
            raise self._damaged(name)
        plain = np.array(lengths, "<u4").tobytes()
        checksum = bytes(data[position:end])
        if (
            _WORD32.unpack(checksum)[0] != mask(crc32c(plain))
            or mask(crc32c(plain + checksum + bytes(data[end:]))) != crc
        ):
            raise self._damaged(name)
        bounds = np.cumsum([end, *lengths])
        return [
            bytes(data[start:stop]) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)
        ]

    def _damaged(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"tensor '{name}' of '{self._prefix}' is damaged: its checksum does not match"
        )

    def _keys_of_variables(self) -> dict[str, str]:
        """Own name to key, of variables whose name is theirs alone."""
        graph = self._read_entry(_OBJECT_GRAPH, self._entries[_OBJECT_GRAPH.encode()])
        keys: dict[str, str] = {}
        shared = set(self._tensors)
        for name, key in _named_tensors(self._prefix, memoryview(graph[()])):
            if name in keys and keys[name] != key:
                shared.add(name)
            if key in self._tensors:
                keys[name] = key
        return {name: key for name, key in keys.items() if name not in shared}


def is_tensor_bundle(path: str) -> bool:
    """Whether there is a TensorFlow checkpoint of this prefix."""
    return os.path.isfile(path + _INDEX)


def open_tensor_bundle(path: str | os.PathLike[str]) -> TensorBundle:
    """Open a TensorFlow checkpoint.

    Args:
        path: The prefix, such as `runs/model.ckpt-1000`; `.index` behind it may be given too.

    Raises:
        CheckpointError: There is none, or its index is damaged.
    """
    prefix = os.fspath(path).removesuffix(_INDEX)
    index = prefix + _INDEX
    try:
        size = os.path.getsize(index)
        if not os.path.isfile(index) or size > _MAX_INDEX_BYTES:
            raise CheckpointError(
                f"'{index}' is no index of a TensorFlow checkpoint: it must be a file of at most "
                f"{_MAX_INDEX_BYTES} bytes, it has {size}"
            )
        with open(index, "rb") as file:
            data = memoryview(file.read(_MAX_INDEX_BYTES))
    except OSError as error:
        raise CheckpointError(f"cannot read '{index}': {error.strerror or error}") from error
    try:
        table = dict(_table(data))
        num_shards = _header(table.pop(b"", b""))
        entries = {key: _parsed_entry(memoryview(value)) for key, value in table.items()}
        for entry in entries.values():
            if not 0 <= entry.shard < num_shards or min(entry.offset, entry.size, *entry.shape) < 0:
                raise ValueError(f"an entry is out of range: {entry}")
        return TensorBundle(prefix, entries, num_shards)
    except (ValueError, struct.error, TypeError) as error:
        raise CheckpointError(f"'{index}' is damaged: {error}") from error


def latest_tensor_bundle(directory: str) -> str | None:
    """The prefix of a directory's newest TensorFlow checkpoint: its state file's, or None."""
    try:
        with open(os.path.join(directory, "checkpoint"), encoding="utf-8") as file:
            found = re.search(r'^model_checkpoint_path: "(.*)"$', file.read(1 << 20), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    if found is None:
        return None
    prefix = os.path.join(directory, found[1])
    return prefix if is_tensor_bundle(prefix) else None


def _table(data: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in order."""
    if len(data) < _FOOTER_BYTES:
        raise ValueError(f"it has {len(data)} bytes, a footer alone takes {_FOOTER_BYTES}")
    footer = data[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end as a table does")
    _, position = _handle(footer, 0)
    (offset, size), _ = _handle(footer, position)
    for _, value in _entries_of(_block(data, offset, size)):
        (offset, size), _ = _handle(memoryview(value), 0)
        yield from _entries_of(_block(data, offset, size))


def _handle(data: memoryview, position: int) -> tuple[tuple[int, int], int]:
    """The (offset, size) of a block, and the position behind it."""
    offset, position = protobuf.varint(data, position)
    size, position = protobuf.varint(data, position)
    return (offset, size), position


def _block(data: memoryview, offset: int, size: int) -> memoryview:
    """A block's content, verified."""
    if offset + size + _BLOCK_TRAILER.size > len(data):
        raise ValueError("a block reaches beyond the end")
    compression, crc = _BLOCK_TRAILER.unpack_from(data, offset + size)
    # The checksum covers the byte that names the compression.
    if mask(crc32c(data[offset : offset + size + 1])) != crc:
        raise ValueError("the checksum of a block does not match")
    if compression:
        raise ValueError(f"a block is compressed (kind {compression}), which is not supported")
    return data[offset : offset + size]


def _entries_of(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """A block's keys and values; each key repeats the first bytes of the one before."""
    num_restarts = _WORD32.unpack_from(block, len(block) - _WORD32.size)[0]
    end = len(block) - _WORD32.size * (1 + num_restarts)
    key, position = b"", 0
    while position < end:
        num_shared, position = protobuf.varint(block, position)
        num_own, position = protobuf.varint(block, position)
        num_value, position = protobuf.varint(block, position)
        if num_shared > len(key) or position + num_own + num_value > end:
            raise ValueError("an entry reaches beyond its block")
        key = key[:num_shared] + bytes(block[position : position + num_own])
        position += num_own
        yield key, bytes(block[position : position + num_value])
        position += num_value


def _header(value: bytes) -> int:
    """The number of data files that a `BundleHeaderProto` names."""
    found = {number: content for number, _, content in protobuf.fields(memoryview(value))}
    if found.get(2, 0) != 0:
        raise ValueError("its numbers are big-endian, which is not supported")
    num_shards = found.get(1, 0)
    if not isinstance(num_shards, int) or not 1 <= num_shards <= 99_999:
        raise ValueError(f"it names {num_shards!r} data files")
    return num_shards


def _parsed_entry(message: memoryview) -> _Entry:
    """A `BundleEntryProto`."""
    numbers = {1: "dtype", 3: "shard", 4: "offset", 5: "size"}
    values: dict[str, Any] = {}
    slices = []
    for number, _, value in protobuf.fields(message):
        if number in numbers and isinstance(value, int):
            values[numbers[number]] = protobuf.signed(value)
        elif isinstance(value, int):
            continue
        elif number == 2:
            values["shape"] = _parsed_shape(value)
        elif number == 6:
            values["crc"] = _WORD32.unpack(value)[0]
        elif number == 7:
            slices.append(_parsed_slice(value))
    return _Entry(**values, slices=tuple(slices))


def _parsed_shape(message: memoryview) -> tuple[int, ...]:
    """A `TensorShapeProto`; an axis without a size has 0."""
    return tuple(
        next((protobuf.signed(size) for field, _, size in protobuf.fields(axis) if field == 1), 0)
        for number, _, axis in protobuf.fields(message)
        if number == 2
    )


def _parsed_slice(message: memoryview) -> Bounds:
    """A `TensorSliceProto`."""
    bounds = []
    for number, _, extent in protobuf.fields(message):
        if number == 1:
            found = {field: protobuf.signed(value) for field, _, value in protobuf.fields(extent)}
            bounds.append((found.get(1, 0), found.get(2, -1)))
    return tuple(bounds)


def _region(name: str, bounds: Bounds, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The place of a slice in its tensor."""
    if len(bounds) != len(shape):
        raise CheckpointError(f"a slice of tensor '{name}' has {len(bounds)} of {len(shape)} axes")
    region = []
    for (start, length), size in zip(bounds, shape, strict=True):
        stop = size if length < 0 else start + length
        if not 0 <= start <= stop <= size:
            raise CheckpointError(f"slice {bounds} of tensor '{name}' does not fit shape {shape}")
        region.append(slice(start, stop))
    return tuple(region)


def _slice_key(name: str, bounds: Bounds) -> bytes:
    """The key of a slice: name and bounds in an encoding whose order is that of the values.

    The encoding is that of tensorflow/core/lib/strings/ordered_code: 0, the name, the number of
    axes, and for each axis its start and its length.
    """
    escaped = name.encode().replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0")
    key = _ordered_natural(0) + escaped + b"\0\1" + _ordered_natural(len(bounds))
    return key + b"".join(_ordered_integer(number) for pair in bounds for number in pair)


def _ordered_natural(number: int) -> bytes:
    """A number of 0 or more: how many bytes follow, and they, the highest first."""
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _ordered_integer(number: int) -> bytes:
    """A signed number; the count of leading ones of its first bits tells how many bytes it takes.

    A negative number is the complement of the encoding of `~number`.
    """
    magnitude = ~number if number < 0 else number
    size = max(1, magnitude.bit_length() // 7 + 1)
    lead = ((1 << size) - 1) << (8 * size - size)
    encoded = magnitude | lead
    if number < 0:
        encoded = ~encoded & ((1 << (8 * size)) - 1)
    return encoded.to_bytes(size, "big")


def _named_tensors(prefix: str, graph: memoryview) -> Iterator[tuple[str, str]]:
    """(full_name, checkpoint_key) of each tensor of a `TrackableObjectGraph`."""
    try:
        for number, _, node in protobuf.fields(graph):
            if number != 1:
                continue
            for field, _, attribute in protobuf.fields(node):
                if field != 2:
                    continue
                texts = {
                    place: bytes(text).decode()
                    for place, _, text in protobuf.fields(attribute)
                    if place in (2, 3)
                }
                if texts.get(2) and texts.get(3):
                    yield texts[2], texts[3]
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the object graph of '{prefix}' is damaged: {error}") from error
