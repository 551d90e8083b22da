"""Whatever is damaged is refused, and the message names the file, the tensor and the way out."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    fingerprint,
    latest_checkpoint,
    lease,
    load,
    read_metrics,
    save,
)

SHARD = "data-00000-of-00001.safetensors"
TENSORS: dict[str, np.ndarray] = {
    "dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "dense/bias": np.arange(3, dtype=np.float64),
    "mask": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path, 5, TENSORS)
    return Path(save(tmp_path, 10, TENSORS, state={"position": 17}))


def read_all(path: Path) -> None:
    load(path).arrays()


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest and makes its checksum fit again."""
    content = json.loads((path / "manifest.json").read_bytes())
    del content["sha256"]
    change(content)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["sha256"] = hashlib.sha256(canonical).hexdigest()
    (path / "manifest.json").write_text(json.dumps(content))


def flip(file: Path, position: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def what_is_said(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_the_manifest_can_be_rewritten_by_the_documented_rule(path: Path) -> None:
    edit_manifest(path, lambda manifest: manifest["state"].update(position=18))
    assert load(path).state == {"position": 18}


@pytest.mark.parametrize("bit", [0, 5, 7])
def test_every_flipped_bit_in_a_shard_is_found(path: Path, bit: int) -> None:
    shard = path / SHARD
    whole = shard.read_bytes()
    for position in range(len(whole)):
        flip(shard, position, bit)
        with pytest.raises(CheckpointError, match=SHARD):
            read_all(path)
        shard.write_bytes(whole)
    read_all(path)


def test_a_flipped_bit_in_the_manifest_is_found_or_without_effect(path: Path) -> None:
    manifest = path / "manifest.json"
    whole = manifest.read_bytes()
    expected = load(path).arrays(), load(path).state
    for position in range(len(whole)):
        flip(manifest, position, bit=position % 8)
        # White space may change without changing what is said.
        if what_is_said(manifest.read_bytes()) == what_is_said(whole):
            checkpoint = load(path)
            np.testing.assert_equal((checkpoint.arrays(), checkpoint.state), expected)
        else:
            with pytest.raises(CheckpointError, match=r"manifest\.json"):
                load(path)
        manifest.write_bytes(whole)


@pytest.mark.parametrize("name", list(TENSORS))
def test_a_damaged_tensor_is_named_and_the_others_are_read(path: Path, name: str) -> None:
    data = (path / SHARD).read_bytes()
    flip(path / SHARD, data.index(TENSORS[name].tobytes()))
    checkpoint = load(path)
    with pytest.raises(CheckpointError, match=f"{SHARD}.*bytes of tensor '{name}' do not fit"):
        checkpoint.read(name)
    for other in TENSORS.keys() - {name}:
        np.testing.assert_equal(checkpoint.read(other), TENSORS[other])


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, -1])
def test_a_truncated_shard_is_refused(path: Path, length: int) -> None:
    shard = path / SHARD
    shard.write_bytes(shard.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=rf"{SHARD}.*bytes and the manifest says"):
        load(path)


def test_a_shard_that_grew_is_refused(path: Path) -> None:
    with (path / SHARD).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CheckpointError, match=SHARD):
        load(path)


def test_a_shard_cut_after_loading_is_refused_when_it_is_read(path: Path) -> None:
    checkpoint = load(path)
    (path / SHARD).write_bytes((path / SHARD).read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=SHARD):
        checkpoint.read("mask")


def test_a_checkpoint_deleted_after_loading_is_refused_when_it_is_read(path: Path) -> None:
    checkpoint = load(path)
    shutil.rmtree(path)
    with pytest.raises(CheckpointError, match=f"{SHARD}' is missing.*beside it is .*model.ckpt-5"):
        checkpoint.read("mask")


def test_a_shard_of_another_checkpoint_is_refused(path: Path) -> None:
    other = Path(save(path.parent, 11, {name + "!": a for name, a in TENSORS.items()}))
    shutil.copy(other / SHARD, path / SHARD)
    with pytest.raises(CheckpointError, match=SHARD):
        load(path)


def test_a_huge_header_length_takes_no_memory(path: Path) -> None:
    shard = path / SHARD
    shard.write_bytes(b"\xff" * 8 + shard.read_bytes()[8:])
    with pytest.raises(CheckpointError, match=f"{SHARD}.*header has 18446744073709551615 bytes"):
        load(path)


