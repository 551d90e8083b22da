"""Mutated manifests and shards: always a clear error or the very same arrays, in little memory."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    TensorSlice,
    latest_checkpoint,
    load,
    write_shard,
)

from .writers import Others

TABLE = np.arange(600, dtype=np.float32).reshape(100, 6)
OTHERS: dict[str, np.ndarray] = {
    "dense/kernel": np.linspace(-1, 1, 12).reshape(3, 4),
    "mask": np.array([True, False]),
    "count": np.array(7),
    "empty": np.zeros((0, 3), np.int8),
}
SHARDS = [f"data-0000{i}-of-00002.safetensors" for i in range(2)]
HOSTILE: list[Any] = [
    *(0, 1, -1, 7, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308),
    *(
        None,
        True,
        False,
        "",
        "x",
        "0" * 9,
        "../x",
        "/etc/passwd",
        "\0",
        SHARDS[0],
        "float64",
        "F16",
    ),
    *([], {}, [0], [2**40, 2**40], [1] * 33, {"x": {}}),
]
SPARE_BYTES = 4 << 20  # for JSON and its like; the mutants ask for much more
Mutate = Callable[[random.Random, Path], None]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint by two writers, one tensor of which is in slices."""

    def gather(draft: str) -> list[str]:
        return [write_shard(draft, 1, 2, {"table": [TensorSlice(TABLE[40:], (40, 0), (100, 6))]})]

    with Saver(tmp_path_factory.mktemp("fuzz")) as saver:
        first = TensorSlice(TABLE[:40], (0, 0), (100, 6))
        arrays = {**OTHERS, "table": [first]}
        saver.save(
            10,
            arrays,
            state={"position": 17},
            others=Others(1, lambda draft: lambda: gather(draft)),
        )
        saver.wait()
        return Path(saver.finished()[0][0])


def mutate_bytes(rng: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 3])):
        at, length = rng.randrange(len(data)), rng.choice([1, 1, 4, 100])
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + length] = rng.randbytes(len(data[at : at + length]))
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = rng.randbytes(length)
            case 4:
                data[at : at + length] = bytes(len(data[at : at + length]))
            case 5:
                del data[at + 1 :]
    file.write_bytes(data)


def mutate_json(rng: random.Random, content: Any) -> None:
    """Changes one place of a tree of dicts and lists."""
    places = list(_places(content))
    holder, key = rng.choice(places)
    match rng.randrange(5):
        case 0 | 1:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
        case 2:
            del holder[key]
        case 3:
            holder[key] = copy.deepcopy((lambda pair: pair[0][pair[1]])(rng.choice(places)))
        case 4 if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        case 4:
            holder[rng.choice(["x", "table", SHARDS[0], "__metadata__"])] = holder[key]


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(content) if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """With the checksum that belongs to it, as one who knows the format would."""
    content.pop("sha256", None)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["sha256"] = hashlib.sha256(canonical).hexdigest()
    (path / "manifest.json").write_text(json.dumps(content))


def mutate_manifest_bytes(rng: random.Random, path: Path) -> None:
    mutate_bytes(rng, path / "manifest.json")


def mutate_manifest_meaning(rng: random.Random, path: Path) -> None:
    content = json.loads((path / "manifest.json").read_bytes())
    for _ in range(rng.choice([1, 1, 2, 3])):
        if content:
            mutate_json(rng, content)
    write_manifest(path, content)


def mutate_shard_bytes(rng: random.Random, path: Path) -> None:
    mutate_bytes(rng, path / rng.choice(SHARDS))


def mutate_shard_header(rng: random.Random, path: Path) -> None:
    """Header and manifest are changed together: sizes and checksums fit."""
    shard = rng.choice(SHARDS)
    data = (path / shard).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    mutate_json(rng, header)
    text = json.dumps(header).encode()
    start = len(text).to_bytes(8, "little") + text
    (path / shard).write_bytes(start + data[8 + length :])
    content = json.loads((path / "manifest.json").read_bytes())
    entry = content["shards"][shard]
    entry.update(size_bytes=len(start) + len(data) - 8 - length, header_crc32=zlib.crc32(start))
    for tensor in content["tensors"].values():
        for part in tensor["slices"]:
            if part["shard"] == shard:
                part["offset_bytes"] += len(text) - length
    if rng.random() < 0.5:
        mutate_json(rng, content)
    write_manifest(path, content)


def check(path: Path) -> bool:
    """Whether a mutant was refused; if not, it must hold the very same arrays."""
    size = sum(file.stat().st_size for file in path.iterdir())
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    found, refusal = None, ""
    try:
        found = load(path).arrays()
    except CheckpointError as error:
        refusal = str(error)
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak <= 20 * size + SPARE_BYTES
    if found is None:
        assert str(path) in refusal
        return True
    assert found.keys() == {*OTHERS, "table"}
    for name, array in {**OTHERS, "table": TABLE}.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    return False


@pytest.mark.parametrize(
    "num_mutants",
    [
        150,
        pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
@pytest.mark.parametrize(
    ("mutate", "least_refused"),
    [
        (mutate_manifest_bytes, 0.9),
        (mutate_manifest_meaning, 0.5),
        (mutate_shard_bytes, 0.9),
        (mutate_shard_header, 0.8),
    ],
)
def test_a_mutant_is_refused_or_restores_the_same(
    path: Path, mutate: Mutate, least_refused: float, num_mutants: int
) -> None:
    originals = {file: file.read_bytes() for file in path.iterdir()}
    num_refused = 0
    tracemalloc.start()
    try:
        for seed in range(num_mutants):
            try:
                mutate(random.Random(seed), path)
                num_refused += check(path)
            except BaseException as error:
                error.add_note(f"mutant {seed} of {mutate.__name__}")
                raise
            finally:
                for file, data in originals.items():
                    file.write_bytes(data)
    finally:
        tracemalloc.stop()
    assert num_refused >= least_refused * num_mutants
    assert latest_checkpoint(path.parent, verify=True) == str(path)
