"""Several processes that hold the same arrays write one checkpoint, each a part."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    ShardSaver,
    TensorSlice,
    collect_reports,
    latest_checkpoint,
    list_checkpoints,
    load,
    share_of,
)

from .writers import Others

SHAPES = st.lists(st.lists(st.integers(0, 6), max_size=3).map(tuple), max_size=6)


def bytes_in(share: dict) -> int:
    return sum(
        sum(part.array.nbytes for part in value) if isinstance(value, list) else value.nbytes
        for value in share.values()
    )


@given(SHAPES, st.integers(1, 7))
def test_shares_together_are_everything_once(shapes: list[tuple[int, ...]], count: int) -> None:
    arrays = {f"{i}": np.full(shape, i, np.int16) for i, shape in enumerate(shapes)}
    found = {name: np.zeros(array.shape, np.int64) for name, array in arrays.items()}
    holders = dict.fromkeys(arrays, 0)
    for index in range(count):
        for name, value in share_of(arrays, index, count).items():
            holders[name] += 1
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, TensorSlice):
                    start = part.start[0]
                    found[name][start : start + len(part.array)] += 1
                else:
                    found[name] += 1
    for name, times in found.items():
        assert (times == 1).all()
        assert holders[name] >= 1, "empty ones, too"


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_shares_are_of_about_one_size(count: int) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"{i}": np.zeros((int(rng.integers(1, 500)), 16), np.float32) for i in range(20)}
    sizes = [bytes_in(share_of(arrays, index, count)) for index in range(count)]
    assert max(sizes) - min(sizes) <= 2 * 64


def save_together(root: Path, count: int, steps: int) -> None:
    arrays = {"w": np.zeros((1000, 3)), "b": np.zeros(7), "n": np.array(0)}
    helpers = [ShardSaver(index, count) for index in range(1, count)]

    def share(draft: str):
        for index, helper in enumerate(helpers, start=1):
            for copied in helper.start(draft, share_of(arrays, index, count)).values():
                copied()  # the arrays are about to change
        return partial(collect_reports, draft, count, lambda: False)

    with Saver(root) as saver:
        for step in range(steps):
            for array in arrays.values():
                array[...] = step
            mine = share_of(arrays, 0, count)
            saver.save(step, mine, others=Others(count - 1, share) if count > 1 else None)
            for helper in helpers:
                helper.check()
    for helper in helpers:
        helper.wait()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_checkpoint_holds_one_moment(tmp_path: Path, count: int) -> None:
    save_together(tmp_path, count, 5)
    for path, step in list_checkpoints(tmp_path):
        reader = load(path)
        assert reader.num_writers == count
        for array in reader.arrays().values():
            assert (array == step).all()
        assert not [p.name for p in Path(path).iterdir() if "data-" in p.name and "json" in p.name]


def test_who_cannot_write_says_so_to_who_commits(tmp_path: Path) -> None:
    helper = ShardSaver(1, 2)

    def share(draft: str):
        # A file is in the way of the shard.
        Path(draft, "data-00001-of-00002.safetensors").mkdir()
        helper.start(draft, {"x": np.zeros(3)})
        return partial(collect_reports, draft, 2, lambda: False)

    with Saver(tmp_path) as saver:
        saver.save(1, {}, others=Others(1, share))
        with pytest.raises(CheckpointError, match="worker 1 could not write: cannot write"):
            saver.wait()
        with pytest.raises(CheckpointError, match="cannot write"):
            helper.wait()
    assert latest_checkpoint(tmp_path) is None


def test_a_draft_that_a_worker_does_not_see_is_an_error_there(tmp_path: Path) -> None:
    helper = ShardSaver(1, 2)
    helper.start(str(tmp_path / "elsewhere"), {"x": np.zeros(3)})
    with pytest.raises(CheckpointError, match="cannot write"):
        helper.wait()
    helper.check()  # it is told once


def test_a_draft_may_be_committed_as_soon_as_the_report_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, replace = tmp_path / "draft", os.replace
    draft.mkdir()

    def replace_and_commit(source: str, destination: str) -> None:
        replace(source, destination)
        if destination.endswith(".json"):
            draft.rename(tmp_path / "committed")

    monkeypatch.setattr(os, "replace", replace_and_commit)
    helper = ShardSaver(1, 2)
    helper.start(str(draft), {"x": np.zeros(3)})
    helper.wait()
    assert collect_reports(str(tmp_path / "committed"), 2, lambda: False)


@pytest.mark.parametrize("how", ["abandoned", "late"])
def test_nobody_waits_for_ever_for_a_report(tmp_path: Path, how: str) -> None:
    over = threading.Event()
    timeout_secs = 0.05 if how == "late" else 600.0
    if how == "abandoned":
        over.set()
    with pytest.raises(
        CheckpointError, match=r"worker 1 has not written its part of .*all workers"
    ):
        collect_reports(str(tmp_path), 2, over.is_set, timeout_secs)
