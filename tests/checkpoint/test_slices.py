"""Tensors written in slices by one or several, and read whole, in other slices, or in part."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.checkpoint import (
    CheckpointError,
    CheckpointReader,
    Saver,
    TensorSlice,
    latest_checkpoint,
    list_checkpoints,
    load,
    read_slices,
    save,
    write_shard,
)
from paceline.checkpoint.slices import tiling_problem

from .writers import Others

WHOLE = np.arange(60, dtype=np.float32).reshape(10, 6)


def rows(start: int, stop: int, whole: np.ndarray = WHOLE) -> TensorSlice:
    start_index = (start,) + (0,) * (whole.ndim - 1)
    return TensorSlice(whole[start:stop], start_index, whole.shape)


def grid(whole: np.ndarray, cuts: list[list[int]]) -> list[TensorSlice]:
    """Cuts an array at the given places of each axis."""
    boxes: list[list[slice]] = [[]]
    for length, places in zip(whole.shape, cuts, strict=True):
        edges = [0, *sorted({place for place in places if 0 < place < length}), length]
        pairs = list(itertools.pairwise(edges))
        boxes = [[*box, slice(*pair)] for box in boxes for pair in pairs]
    return [TensorSlice(whole[*b], tuple(s.start for s in b), whole.shape) for b in boxes]


cuts = st.lists(st.integers(0, 12), max_size=3)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3))
bounds = st.none() | st.integers(-12, 12)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), shape=shapes)
def test_whatever_slices_a_tensor_is_written_in_every_region_reads_as_from_the_array(
    tmp_path: Path, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    whole = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    parts = grid(whole, data.draw(st.tuples(cuts, cuts, cuts)))
    checkpoint = load(save(tmp_path, 1, {"x": data.draw(st.permutations(parts))}))
    assert checkpoint.shapes == {"x": shape}
    np.testing.assert_array_equal(checkpoint.read("x"), whole)
    region = tuple(slice(*data.draw(st.tuples(bounds, bounds))) for _ in range(3))
    region = region[: data.draw(st.integers(0, 3))]
    found = checkpoint.read("x", region)
    np.testing.assert_array_equal(found, whole[region])
    assert found.flags.writeable


def behind(gather: Callable[[str], list[str]], num: int = 1) -> Others:
    """The others write when their reports are waited for."""
    return Others(num, lambda draft: partial(gather, draft))


@pytest.mark.parametrize("num_writers", [1, 2, 3, 10])
def test_several_writers_each_write_a_shard_and_one_commits(
    tmp_path: Path, num_writers: int
) -> None:
    edges = np.linspace(0, 10, num_writers + 1).astype(int)
    parts = [[rows(*pair)] for pair in itertools.pairwise(edges)]
    drafts: list[str] = []

    def gather(draft: str) -> list[str]:
        drafts.append(draft)
        assert latest_checkpoint(tmp_path) is None
        return [
            write_shard(draft, i, num_writers, {"x": parts[i], f"own/{i}": np.array([i])})
            for i in range(1, num_writers)
        ]

    with Saver(tmp_path) as saver:
        saver.save(
            7,
            {"x": parts[0], "own/0": np.array([0])},
            others=behind(gather, num_writers - 1) if num_writers > 1 else None,
        )
    path = latest_checkpoint(tmp_path)
    assert path == str(tmp_path / "model.ckpt-7")
    assert not any(map(os.path.exists, drafts))
    checkpoint = load(path)
    assert checkpoint.num_writers == num_writers
    assert sorted(checkpoint.names) == sorted(["x", *(f"own/{i}" for i in range(num_writers))])
    np.testing.assert_array_equal(checkpoint.read("x"), WHOLE)
    np.testing.assert_array_equal(checkpoint.read("x", np.s_[3:8, 2:]), WHOLE[3:8, 2:])
    assert [checkpoint.read(f"own/{i}").item() for i in range(num_writers)] == [*range(num_writers)]


def test_a_sharded_save_returns_before_the_others_have_written(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    def gather(draft: str) -> list[str]:
        both.wait()
        return [write_shard(draft, 1, 2, {"y": np.zeros(1)})]

    with Saver(tmp_path) as saver:
        saver.save(1, {"x": np.zeros(1)}, others=behind(gather))
        both.wait()  # so `save` has returned before the others are asked
    assert load(saver.finished()[0][0]).names == ("x", "y")


def test_all_writers_hold_the_values_of_one_moment(tmp_path: Path) -> None:
    """Who shares copies before `save` returns, though it writes later."""
    ours, theirs = np.zeros(3), np.zeros(5)

    def share(draft: str) -> Callable[[], list[str]]:
        copy = theirs.copy()
        return lambda: [write_shard(draft, 1, 2, {"theirs": copy})]

    with Saver(tmp_path) as saver:
        for step in range(4):
            ours[:] = theirs[:] = step
            saver.save(step, {"ours": ours}, others=Others(1, share))
    for path, step in list_checkpoints(tmp_path):
        assert {*load(path).read("ours"), *load(path).read("theirs")} == {step}


def test_where_the_others_cannot_begin_nothing_is_left(tmp_path: Path) -> None:
    def share(draft: str) -> Callable[[], list[str]]:
        raise ConnectionError("ps 1 is gone")

    with Saver(tmp_path) as saver:
        with pytest.raises(ConnectionError, match="ps 1 is gone"):
            saver.save(1, {"x": np.zeros(1)}, others=Others(1, share))
        assert os.listdir(tmp_path) == [".paceline-lock"]
        saver.save(2, {"x": np.zeros(1)})
    assert [step for _, step in list_checkpoints(tmp_path)] == [2]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "its 1 reports are of the shards"),
        ([{"x": [rows(4, 10)]}] * 2, "its 3 reports are of the shards"),
        ([{}], "tensor 'x': its slices hold 24 of its 60 elements"),
        ([{"x": [rows(5, 10)]}], "tensor 'x': its slices hold 54 of its 60"),
        (
            [{"x": [rows(3, 10)]}],
            r"tensor 'x': two slices overlap, one at \(0, 0\) and .* \(3, 0\)",
        ),
        ([{"x": WHOLE}], "tensor 'x': two slices overlap"),
        ([{"x": WHOLE[:5]}], r"'x' is given as float32 of shape \(10, 6\) and as .* \(5, 6\)"),
        ([{"x": [rows(4, 10, WHOLE.astype(int))]}], "'x' is given as float32 .* and as int64"),
    ],
)
def test_shards_that_do_not_make_up_a_checkpoint_are_refused(
    tmp_path: Path, others: list[dict], message: str
) -> None:
    with Saver(tmp_path) as saver:
        saver.save(
            1,
            {"x": [rows(0, 4)]},
            others=behind(
                lambda draft: (
                    [write_shard(draft, 1, 2, arrays) for arrays in others[:1]] * len(others)
                )
            ),
        )
        with pytest.raises(CheckpointError, match=message):
            saver.wait()
    assert sorted(os.listdir(tmp_path)) == [".paceline-lock"]


def test_a_shard_that_the_committing_process_does_not_see_is_refused(tmp_path: Path) -> None:
    def gather(draft: str) -> list[str]:
        report = write_shard(draft, 1, 2, {"y": np.zeros(1)})
        os.remove(os.path.join(draft, "data-00001-of-00002.safetensors"))
        return [report]

    with Saver(tmp_path) as saver:
        saver.save(1, {}, others=behind(gather))
        with pytest.raises(
            CheckpointError, match=r"data-00001.*file system that all writers share"
        ):
            saver.wait()


@pytest.mark.parametrize("report", ["", "{}", '{"shard": "../x"}', "[]"])
def test_an_odd_report_is_refused(tmp_path: Path, report: str) -> None:
    with Saver(tmp_path) as saver:
        saver.save(1, {}, others=Others(1, lambda draft: lambda: [report]))
        with pytest.raises(CheckpointError, match="report of a written shard is odd"):
            saver.wait()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([rows(0, 4), rows(0, 4)], ValueError, "saved twice: give each slice once"),
        ([rows(0, 4), WHOLE], TypeError, "list of TensorSlice; got list"),
        ([], TypeError, "got list"),
        (
            [rows(0, 4), TensorSlice(WHOLE[4:8], (4, 0), (8, 6))],
            ValueError,
            "slices of tensor 'x' differ",
        ),
    ],
)
def test_slices_that_cannot_be_saved_are_refused_before_anything_is_written(
    tmp_path: Path, value: list, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        save(tmp_path / "new", 1, {"x": value})
    assert not (tmp_path / "new").exists()


def test_slices_with_a_hole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'x': its slices hold 54 of its 60 elements"):
        save(tmp_path, 1, {"x": [rows(0, 4), rows(5, 10)]})
    assert sorted(os.listdir(tmp_path)) == [".paceline-lock"]


@pytest.mark.parametrize("start", [(8, 0), (-1, 0), (0,), (0, 0, 0)])
def test_a_slice_outside_of_the_whole_is_refused(start: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"does not lie within full_shape \(10, 6\)"):
        TensorSlice(WHOLE[:3], start, (10, 6))


@pytest.mark.parametrize(
    ("parts", "shape", "problem"),
    [
        ([((), ())], (), None),
        ([], (), "0 of its 1"),
        ([((), ())] * 2, (), "overlap"),
        ([((0, 0), (0, 3))], (0, 3), None),
        ([((0,), (2,)), ((2,), (0,)), ((2,), (1,))], (3,), None),
        ([((0, 0), (2, 2)), ((1, 1), (1, 1))], (2, 2), "overlap"),
        ([((0, 0), (1, 2)), ((1, 0), (1, 1)), ((1, 1), (1, 1))], (2, 2), None),
        ([((0,), (2,))], (3,), "2 of its 3"),
        ([((2,), (2,))], (3,), "within"),
    ],
)
def test_slices_tile_a_tensor(parts: list, shape: tuple[int, ...], problem: str | None) -> None:
    found = tiling_problem(parts, shape)
    assert found is None if problem is None else problem in str(found)


def test_a_tiling_is_told_from_all_that_is_none_of_the_same_size() -> None:
    """Every pair of parts of a 3 x 3 tensor."""
    boxes = [
        ((i, j), (m, n)) for i in range(3) for j in range(3) for m in range(4) for n in range(4)
    ]
    boxes = [((i, j), (m, n)) for (i, j), (m, n) in boxes if i + m <= 3 and j + n <= 3]
    for parts in itertools.combinations(boxes, 2):
        counts = np.zeros((3, 3), int)
        for (i, j), (m, n) in parts:
            counts[i : i + m, j : j + n] += 1
        assert (tiling_problem(parts, (3, 3)) is None) == (counts == 1).all()


def test_the_time_to_check_slices_is_linear_in_their_number() -> None:
    num = 100_000  # compared in pairs they would take half a minute
    assert tiling_problem([((i, 0), (1, 2)) for i in range(num)], (num, 2)) is None


@pytest.mark.parametrize(
    ("region", "error", "message"),
    [
        (np.s_[::2], ValueError, "step 1"),
        (np.s_[::-1], ValueError, "step 1"),
        (np.s_[3], TypeError, r"numpy\.s_\[10:20\]; got 3"),
        (np.s_[:, :, :], ValueError, "3 slices of a tensor of shape"),
        (np.s_[..., 1:], TypeError, "got Ellipsis"),
    ],
)
def test_a_region_is_made_of_plain_slices(
    tmp_path: Path, region: slice, error: type[Exception], message: str
) -> None:
    checkpoint = load(save(tmp_path, 1, {"x": WHOLE}))
    with pytest.raises(error, match=message):
        checkpoint.read("x", region)


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads at an offset, which is how tensors are read."""
    sizes: list[int] = []
    preadv = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        sizes.append(preadv(descriptor, buffers, offset))
        return sizes[-1]

    monkeypatch.setattr(os, "preadv", counted)
    return sizes


