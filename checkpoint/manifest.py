"""The manifest: what a checkpoint directory must hold, in JSON.

Every byte of a checkpoint is covered by one checksum. The manifest carries the SHA-256 of its own
content. A shard's header and each block of a tensor's bytes carry a CRC-32: it is there against
damage, not against forgery, finds every burst of up to 32 bits, and at 2 to 3 GB/s is twice as
fast as SHA-256. One checksum a block (and not one a file) names the tensor that is damaged, and
lets a reader of a few tensors, or of a few rows of one, verify what it reads without the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from ..observe import printable
from .errors import CheckpointError
from .names import MANIFEST, check_relative
from .places import store_of
from .slices import DType, slice_key, tiling_problem

FORMAT_VERSION: Final = 2
BLOCK_BYTES: Final = 1 << 20
MAX_MANIFEST_BYTES: Final = 128 << 20  # nine bytes for each MiB of arrays: enough for 10 TB
_CHECKSUM = "sha256"

Natural = Annotated[int, Field(ge=0, lt=2**62)]
Shape = Annotated[tuple[Natural, ...], Field(strict=False, max_length=32)]
Crc32 = Annotated[int, Field(ge=0, lt=2**32)]
BlockCrcs = Annotated[str, Field(pattern=r"^([0-9a-f]{8}( [0-9a-f]{8})*)?$")]
FileName = Annotated[str, AfterValidator(check_relative)]
ShardName = Annotated[
    str,
    Field(pattern=r"^(weights|data-[0-9]{5}-of-[0-9]{5})(-[0-9a-f]{8})?\.safetensors$"),
]


class _Strict(BaseModel):
    # Built on first use: importing this module costs milliseconds less.
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True
    )


class SliceEntry(_Strict):
    """Where a part of a tensor is, or the whole.

    Attributes:
        start, shape: the part in the whole tensor's indices.
        offset_bytes: where its little-endian row-major bytes begin in the file `shard`.
        crc32: the CRC-32 of each block of `BLOCK_BYTES` of them, as hexadecimal digits.
    """

    start: Shape
    shape: Shape
    shard: ShardName
    offset_bytes: Natural
    crc32: BlockCrcs

    @property
    def block_crcs(self) -> list[int]:
        return [int(digits, 16) for digits in self.crc32.split()]


class TensorEntry(_Strict):
    """One tensor: its shape, its dtype by NumPy's name, and the slices that make it up."""

    shape: Shape
    dtype: DType
    slices: Annotated[tuple[SliceEntry, ...], Field(strict=False, max_length=10_000)]

    def slice_bytes(self, part: SliceEntry) -> int:
        """The size of one of its slices."""
        return math.prod(part.shape) * np.dtype(self.dtype).itemsize


class ShardEntry(_Strict):
    """One shard: the size of the file, and the CRC-32 of its header with the length before it."""

    size_bytes: Natural
    header_crc32: Crc32


class FileEntry(_Strict):
    """Another file: its size, and the CRC-32 of its bytes."""

    size_bytes: Natural
    crc32: Crc32


class Part(_Strict):
    """What one writer of a checkpoint reports: its shard, and the tensors or slices in it."""

    shard: ShardName
    entry: ShardEntry
    tensors: dict[str, TensorEntry]