@pytest.mark.parametrize("missing", [SHARD, "manifest.json"])
def test_a_missing_file_is_named(path: Path, missing: str) -> None:
    (path / missing).unlink()
    with pytest.raises(CheckpointError, match=missing):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "cannot be trusted"),
        ('{"a":' * 900 + "1" + "}" * 900, "cannot be trusted"),
        ("9" * 5000, "not JSON"),
        ("[]", "must be a JSON object, found list"),
        ("{}", "format_version is None"),
        ('{"format_version": 1}', "format_version is 1 .* reads version 2"),
        ('{"format_version": 2}', "does not fit its sha256"),
        ('{"format_version": 2, "x": 1e999}', "cannot be trusted"),
    ],
)
def test_a_manifest_that_is_something_else_is_refused(path: Path, text: str, message: str) -> None:
    (path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=f"manifest.json.*{message}"):
        load(path)


def test_a_manifest_edited_by_hand_is_refused(path: Path) -> None:
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"position": 17', '"position": 18'))
    with pytest.raises(CheckpointError, match=r"manifest.json.*damaged or edited"):
        load(path)


def tensor(manifest: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = manifest["tensors"]["dense/kernel"]
    return entry


def part(manifest: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = tensor(manifest)["slices"][0]
    return entry


def reshape(manifest: dict[str, Any], shape: list[int]) -> None:
    """As one who knows the format would."""
    num_bytes = 4 * math.prod(shape)
    crc32 = " ".join(["00000000"] * -(-num_bytes // 2**20)) if num_bytes < 2**30 else "00000000"
    tensor(manifest).update(shape=shape)
    same = part(manifest)["crc32"] if math.prod(shape) == 6 else crc32
    part(manifest).update(shape=shape, start=[0] * len(shape), crc32=same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(extra=1), "extra: .*not permitted"),
        (lambda m: m.pop("global_step"), "global_step: Field required"),
        (lambda m: m.update(global_step="10"), "global_step: .*integer, found '10'"),
        (lambda m: m.update(global_step=-1), "global_step: .*found '-1'"),
        (lambda m: m.update(global_step=11), "named after step 10 but holds step 11"),
        (lambda m: tensor(m).update(dtype="bfloat16"), "dense/kernel > dtype.*found 'bfloat16'"),
        (
            lambda m: tensor(m).update(dtype="int32"),
            "'dense/kernel' is float32 of shape .* in the shard and int32 of",
        ),
        (lambda m: tensor(m).update(shape=[3, 2]), "'dense/kernel': the slice of shape .*within"),
        (lambda m: reshape(m, [3, 2]), r"'dense/kernel' is float32 of shape \(2, 3\)"),
        (lambda m: reshape(m, [2**61] * 4), "'dense/kernel': .*larger than any memory"),
        (lambda m: reshape(m, [2**62]), "dense/kernel > .* less than"),
        (lambda m: reshape(m, [10**6]), "'dense/kernel': its 4000000 bytes do not fit into shard"),
        (lambda m: tensor(m).update(shape=[-1, 2]), "dense/kernel > shape > 0"),
        (lambda m: part(m).update(crc32="00000001"), "'dense/kernel' do not fit its checksum"),
        (lambda m: part(m).update(crc32=""), "'dense/kernel': it has 0 checksums for 24 bytes"),
        (lambda m: part(m).update(crc32="0" * 10**5), "dense/kernel > slices > 0 > crc32"),
        (lambda m: part(m).update(offset_bytes=10**6), "at byte 1000000 in the manifest"),
        (lambda m: part(m).update(offset_bytes=-1), "offset_bytes"),
        (lambda m: tensor(m).update(slices=[]), "'dense/kernel': its slices hold 0 of its 6"),
        (
            lambda m: tensor(m).update(slices=[part(m), part(m)]),
            "'dense/kernel': two slices overlap|do not fit",
        ),
        (lambda m: tensor(m).update(slices=[part(m)] * 10_001), "dense/kernel > slices"),
        (lambda m: part(m).update(shard="/etc/passwd"), "dense/kernel > .*shard.*/etc/passwd"),
        (
            lambda m: part(m).update(shard="data-00001-of-00002.safetensors"),
            "'dense/kernel': it is in shard .* unlisted",
        ),
        (lambda m: m["tensors"].pop("mask"), "'mask' is bool .* and not listed in the manifest"),
        (lambda m: m["tensors"].update(x=m["tensors"]["mask"]), "'x' is not listed in the shard"),
        (
            lambda m: m["shards"].update({"../x": m["shards"][SHARD]}),
            "shards > ../x",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_or_its_shards_is_refused(
    path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit_manifest(path, change)
    with pytest.raises(CheckpointError, match=message):
        read_all(path)


def test_the_refusal_offers_the_newest_whole_checkpoint_beside(path: Path) -> None:
    flip(path / SHARD, -1)
    with pytest.raises(CheckpointError, match=r"newest whole checkpoint .*model\.ckpt-5'"):
        read_all(path)
    shutil.rmtree(path.parent / "model.ckpt-5")
    with pytest.raises(CheckpointError, match="no other whole checkpoint"):
        read_all(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("model.ckpt-7", "does not exist; .* holds model.ckpt-5, model.ckpt-10"),
        ("absent/model.ckpt-7", "does not exist; .* holds no checkpoints"),
        ("", "is a directory of checkpoints .*latest_checkpoint"),
        ("checkpoint", "has no manifest.json"),
    ],
)
def test_a_path_that_is_no_checkpoint_is_answered_with_what_is_there(
    path: Path, given: str, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(path.parent / given)


def test_a_long_list_of_what_is_there_is_cut(tmp_path: Path) -> None:
    for step in range(9):
        save(tmp_path, step, {}, keep_max=None)
    expected = r"ckpt-0, model.ckpt-1, \.\.\., model.ckpt-6, model.ckpt-7, model.ckpt-8$"
    with pytest.raises(CheckpointError, match=expected):
        load(tmp_path / "model.ckpt-9")


def sparse(file: Path) -> None:
    file.touch()
    os.truncate(file, 200 << 30)


def endless(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


def fifo(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


NO_PLAIN_FILES = [
    (sparse, r"it has 214,748,364,800 bytes and may have at most"),
    (endless, "it is not a regular file"),
    (fifo, "it is not a regular file"),
]


@pytest.mark.parametrize(("make", "problem"), NO_PLAIN_FILES)
def test_a_manifest_is_looked_at_before_it_is_read(
    path: Path, make: Callable[[Path], None], problem: str
) -> None:
    make(path / "manifest.json")
    with pytest.raises(CheckpointError, match=rf"manifest\.json'.*{problem}"):
        load(path)
    assert latest_checkpoint(path.parent) == str(path.parent / "model.ckpt-5")


@pytest.mark.parametrize(("make", "problem"), NO_PLAIN_FILES)
def test_metrics_are_looked_at_before_they_are_read(
    path: Path, make: Callable[[Path], None], problem: str
) -> None:
    make(path / "metrics.json")
    if make is sparse:  # content that cannot be understood counts as none
        assert read_metrics(path) == {}
    else:
        with pytest.raises(CheckpointError, match=problem):
            read_metrics(path)


def test_a_state_file_that_is_too_large_is_passed_over(path: Path, caplog: Any) -> None:
    sparse(path.parent / "checkpoint")
    assert latest_checkpoint(path.parent) == str(path)
    assert "it has 214,748,364,800 bytes and may have at most" in caplog.text
    fingerprint(path.parent)


@pytest.mark.parametrize("make", [endless, fifo])
def test_a_state_file_that_is_no_file_is_refused(path: Path, make: Callable[[Path], None]) -> None:
    make(path.parent / "checkpoint")
    with pytest.raises(CheckpointError, match=r"it is not a regular file at '.*checkpoint'"):
        latest_checkpoint(path.parent)


def test_a_header_is_no_longer_than_any_that_is_written(path: Path) -> None:
    shard = path / SHARD
    shard.write_bytes((100 << 30).to_bytes(8, "little"))
    os.truncate(shard, size := (100 << 30) + 68)
    edit_manifest(path, lambda content: content["shards"][SHARD].update(size_bytes=size))
    with pytest.raises(CheckpointError, match=r"its header has .* at most 100,000,000"):
        load(path)


def test_a_file_may_be_a_link_to_one_elsewhere(path: Path, tmp_path: Path) -> None:
    """As in the caches of models that others have published."""
    for name in ("manifest.json", SHARD):
        (path / name).rename(tmp_path / name)
        (path / name).symlink_to(tmp_path / name)
    with lease(path):
        read_all(path)
    save(tmp_path, 11, TENSORS, keep_max=1)
    assert not path.exists()
    assert (tmp_path / SHARD).exists()
