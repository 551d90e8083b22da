"""Workers whose data end at different steps: all iterate together, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.inputs import (
    AutoShardPolicy,
    Dataset,
    Options,
    per_replica_batches,
    per_replica_pipelines,
    split_global_batches,
    text_lines,
)


def as_lists(steps: Any) -> list[list[list[int]]]:
    return [[part["n"].tolist() for part in step] for step in steps]


def numbers(count: int) -> Dataset:
    return Dataset.from_tensor_slices({"n": np.arange(count), "x": np.zeros((count, 3))})


def up_to(num_steps: int) -> Callable[[bool], bool]:
    """As long as there are workers with so many steps."""
    answers = iter([True] * num_steps)
    return lambda has_data: has_data | next(answers, False)


def test_in_16_a_worker_whose_data_have_ended_gets_empty_batches_until_all_have() -> None:
    distributed = per_replica_batches(numbers(5).batch(2), 2, any_has_data=up_to(4))
    steps = list(distributed)
    assert as_lists(steps) == [[[0, 1], [2, 3]], [[4], []], [[], []], [[], []]]
    assert [(part["x"].shape, part["x"].dtype) for part in steps[3]] == [((0, 3), np.float64)] * 2
    assert as_lists(distributed.own_steps()) == [[[0, 1], [2, 3]], [[4], []]]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_in_16_a_worker_without_any_data_takes_part(prefetch: int) -> None:
    distributed = per_replica_batches(
        numbers(3).skip(3).batch(2), 2, prefetch=prefetch, any_has_data=up_to(1)
    )
    (step,) = distributed
    assert [(part["n"].dtype, part["x"].shape) for part in step] == [(np.int64, (0, 3))] * 2


@pytest.mark.parametrize(
    ("distribute", "asks"),
    [
        (lambda d, ask: split_global_batches(d, 1, 2, shard=(2, 0), any_has_data=ask), False),
        (
            lambda d, ask: split_global_batches(
                d.with_options(Options(auto_shard_policy=AutoShardPolicy.OFF)),
                1,
                2,
                shard=(2, 0),
                any_has_data=ask,
            ),
            True,
        ),
        (lambda d, ask: per_replica_batches(d, 1, any_has_data=ask), True),
        (lambda d, ask: per_replica_batches(d.repeat().take(3), 1, any_has_data=ask), True),
        (lambda d, ask: per_replica_batches(d.repeat(), 1, any_has_data=ask), False),
        (lambda d, ask: per_replica_pipelines([d], any_has_data=ask), True),
        (lambda d, ask: per_replica_pipelines([d, d.repeat()], any_has_data=ask), False),
    ],
)
def test_workers_are_asked_only_where_their_numbers_of_steps_may_differ(
    distribute: Callable[..., Any], asks: bool
) -> None:
    asked = []
    next(iter(distribute(numbers(4).batch(2), lambda has_data: asked.append(has_data) or True)))
    assert asked == [True] * asks


@pytest.mark.parametrize("num_given", [0, 2, 3, 4])
def test_in_26_a_worker_resumes_before_and_behind_the_end_of_its_data(num_given: int) -> None:
    def make(num_steps: int) -> Any:
        return iter(per_replica_batches(numbers(5).batch(2), 1, any_has_data=up_to(num_steps)))

    iterator = make(5)
    expected = as_lists(make(5))
    for _ in range(num_given):
        next(iterator)
    resumed = make(5 - num_given)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert as_lists(resumed) == expected[num_given:]


@pytest.mark.parametrize("way", ["global batches", "per-replica batches"])
def test_in_11_files_of_unequal_length_keep_no_worker_waiting(
    way: str, tmp_path: Path, on_workers: Callable[..., Any]
) -> None:
    for i, size in enumerate([9, 2]):
        (tmp_path / f"{i}.txt").write_text("".join(f"{i}{j}\n" for j in range(size)))

    def work(strategy: Any, index: int) -> Any:
        if way == "global batches":
            lines = text_lines(tmp_path / "*.txt").map(lambda line: int(str(line)))
            distributed = strategy.experimental_distribute_dataset(lines.batch(4))
        else:
            lines = text_lines(tmp_path / f"{index}.txt").map(lambda line: int(str(line)))
            distributed = strategy.distribute_datasets_from_function(lambda _: lines.batch(2))
        return [int(strategy.reduce("SUM", batch, axis=0)) for batch in distributed]

    first, second = on_workers(2, 1, work)
    assert first == second
    assert len(first) == 5
    assert sum(first) == sum(range(9)) + 10 + 11
