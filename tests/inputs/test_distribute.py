"""Dealing batches out to replicas: golden numbers, ragged and empty parts, several workers."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import (
    AutoShardPolicy,
    Dataset,
    InputContext,
    Options,
    default_seed,
    nest,
    per_replica_batches,
    per_replica_pipelines,
    split_global_batches,
    text_lines,
)
from paceline.inputs.distribute import resolved_policy


def as_lists(steps: Any) -> list[list[list[int]]]:
    return [[part.tolist() for part in step] for step in steps]


def test_g_06_a_range_of_four_in_batches_of_two_over_two_replicas() -> None:
    dataset = Dataset.range(4).batch(2).map(lambda x: 2 * x)
    assert as_lists(split_global_batches(dataset, 2, 2)) == [[[0], [2]], [[4], [6]]]


def test_g_10_a_last_batch_of_six_of_eight_goes_as_four_and_two() -> None:
    steps = as_lists(split_global_batches(Dataset.range(14).batch(8), 2, 2))
    assert steps == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 10, 11], [12, 13]]]


def test_in_10_a_batch_of_seven_goes_as_four_and_three() -> None:
    steps = as_lists(split_global_batches(Dataset.range(7).batch(7), 2, 2))
    assert steps == [[[0, 1, 2, 3], [4, 5, 6]]]


def test_in_16_five_samples_in_batches_of_four_leave_a_replica_empty() -> None:
    dataset = Dataset.from_tensor_slices({"x": np.zeros((5, 3)), "n": np.arange(5), "z": None})
    first, last = split_global_batches(dataset.batch(4), 2, 2)
    assert [part["n"].tolist() for part in (*first, *last)] == [[0, 1], [2, 3], [4], []]
    assert last[1]["x"].shape == (0, 3)
    assert last[1]["z"] is None
    assert nest.batch_size(last[1]) == 0


@settings(max_examples=80, deadline=None)
@given(
    num_examples=st.integers(0, 30),
    batch=st.integers(1, 12),
    num_workers=st.integers(1, 3),
    num_local=st.integers(1, 3),
)
def test_in_09_every_example_reaches_exactly_one_replica_in_order(
    num_examples: int, batch: int, num_workers: int, num_local: int
) -> None:
    dataset = Dataset.range(num_examples).batch(batch)
    workers = [
        as_lists(
            split_global_batches(
                dataset, num_local, num_workers * num_local, shard=(num_workers, worker)
            )
        )
        for worker in range(num_workers)
    ]
    for step, expected in enumerate(dataset):
        parts = [part for worker in workers for part in worker[step]]
        assert [v for part in parts for v in part] == expected.tolist()
        sizes = [len(part) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        if len(expected) == batch:
            assert max(sizes) - min(sizes) <= 1
    assert {len(worker) for worker in workers} == {-(-num_examples // batch)}


def test_in_09_one_replica_gets_the_batch_itself() -> None:
    images = np.zeros((4, 2))
    ((batch,),) = split_global_batches(Dataset.from_tensor_slices(images).batch(4), 1, 1)
    assert batch.shape == (4, 2)


def test_in_09_the_depth_of_prefetching_is_observable() -> None:
    dataset = Dataset.range(20).map(lambda x: x).batch(2)
    distributed = split_global_batches(dataset, 2, 2, prefetch=2)
    assert distributed.describe().endswith("prefetch 2")
    iterator = iter(distributed)
    next(iterator)
    assert [t.name for t in threading.enumerate()].count("paceline-prefetch") == 1
    iterator.close()


def memory_map(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "rows.npy", np.arange(20))
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize(
    ("make", "is_at_hand"),
    [
        (lambda _: Dataset.range(20), True),
        (lambda _: Dataset.from_tensors([1]).repeat(5), True),
        (lambda _: Dataset.range(20).shuffle(5).repeat(2).skip(1).shard(2, 0).batch(2), True),
        (lambda _: Dataset.zip(Dataset.range(20), Dataset.range(4).batch(2).unbatch()), True),
        (lambda _: Dataset.from_generator(range(20)).prefetch(1).batch(3), True),
        (lambda _: Dataset.from_generator(range(20)).prefetch(0), False),
        (lambda _: Dataset.zip(Dataset.range(20), Dataset.from_generator(range(20))), False),
        (lambda _: Dataset.range(20).map_batched(lambda x: x).batch(2), False),
        (lambda _: Dataset.range(20).batch(2).require_finite(), False),
        (lambda path: Dataset.from_tensor_slices((memory_map(path), np.arange(20))), False),
        (lambda _: Dataset.from_source(list(range(20))), False),
    ],
)
def test_in_09_nothing_is_prefetched_that_is_in_memory_or_prefetched_already(
    make: Callable[[Path], Dataset], is_at_hand: bool, tmp_path: Path
) -> None:
    distributed = split_global_batches(make(tmp_path).batch(2), 1, 1, prefetch=3)
    assert distributed.describe().endswith(f"prefetch {0 if is_at_hand else 3}")


def batches_of(starts: list[int]) -> list[Dataset]:
    return [Dataset.range(start, start + 5).batch(2).take(n) for n, start in enumerate(starts, 1)]


def test_in_25_replicas_with_pipelines_of_their_own_go_on_until_the_last_has_ended() -> None:
    distributed = per_replica_pipelines(batches_of([10, 20, 30]))
    assert as_lists(distributed) == [
        [[10, 11], [20, 21], [30, 31]],
        [[], [22, 23], [32, 33]],
        [[], [], [34]],
    ]
    assert distributed.cardinality() == 3
    assert distributed.describe() == (
        "policy OFF, an input pipeline for each of 3 replicas, 3 step(s), prefetch 0"
    )


def test_in_25_replicas_with_pipelines_of_their_own_resume_from_every_step(
    assert_resumes_from_every_element: Any,
) -> None:
    assert_resumes_from_every_element(lambda: per_replica_pipelines(batches_of([10, 20, 30])))


def test_in_25_pipelines_that_shard_draw_the_same_order() -> None:
    datasets = [Dataset.range(9).shuffle(9).shard(2, i).batch(2) for i in range(2)]
    steps = as_lists(per_replica_pipelines(datasets))
    assert sorted(v for step in steps for part in step for v in part) == list(range(9))
    with pytest.raises(ValueError, match=r"shuffle\(\) has no seed"):
        iter(per_replica_pipelines(datasets, worker=(2, 0)))


def test_in_03_each_replica_takes_an_element_of_its_own() -> None:
    num_read = 0

    def batches() -> Any:
        nonlocal num_read
        for i in range(10):
            num_read += 1
            yield [i]

    steps = as_lists(per_replica_batches(Dataset.from_generator(batches), 2))
    assert steps == [[[i], [i + 1]] for i in range(0, 10, 2)]
    assert num_read == 10


def test_in_13_nothing_is_rebatched_and_the_end_leaves_replicas_empty() -> None:
    dataset = Dataset.from_tensor_slices((np.arange(7), np.zeros((7, 2), np.float32))).batch(2)
    steps = list(per_replica_batches(dataset, 3))
    assert [[part[0].tolist() for part in step] for step in steps] == [
        [[0, 1], [2, 3], [4, 5]],
        [[6], [], []],
    ]
    assert [(part[1].shape, part[1].dtype) for part in steps[1]] == [
        ((1, 2), np.float32),
        ((0, 2), np.float32),
        ((0, 2), np.float32),
    ]


def test_elements_without_a_batch_dimension_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match=r"no leading dimension .* as Dataset\.batch does"):
        list(per_replica_batches(Dataset.range(3), 2))
    with pytest.raises(ValueError, match="no leading dimension"):
        list(split_global_batches(Dataset.range(3), 2, 2))


def test_a_batch_whose_parts_disagree_is_named() -> None:
    dataset = Dataset.from_generator([(np.zeros(3), np.zeros(2))])
    with pytest.raises(ValueError, match=r"batch\[0\] has 3 examples but batch\[1\] has 2"):
        list(split_global_batches(dataset, 2, 2))


def test_a_step_is_made_by_the_caller_s_function() -> None:
    steps = list(
        split_global_batches(Dataset.range(4).batch(2), 2, 2, wrap=lambda parts: {"parts": parts})
    )
    assert [list(step) for step in steps] == [["parts"], ["parts"]]
    assert isinstance(steps[0]["parts"], tuple)


def test_in_12_a_distributed_dataset_is_iterable_many_times() -> None:
    distributed = split_global_batches(Dataset.range(4).batch(2), 2, 2)
    assert as_lists(distributed) == as_lists(distributed)
    shuffled = split_global_batches(Dataset.range(40).shuffle(40, seed=1).batch(40), 1, 1)
    assert as_lists(shuffled) != as_lists(shuffled)


def test_in_12_a_distributed_dataset_has_the_spec_of_its_elements() -> None:
    distributed = split_global_batches(Dataset.range(4).batch(2), 2, 2)
    assert distributed.element_spec.shape == (None,)


def test_the_number_of_steps_is_known_without_reading() -> None:
    assert split_global_batches(Dataset.range(9).batch(2), 2, 2).cardinality() == 5
    assert per_replica_batches(Dataset.range(9).batch(2), 2).cardinality() == 3
    assert per_replica_batches(Dataset.range(9).batch(2).repeat(), 2).cardinality() == -1


@pytest.mark.parametrize("name", ["map", "batch", "shuffle", "repeat", "take", "prefetch"])
def test_in_12_a_transformation_is_refused_with_advice(name: str) -> None:
    distributed = split_global_batches(Dataset.range(4).batch(2), 2, 2)
    advice = rf"no {name}\(\): .* Call {name}\(\) on the Dataset before it is distributed"
    with pytest.raises(AttributeError, match=advice):
        getattr(distributed, name)
    assert not hasattr(distributed, "shape")


def test_in_17_a_distributed_iterator_goes_on_after_ten_steps() -> None:
    iterator = iter(split_global_batches(Dataset.range(24).batch(2), 2, 2))
    for _ in range(10):
        next(iterator)
    assert as_lists([next(iterator)]) == [[[20], [21]]]


@pytest.mark.parametrize(
    ("distributed", "text"),
    [
        (
            split_global_batches(Dataset.range(4).batch(64).repeat(), 2, 2),
            "policy DATA, shard 0 of 1, global batch 64 over 2 replicas, endless, prefetch 0",
        ),
        (
            split_global_batches(Dataset.range(70).batch(7), 1, 2, shard=(2, 1)),
            (
                "policy DATA, shard 1 of 2, global batch 7 over 2 replicas (3 here), 10 step(s), "
                "prefetch 0"
            ),
        ),
        (
            split_global_batches(Dataset.from_generator([[1]]), 1, 3, shard=(3, 2), prefetch=1),
            (
                "policy DATA, shard 2 of 3, global batch of unknown size over 3 replicas, "
                "of unknown length, prefetch 1"
            ),
        ),
        (
            per_replica_batches(Dataset.range(4).batch(32).map(lambda x: x), 2),
            "policy OFF, per-replica batches of 32 for 2 replicas, 1 step(s), prefetch 0",
        ),
    ],
)
def test_in_11_d_06_one_line_tells_how_the_data_is_dealt_out(distributed: Any, text: str) -> None:
    assert distributed.describe() == text


def test_several_workers_need_the_same_seed() -> None:
    dataset = Dataset.range(8).shuffle(8).batch(4)
    with pytest.raises(ValueError, match=r"shuffle\(\) has no seed, so each worker would draw"):
        iter(split_global_batches(dataset, 1, 2, shard=(2, 0)))


@pytest.mark.parametrize("way", ["shuffle", "argument", "default"])
def test_in_11_workers_with_the_same_seed_share_the_data_without_overlap(way: str) -> None:
    seen: list[int] = []
    for worker in range(2):
        dataset = Dataset.range(8).shuffle(8, seed=1 if way == "shuffle" else None).batch(4)
        distributed = split_global_batches(
            dataset, 1, 2, shard=(2, worker), seed=1 if way == "argument" else None
        )
        with default_seed(1 if way == "default" else None):
            seen += [v for (part,) in distributed for v in part.tolist()]
    assert sorted(seen) == list(range(8))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_local_replicas": 0}, ValueError, "num_local_replicas must be at least 1, got 0"),
        ({"num_replicas": 3}, ValueError, r"times the number of shards, 2 \* 1, got 3"),
        ({"shard": (2, 2)}, ValueError, "the shard's index must be below .* = 2, got 2"),
        ({"prefetch": -1}, ValueError, "prefetch must be at least 0, got -1"),
        ({"dataset": [1, 2]}, TypeError, "dataset must be a Dataset, got list"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"dataset": Dataset.range(4), "num_local_replicas": 2, "num_replicas": 2}
    with pytest.raises(error, match=message):
        split_global_batches(**(given | arguments))


def files(tmp_path: Path, sizes: list[int]) -> Dataset:
    for i, size in enumerate(sizes):
        (tmp_path / f"{i}.txt").write_text("".join(f"{i}{j}\n" for j in range(size)))
    return text_lines(tmp_path / "*.txt").map(lambda line: int(str(line)))


def file_names(tmp_path: Path, sizes: list[int]) -> Dataset:
    files(tmp_path, sizes)
    return Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)


def on_each_worker(dataset: Dataset, num_workers: int, num_local: int = 1) -> list[Any]:
    return [
        as_lists(
            split_global_batches(
                dataset, num_local, num_workers * num_local, shard=(num_workers, worker)
            )
        )
        for worker in range(num_workers)
    ]


def test_in_11_policy_file_gives_each_worker_files_of_its_own(tmp_path: Path) -> None:
    dataset = files(tmp_path, [5, 2, 3]).batch(4)
    assert on_each_worker(dataset, 2) == [
        [[[0, 1]], [[2, 3]], [[4, 20]], [[21, 22]]],
        [[[10]], [[11]]],
    ]
    assert split_global_batches(dataset, 1, 2, shard=(2, 0)).describe() == (
        "policy FILE, shard 0 of 2, global batch 4 over 2 replicas, 2 of 3 files, prefetch 0"
    )


def test_in_11_auto_does_not_divide_files_where_elements_are_counted(tmp_path: Path) -> None:
    lines = files(tmp_path, [5, 5])
    for dataset in (
        lines.take(6),
        lines.skip(4),
        lines.shard(2, 0),
        lines.enumerate(),
        lines.window(2).flat_map(lambda window: window),
        Dataset.zip(lines, Dataset.range(6)),
        Dataset.zip(lines, lines),
        Dataset.zip(lines, lines.map(lambda n: n)).map(lambda a, b: a),
    ):
        assert "policy DATA" in (
            split_global_batches(dataset.batch(4), 1, 2, shard=(2, 0)).describe()
        )


def test_in_11_files_of_unequal_lengths_stay_together_where_they_are_zipped(tmp_path: Path) -> None:
    """The files of a column may be cut elsewhere than those of another."""
    columns = []
    for name, sizes in (("a", [10, 20]), ("b", [15, 15])):
        numbers = iter(range(30))
        for index, size in enumerate(sizes):
            lines = "".join(f"{next(numbers)}\n" for _ in range(size))
            (tmp_path / f"{name}{index}.txt").write_text(lines)
        columns.append(text_lines(tmp_path / f"{name}?.txt").map(lambda line: int(str(line))))
    pairs = Dataset.zip(*columns).batch(4)
    seen = []
    for worker in range(2):
        for ((first, second),) in split_global_batches(pairs, 1, 2, shard=(2, worker)):
            assert first.tolist() == second.tolist()
            seen += first.tolist()
    assert sorted(seen) == [*range(30)]


def test_the_log_counts_the_files_of_all_datasets_that_follow_each_other(tmp_path: Path) -> None:
    parts = []
    for name, count in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        parts.append(files(tmp_path / name, [2] * count))
    dataset = parts[0].concatenate(parts[1]).batch(2)
    described = [split_global_batches(dataset, 1, 2, shard=(2, i)).describe() for i in range(2)]
    assert ["4 of 7 files" in described[0], "3 of 7 files" in described[1]] == [True, True]


def test_in_11_policy_off_gives_each_worker_all_data(tmp_path: Path) -> None:
    options = Options(auto_shard_policy=AutoShardPolicy.OFF)
    dataset = Dataset.range(6).batch(4).with_options(options)
    expected = [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert on_each_worker(dataset, 2) == [expected, expected]
    assert "policy OFF, shard 1 of 2" in (
        split_global_batches(dataset, 1, 2, shard=(2, 1)).describe()
    )


@pytest.mark.parametrize(
    ("policy", "num_files", "num_workers", "expected"),
    [
        ("AUTO", None, 2, "DATA"),
        ("AUTO", 1, 2, "DATA"),
        ("AUTO", 2, 2, "FILE"),
        ("AUTO", 5, 1, "DATA"),
        ("DATA", 5, 2, "DATA"),
        ("FILE", 5, 2, "FILE"),
        ("OFF", 5, 2, "OFF"),
    ],
)
def test_in_11_auto_divides_files_if_there_are_enough(
    policy: str, num_files: int | None, num_workers: int, expected: str
) -> None:
    found = resolved_policy(AutoShardPolicy[policy], num_files, num_workers)
    assert found is AutoShardPolicy[expected]


@pytest.mark.parametrize(
    ("num_files", "message"),
    [(None, r"does not begin with files, or has .* zip, enumerate\)"), (2, r"has 2 file\(s\)")],
)
def test_in_14_policy_file_without_enough_files_is_refused(
    num_files: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=rf"each of 3 workers, but the dataset {message}\. Use"):
        resolved_policy(AutoShardPolicy.FILE, num_files, 3)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    batch=st.integers(1, 7),
    num_workers=st.integers(1, 3),
    num_local=st.integers(1, 2),
    policy=st.sampled_from(["AUTO", "DATA"]),
)
def test_in_07_every_record_reaches_exactly_one_replica(
    sizes: list[int], batch: int, num_workers: int, num_local: int, policy: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = files(Path(folder), sizes).batch(batch)
        dataset = dataset.with_options(Options(auto_shard_policy=AutoShardPolicy[policy]))
        workers = on_each_worker(dataset, num_workers, num_local)
    seen = [value for worker in workers for step in worker for part in step for value in part]
    assert sorted(seen) == sorted(int(f"{i}{j}") for i, n in enumerate(sizes) for j in range(n))


@pytest.mark.parametrize("policy", ["FILE", "OFF"])
def test_in_26_a_worker_with_files_of_its_own_resumes_from_every_step(
    policy: str, tmp_path: Path, assert_resumes_from_every_element: Any
) -> None:
    options = Options(auto_shard_policy=AutoShardPolicy[policy])
    dataset = files(tmp_path, [5, 2, 6]).shuffle(4, seed=1).batch(4).with_options(options)
    assert_resumes_from_every_element(
        lambda: split_global_batches(dataset, 2, 4, shard=(2, 0), prefetch=1)
    )


@pytest.mark.parametrize("make", [files, file_names])
def test_a_state_of_other_files_is_refused(
    make: Callable[[Path, list[int]], Dataset], tmp_path: Path
) -> None:
    dataset = make(tmp_path, [2, 2, 2]).batch(2)
    states = [
        iter(split_global_batches(dataset, 1, 2, shard=(2, worker))).get_state()
        for worker in range(2)
    ]
    with pytest.raises(ValueError, match=r"files\(2, 0\), but this is an iterator over .*\(2, 1\)"):
        iter(split_global_batches(dataset, 1, 2, shard=(2, 1))).set_state(states[0])
    for worker in range(3):
        iterator = iter(split_global_batches(dataset, 1, 3, shard=(3, worker)))
        with pytest.raises(ValueError, match="read different data, and cannot be resumed as an"):
            iterator.set_states(states, worker)


@pytest.mark.parametrize("num_workers", [1, 2, 3, 6])
def test_in_26_global_batches_go_on_with_another_number_of_workers(num_workers: int) -> None:
    dataset = Dataset.range(50).shuffle(50, seed=1).batch(6)
    everything = [v for batch in dataset for v in batch.tolist()]
    before = iter(split_global_batches(dataset, 2, 4, shard=(2, 1)))
    for _ in range(3):
        next(before)
    state = json.loads(json.dumps(before.get_state()))
    seen = []
    for worker in range(num_workers):
        again = iter(split_global_batches(dataset, 1, num_workers, shard=(num_workers, worker)))
        again.set_state(state)
        seen += [v for step in as_lists(again) for part in step for v in part]
    assert sorted(seen) == sorted(everything[18:])


def test_an_error_tells_the_element_the_step_and_the_worker() -> None:
    def refuse_five(value: Any) -> Any:
        if value == 5:
            raise KeyError("five")
        return value

    dataset = Dataset.range(8).map(refuse_five).batch(2)
    with pytest.raises(KeyError, match="five") as caught:
        list(split_global_batches(dataset, 1, 2, shard=(2, 1)))
    assert caught.value.__notes__ == [
        "At element 5 of the transformation's input.",
        "While making element 2 of range(0, 8, 1).map().batch(2) on worker 1 of 2.",
    ]


def test_shuffles_inside_an_interleave_agree_on_all_workers() -> None:
    dataset = Dataset.range(3).flat_map(lambda _: Dataset.range(9).shuffle(9)).batch(4)
    workers = on_each_worker(dataset, 2)
    seen = [value for worker in workers for step in worker for part in step for value in part]
    assert sorted(seen) == sorted([*range(9)] * 3)


def test_in_08_workers_get_seeds_of_their_own() -> None:
    contexts = [InputContext(3, worker, 3) for worker in range(3)]
    seeds = [context.worker_seed(7) for context in contexts]
    assert len(set(seeds)) == 3
    assert seeds == [context.worker_seed(7) for context in contexts]
    assert contexts[0].worker_seed(8) not in seeds


def test_in_15_endless_datasets_that_differ_only_in_seed_begin_differently() -> None:
    first, second = (
        next(iter(Dataset.range(100).repeat().shuffle(100, InputContext(2, i, 2).worker_seed(1))))
        for i in range(2)
    )
    assert first != second