@pytest.fixture
def large(tmp_path: Path) -> CheckpointReader:
    """20 tensors of 500 KB and one of 20 MB in four slices of rows."""
    arrays = {f"{i}": np.full(125_000, i, np.float32) for i in range(20)}
    table = np.arange(5_000_000, dtype=np.float32).reshape(50_000, 100)
    quarters = [rows(i, i + 12_500, table) for i in range(0, 50_000, 12_500)]
    return load(save(tmp_path, 1, {**arrays, "table": quarters}))


def test_a_quarter_of_the_tensors_reads_a_quarter_of_the_bytes(
    large: CheckpointReader, bytes_read: list[int]
) -> None:
    found = large.arrays([f"{i}" for i in range(5)])
    assert list(found) == ["0", "1", "2", "3", "4"]
    assert sum(bytes_read) == 5 * 500_000


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (12_490, 12_510), (20_000, 30_000), (5, 5)])
def test_some_rows_read_little_more_than_their_bytes(
    large: CheckpointReader, bytes_read: list[int], start: int, stop: int
) -> None:
    found = large.read("table", np.s_[start:stop])
    np.testing.assert_array_equal(found[:, 0], 100.0 * np.arange(start, stop))
    num_slices = 2 if start < 12_500 < stop or start < 25_000 < stop else 1
    assert sum(bytes_read) <= (stop - start) * 400 + num_slices * 2 * 2**20


