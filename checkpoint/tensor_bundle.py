"""A reader of TensorFlow's checkpoints: `NAME.index` with `NAME.data-00000-of-00001` and its like.

The format is TensorFlow's tensor bundle. The index is a sorted table. Its empty key holds a
`BundleHeaderProto`, each other key a `BundleEntryProto`
(tensorflow/core/protobuf/tensor_bundle.proto): dtype, shape, and the place of the bytes in a data
file with their CRC-32C. The entry of a partitioned variable lists its slices instead; each has an
entry of its own, whose key encodes the name and the bounds. An object-based checkpoint
(`tf.train.Checkpoint`, Keras's `save_weights`) has keys such as
`layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE`, and the tensor
`_CHECKPOINTABLE_OBJECT_GRAPH` tells the variables' own names.

Nothing of TensorFlow is needed, and nothing is returned whose checksum has not been compared.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from ..formats import protobuf
from ..formats.crc32c import crc32c, mask
from ..formats.sorted_table import table_entries
from ..observe import open_own, read_own
from .bundle_entries import (
    Bounds,
    BundleEntry,
    named_tensors,
    num_data_files,
    parse_entry,
    slice_key,
)
from .errors import CheckpointError

_INDEX = ".index"
_MAX_INDEX_BYTES: Final = 1 << 30
_STATE_FILE = "checkpoint"
_MAX_STATE_BYTES: Final = 1 << 20
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
_UNKNOWN: Final = np.dtype("V1")


@final
class TensorBundle:
    """A TensorFlow checkpoint, opened for reading by `open_tensor_bundle`.

    Tensors are read and verified when asked for. A variable of an object-based checkpoint goes by
    its own name (`dense/kernel`) where the checkpoint tells one that no other variable has;
    TensorFlow's key (`layer/kernel/.ATTRIBUTES/VARIABLE_VALUE`) works as well.
    """

    def __init__(self, prefix: str, entries: Mapping[bytes, BundleEntry], num_shards: int) -> None:
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
        """Tensor name to dtype, without reading any tensor.

        That of text is `object`, and that of a kind of numbers which NumPy lacks is void.
        """
        return {name: _numpy_dtype(self._entry(name).dtype) for name in self.names}

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
        dtype = self._dtype(name, entry)
        if not entry.slices:
            return self._read_entry(name, entry)
        key = self._keys.get(name, name)
        parts = [(bounds, self._entries.get(slice_key(key, bounds))) for bounds in entry.slices]
        # Of what is in the file, so that a damaged shape allocates no more than there is.
        num_values = sum(math.prod(part.shape) for _, part in parts if part is not None)
        if num_values != math.prod(entry.shape):
            raise CheckpointError(
                f"the slices of tensor '{name}' in '{self._prefix}' have {num_values} values and "
                f"its shape is {entry.shape}: the checkpoint is damaged"
            )
        arrays = []
        for bounds, part in parts:
            place = _region(name, bounds, entry.shape)
            if part is None or part.shape != tuple(axis.stop - axis.start for axis in place):
                raise CheckpointError(
                    f"'{self._prefix}' has no slice {bounds} of tensor '{name}': the checkpoint "
                    "is damaged"
                )
            arrays.append((place, self._read_entry(name, part)))
        whole, is_read = np.empty(entry.shape, dtype), np.zeros(entry.shape, np.bool_)
        for place, array in arrays:
            whole[place], is_read[place] = array, True
        if not is_read.all():
            raise CheckpointError(
                f"the slices of tensor '{name}' in '{self._prefix}' overlap: the checkpoint is "
                "damaged"
            )
        return whole

    def _entry(self, name: str) -> BundleEntry:
        entry = self._tensors.get(self._keys.get(name, name))
        if entry is None:
            listed = ", ".join(f"'{other}'" for other in self.names[:3]) or "nothing"
            raise CheckpointError(
                f"checkpoint '{self._prefix}' has no tensor '{name}'; among its "
                f"{len(self._tensors)} are {listed}"
            )
        return entry

    def _dtype(self, name: str, entry: BundleEntry) -> np.dtype[Any]:
        """The dtype of an array that is read.

        Raises:
            CheckpointError: NumPy has none.
        """
        dtype = _numpy_dtype(entry.dtype)
        if dtype != _UNKNOWN:
            return dtype
        kind = f"is of dtype number {entry.dtype} of TensorFlow, which NumPy has no counterpart of"
        if entry.dtype == _BFLOAT16:
            kind = "is bfloat16: pip install ml_dtypes"
        raise CheckpointError(f"tensor '{name}' of '{self._prefix}' {kind}")

    def _shard(self, shard: int) -> str:
        return f"{self._prefix}.data-{shard:05}-of-{self._num_shards:05}"

    def _read_entry(self, name: str, entry: BundleEntry) -> np.ndarray:
        dtype, count = self._dtype(name, entry), math.prod(entry.shape)
        if entry.dtype != _STRING and entry.size != count * dtype.itemsize:
            raise CheckpointError(
                f"tensor '{name}' of '{self._prefix}' has shape {entry.shape} and dtype {dtype}, "
                f"but {entry.size} bytes: the index is damaged"
            )
        data = self._bytes(name, entry)
        if entry.dtype == _STRING:
            if count > len(data):  # the length of a text takes a byte at least
                raise self._damaged(name)
            values = np.empty(count, object)
            values[:] = self._strings(name, memoryview(data), count, entry.crc)
            return values.reshape(entry.shape)
        if mask(crc32c(data)) != entry.crc:
            raise self._damaged(name)
        return np.frombuffer(data, dtype).reshape(entry.shape)

    def _bytes(self, name: str, entry: BundleEntry) -> bytearray:
        path = self._shard(entry.shard)
        try:
            with open(open_own(path, os.O_RDONLY), "rb") as file:
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
        return [bytes(data[start:stop]) for start, stop in pairwise(bounds)]

    def _damaged(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"tensor '{name}' of '{self._prefix}' is damaged: its checksum does not match"
        )

    def _keys_of_variables(self) -> dict[str, str]:
        """Own name to key, of variables whose name is theirs alone."""
        entry = self._entries[_OBJECT_GRAPH.encode()]
        if entry.dtype != _STRING or entry.shape:
            raise ValueError("its object graph is no text")
        graph: bytes = self._read_entry(_OBJECT_GRAPH, entry).item()
        keys: dict[str, str] = {}
        shared = set(self._tensors)
        for name, key in named_tensors(memoryview(graph)):
            if name in keys and keys[name] != key:
                shared.add(name)
            if key in self._tensors:
                keys[name] = key
        return {name: key for name, key in keys.items() if name not in shared}


def is_tensor_bundle(path: str) -> bool:
    """Whether there is a TensorFlow checkpoint of this prefix."""
    return os.path.isfile(path.removesuffix(_INDEX) + _INDEX)


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
        data = memoryview(read_own(index, _MAX_INDEX_BYTES))
    except OSError as error:
        raise CheckpointError(f"cannot read '{index}': {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"'{index}' is no index of a checkpoint: {error}") from error
    try:
        table = dict(table_entries(data))
        num_shards = num_data_files(table.pop(b"", b""))
        entries = {key: parse_entry(memoryview(value)) for key, value in table.items()}
        for entry in entries.values():
            if not 0 <= entry.shard < num_shards or min(entry.offset, entry.size, *entry.shape) < 0:
                raise ValueError(f"an entry is out of range: {entry}")
        return TensorBundle(prefix, entries, num_shards)
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"'{index}' is damaged: {error}") from error


def find_tensor_bundle(path: str | os.PathLike[str]) -> TensorBundle | None:
    """The TensorFlow checkpoint of a prefix, or a directory's newest one; None where there is none.

    Raises:
        CheckpointError: Its index is damaged.
    """
    given = os.fspath(path)
    prefix = given if is_tensor_bundle(given) else latest_tensor_bundle(given)
    return None if prefix is None else open_tensor_bundle(prefix)


def latest_tensor_bundle(directory: str) -> str | None:
    """The prefix of a directory's newest TensorFlow checkpoint: its state file's, or None.

    A path of the state file that leads to nothing is looked for in the directory itself, which may
    have been moved since.
    """
    try:
        text = read_own(os.path.join(directory, _STATE_FILE), _MAX_STATE_BYTES).decode()
    except (OSError, ValueError):
        return None
    found = re.search(r'^model_checkpoint_path: "(.*)"$', text, re.MULTILINE)
    if found is None:
        return None
    names = (found[1], os.path.basename(found[1]))
    prefixes = [os.path.join(directory, name) for name in names]
    return next(filter(is_tensor_bundle, prefixes), None)


def _numpy_dtype(number: int) -> np.dtype[Any]:
    """The dtype for a number of TensorFlow's; void where NumPy has none."""
    if number == _STRING:
        return np.dtype(object)
    if number == _BFLOAT16:
        return _bfloat16()
    return np.dtype(_DTYPES.get(number, _UNKNOWN))


def _bfloat16() -> np.dtype[Any]:
    """The dtype of ml_dtypes; void without it."""
    try:
        import ml_dtypes
    except ImportError:
        return _UNKNOWN
    return np.dtype(ml_dtypes.bfloat16)


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
