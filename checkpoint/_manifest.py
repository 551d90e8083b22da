"""The manifest: what a checkpoint directory must hold, in JSON.

Every byte of a checkpoint is covered by one checksum. The manifest carries the SHA-256 of its own
content. A shard's header and each tensor's bytes carry a CRC-32: it is there against damage, not
against forgery, finds every burst of up to 32 bits, and at 3.4 GB/s is twice as fast as SHA-256.
One checksum a tensor (and not one a file) names the tensor that is damaged, and lets a reader of
a few tensors verify what it reads without reading the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from ._errors import CheckpointError
from ._names import MANIFEST

FORMAT_VERSION: Final = 1
_CHECKSUM = "sha256"

DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
Natural = Annotated[int, Field(ge=0)]
Crc32 = Annotated[int, Field(ge=0, lt=2**32)]
ShardName = Annotated[str, Field(pattern=r"^data-[0-9]{5}-of-[0-9]{5}\.safetensors$")]


class _Strict(BaseModel):
    # Built on first use: importing this module costs milliseconds less.
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True
    )


class TensorEntry(_Strict):
    """One tensor: its shape, its dtype by NumPy's name, the shard it is in, the CRC-32 of its
    little-endian row-major bytes."""

    shape: Annotated[tuple[Natural, ...], Field(strict=False)]
    dtype: DType
    shard: ShardName
    crc32: Crc32


class ShardEntry(_Strict):
    """One shard: the size of the file, and the CRC-32 of its header with the length before it."""

    size_bytes: Natural
    header_crc32: Crc32


class Manifest(_Strict):
    """What is in a checkpoint directory.

    Attributes:
        format_version: of this file and of the directory.
        global_step: the step after which the arrays were taken.
        created: when, ISO 8601 in UTC.
        versions: library name to version, of the writer.
        shards: file name to entry.
        tensors: tensor name to entry.
        state: free JSON of the caller's (input iterators, random generators, ...).
    """

    format_version: Literal[1] = FORMAT_VERSION
    global_step: Natural
    created: str
    versions: dict[str, str]
    shards: dict[ShardName, ShardEntry]
    tensors: dict[str, TensorEntry]
    state: dict[str, JsonValue]

    @model_validator(mode="after")
    def _every_tensor_is_in_a_listed_shard(self) -> Manifest:
        for name, tensor in self.tensors.items():
            if tensor.shard not in self.shards:
                raise ValueError(f"tensor '{name}' is in shard '{tensor.shard}', which is unlisted")
        return self


def format_manifest(manifest: Manifest) -> str:
    """The JSON text of a manifest, its checksum first."""
    content = manifest.model_dump()
    return json.dumps({_CHECKSUM: _checksum(content), **content}, indent=1, allow_nan=False) + "\n"


def parse_manifest(data: bytes) -> Manifest:
    """Reads what `format_manifest` wrote.

    Raises:
        ValueError: the text is not JSON, not ours, of another version, damaged or inconsistent.
    """
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
        raise ValueError(_first_problem(error)) from error


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = " > ".join(map(str, problem["loc"])) or "the whole"
    found = "" if problem["type"] == "value_error" else f", found {str(problem['input'])[:80]!r}"
    return f"{where}: {problem['msg']}{found}"


def read_manifest(path: str) -> Manifest:
    """The manifest of the checkpoint directory at `path`.

    Raises:
        CheckpointError: it is missing, unreadable, of another version, damaged or edited.
    """
    file_path = os.path.join(path, MANIFEST)
    try:
        with open(file_path, "rb") as file:
            return parse_manifest(file.read())
    except OSError as error:
        raise CheckpointError(f"cannot read '{file_path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"'{file_path}' cannot be trusted: {error}") from error