class Manifest(_Strict):
    """What is in a checkpoint directory.

    Attributes:
        created: when, ISO 8601 in UTC.
        versions: library name to version, of the writer.
        shards, tensors: by file name and by tensor name.
        state: free JSON of the caller's (input iterators, random generators, ...).
        files: by relative path, the other files of an export. (Those of exports made before the
            manifest listed them are under no checksum.)
    """

    format_version: Literal[2] = FORMAT_VERSION
    global_step: Natural
    created: str
    versions: dict[str, str]
    shards: dict[ShardName, ShardEntry]
    tensors: dict[str, TensorEntry]
    state: dict[str, JsonValue]
    files: dict[FileName, FileEntry] = {}

    @property
    def created_secs(self) -> float:
        """When it was written, seconds since the epoch."""
        return datetime.fromisoformat(self.created).timestamp()

    @field_validator("created")
    @classmethod
    def _is_a_moment(cls, created: str) -> str:
        if datetime.fromisoformat(created).tzinfo is None:
            raise ValueError(f"{created!r} has no time zone")
        return created

    @model_validator(mode="after")
    def _is_consistent(self) -> Manifest:
        # Before memory is taken: tensors are together no larger than the files they are in.
        left = {shard: entry.size_bytes for shard, entry in self.shards.items()}
        for name, tensor in self.tensors.items():
            problem = _tensor_problem(tensor, left)
            if problem:
                raise ValueError(f"tensor {name!r}: {problem}")
        return self

    def pieces_by_shard(self) -> dict[str, dict[str, tuple[TensorEntry, SliceEntry]]]:
        """The content of each shard, by the keys that its header must list."""
        pieces: dict[str, dict[str, tuple[TensorEntry, SliceEntry]]]
        pieces = {shard: {} for shard in self.shards}
        for name, tensor in self.tensors.items():
            for part in tensor.slices:
                key = slice_key(name, part.start, part.shape, tensor.shape)
                pieces[part.shard][key] = tensor, part
        return pieces


def _tensor_problem(tensor: TensorEntry, left_bytes: dict[str, int]) -> str | None:
    """What is wrong with a tensor; takes what it needs from the bytes left in each shard."""
    itemsize = np.dtype(tensor.dtype).itemsize
    if math.prod(length for length in tensor.shape if length) * itemsize >= 2**62:
        return f"its shape {tensor.shape} is larger than any memory"
    for part in tensor.slices:
        if part.shard not in left_bytes:
            return f"it is in shard '{part.shard}', which is unlisted"
        num_bytes = tensor.slice_bytes(part)
        left_bytes[part.shard] -= num_bytes
        if left_bytes[part.shard] < 0:
            return f"its {num_bytes} bytes do not fit into shard '{part.shard}'"
        if len(part.block_crcs) != -(-num_bytes // BLOCK_BYTES):
            return f"it has {len(part.block_crcs)} checksums for {num_bytes} bytes"
    return tiling_problem([(part.start, part.shape) for part in tensor.slices], tensor.shape)


def format_manifest(manifest: Manifest) -> str:
    """The JSON text of a manifest, its checksum first."""
    content = manifest.model_dump(exclude=None if manifest.files else {"files"})
    text = json.dumps({_CHECKSUM: _checksum(content), **content}, indent=1, allow_nan=False) + "\n"
    if len(text) > MAX_MANIFEST_BYTES:
        raise CheckpointError(
            f"the manifest would have {len(text):,} bytes and may have {MAX_MANIFEST_BYTES:,}: "
            f"save fewer slices, or several checkpoints"
        )
    return text


@lru_cache(maxsize=1)  # who looks for a newer checkpoint reads the same one again and again
def parse_manifest(data: bytes) -> Manifest:
    """Reads what `format_manifest` wrote, or says in a ValueError what is wrong with it."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"it must be a JSON object, found {type(content).__name__}")
    if content.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"its format_version is {content.get('format_version')!r} and this paceline reads "
            f"version {FORMAT_VERSION}: read it with the paceline that wrote it"
        )
    found = content.pop(_CHECKSUM, None)
    expected = _checksum(content)
    if found != expected:
        raise ValueError(
            f"its content does not fit its sha256 (stored {found!r}, computed {expected!r}): "
            f"it was damaged or edited after it was written"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = printable(" > ".join(map(str, problem["loc"])))[:200] or "the whole"
    found = "" if problem["type"] == "value_error" else f", found {str(problem['input'])[:80]!r}"
    return f"{where}: {problem['msg']}{found}"


def read_manifest(path: str) -> Manifest:
    """The manifest of the checkpoint directory at `path`."""
    file_path = os.path.join(path, MANIFEST)
    try:
        return parse_manifest(store_of(path).read(file_path, MAX_MANIFEST_BYTES))
    except OSError as error:
        raise CheckpointError(f"cannot read '{file_path}': {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"'{file_path}' cannot be trusted: {error}") from error