def test_a_reader_of_rows_reads_its_rows_of_each_tensor(
    large: CheckpointReader, bytes_read: list[int]
) -> None:
    found = read_slices(large.path, {"table": (12_490, 12_510), "3": None, "4": (7, 7)})
    np.testing.assert_array_equal(found["table"][:, 0], 100.0 * np.arange(12_490, 12_510))
    assert found["3"].tolist() == [3.0] * 125_000
    assert found["4"].shape == (0,)
    assert sum(bytes_read) <= 500_000 + 4 * 2**20


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ({"table": (0, 50_001)}, ValueError, r"rows 0 to 50001 of tensor 'table' .*50000, 100"),
        ({"table": (5, 4)}, ValueError, "rows 5 to 4"),
        ({"table": (-1, 4)}, ValueError, "rows -1 to 4"),
        ({"tabel": None}, CheckpointError, "no tensor 'tabel'; .*'table'"),
    ],
)
def test_rows_that_are_not_there_are_refused_before_any_is_read(
    large: CheckpointReader, bytes_read: list[int], rows: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        read_slices(large.path, {"3": None, **rows})
    assert sum(bytes_read) < 10_000, "the header alone"


def test_rows_are_verified_though_the_rest_is_not_read(large: CheckpointReader) -> None:
    shard = Path(large.path) / "data-00000-of-00001.safetensors"
    data = bytearray(shard.read_bytes())
    position = data.index(np.arange(3_000_000, 3_000_100, dtype=np.float32).tobytes())
    data[position] ^= 1
    shard.write_bytes(data)
    assert large.read("table", np.s_[:10]).shape == (10, 100)
    assert large.read("table", np.s_[40_000:]).shape == (10_000, 100)
    for region in (np.s_[:], np.s_[30_000:30_001]):
        with pytest.raises(CheckpointError, match="bytes of tensor 'table' do not fit"):
            large.read("table", region)


def test_asking_for_a_tensor_that_is_not_there_reads_nothing(
    large: CheckpointReader, bytes_read: list[int]
) -> None:
    with pytest.raises(CheckpointError, match="no tensor 'missing'"):
        large.arrays(["0", "missing"])
    assert bytes_read == []
