"""What workers that divide one dataset must have alike is compared before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.inputs import (
    AutoShardPolicy,
    Dataset,
    InputContext,
    InputOptions,
    InputReplicationMode,
    Options,
    default_seed,
    seed_shuffles,
    text_lines,
)

DATA = Options(auto_shard_policy=AutoShardPolicy.DATA)
OFF = Options(auto_shard_policy=AutoShardPolicy.OFF)


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    yield
    paceline.set_seed(None)


def files(folder: Path, count: int, prefix: str = "") -> Dataset:
    for index in range(count):
        (folder / f"{prefix}{index}.txt").write_text("line\n")
    return text_lines(folder / f"{prefix}[0-9].txt")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda i, _: Dataset.range(8).shuffle(8, seed=i), r"the dataset, .*seed=0.*seed=1"),
        (
            lambda i, _: Dataset.range(8 + i),
            r"the dataset, .* 0 has range\(0, 8, 1\).* 1 has range\(0, 9",
        ),
        (lambda i, _: Dataset.range(8).shard(2, i), r"the dataset, but worker 0 .*shard\(2, 0\)"),
        (
            lambda i, _: Dataset.range(8).batch(2 + i).unbatch(),
            r"the dataset, .*batch\(2\).*batch\(3\)",
        ),
        (lambda i, _: Dataset.range(8).with_options([DATA, OFF][i]), "the policy, .* DATA .* OFF"),
        (lambda i, folder: files(folder, 2, "ab"[i]), r"the dataset, but .*text_lines\(2 files"),
    ],
)
def test_global_batches_of_workers_must_be_the_same(
    make: Callable[[int, Path], Dataset],
    message: str,
    tmp_path: Path,
    on_workers: Callable[..., Any],
) -> None:
    def work(strategy: Any, index: int) -> None:
        with pytest.raises(ValueError, match=f"agree on {message}"):
            strategy.experimental_distribute_dataset(make(index, tmp_path).batch(2))

    on_workers(2, 1, work)


@pytest.mark.parametrize("mode", InputReplicationMode)
def test_shards_of_workers_must_be_of_one_order(
    mode: InputReplicationMode, on_workers: Callable[..., Any]
) -> None:
    def distribute(strategy: Any, seed: int, order: Callable[[], Dataset]) -> Any:
        def dataset_fn(context: InputContext) -> Dataset:
            part = context.num_input_pipelines, context.input_pipeline_id
            return order().shard(*part).batch(2)

        options = InputOptions(experimental_replication_mode=mode)
        with default_seed(seed):
            return strategy.distribute_datasets_from_function(dataset_fn, options)

    def work(strategy: Any, index: int) -> None:
        with pytest.raises(ValueError, match=r"agree on the dataset, .*seed=0.*seed=1"):
            distribute(strategy, 1, lambda: Dataset.range(8).shuffle(8, seed=index))
        with pytest.raises(ValueError, match=r"agree on the seed, but worker 0 has 5 .* 1 has 6"):
            distribute(strategy, 5 + index, lambda: Dataset.range(8).shuffle(8))
        distribute(strategy, 5, lambda: Dataset.range(8).shuffle(8))
        # Nothing draws on it, or only what is not shared.
        distribute(strategy, 5 + index, lambda: Dataset.range(8).shuffle(8, seed=1))

    on_workers(2, 2, work)


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Dataset.range(8).shuffle(8, seed=InputContext(2, i, 2).worker_seed(1)),
        lambda i: Dataset.range(8 + i).shard(10, 0),
        lambda i: Dataset.range(8 + i).shard(2, 0),
        lambda i: Dataset.range(8).shard(2, i).shuffle(8, seed=i),
    ],
)
def test_workers_may_read_what_they_like_where_they_divide_nothing(
    make: Callable[[int], Dataset], on_workers: Callable[..., Any]
) -> None:
    def work(strategy: Any, index: int) -> None:
        dataset = make(index).batch(2)
        strategy.distribute_datasets_from_function(lambda _: dataset)
        strategy.experimental_distribute_dataset(dataset.with_options(OFF))

    on_workers(2, 1, work)


def test_set_seed_lets_all_workers_shuffle_alike(on_workers: Callable[..., Any]) -> None:
    paceline.set_seed(3)
    dataset = Dataset.range(24).shuffle(24)

    def work(strategy: Any, index: int) -> list[int]:
        steps = strategy.experimental_distribute_dataset(dataset.batch(4))
        return [int(value) for step in steps for value in step]

    first, second = on_workers(2, 1, work)
    assert sorted(first + second) == [*range(24)] != first + second


@pytest.mark.parametrize("verb", ["global batches", "per-replica batches"])
def test_a_worker_that_is_a_pass_ahead_is_named(verb: str, on_workers: Callable[..., Any]) -> None:
    """One that has looked at a batch beforehand, say, would draw the order of another pass."""

    def work(strategy: Any, index: int) -> None:
        def distribute(reshuffle: bool) -> Any:
            order = Dataset.range(12).shuffle(12, 1, reshuffle_each_iteration=reshuffle)
            if verb == "global batches":
                return strategy.experimental_distribute_dataset(order.batch(4))
            return strategy.distribute_datasets_from_function(
                lambda context: order.repeat().shard(2, context.input_pipeline_id).batch(2)
            )

        for reshuffle in (True, False):
            steps = distribute(reshuffle)
            for _ in range(2):
                next(iter(steps))
            ahead = steps.own_steps() if index == 1 else None
            if reshuffle:
                with pytest.raises(ValueError, match=r"agree on the number of passes .* 2 .* 3"):
                    iter(steps)
            else:
                next(iter(steps))
            assert ahead is None or next(ahead) is not None

    on_workers(2, 1, work)


def test_a_seed_that_is_set_on_one_worker_only_is_named(on_workers: Callable[..., Any]) -> None:
    def work(strategy: Any, index: int) -> None:
        with default_seed(1):
            steps = strategy.experimental_distribute_dataset(Dataset.range(8).shuffle(8).batch(4))
        with (
            default_seed(1 + index),
            pytest.raises(ValueError, match=r"agree on the seed, .* 1 .* 2"),
        ):
            iter(steps)

    on_workers(2, 1, work)


@pytest.mark.parametrize("seed", [paceline.set_seed, seed_shuffles])
def test_one_seed_decides_all_shuffles_without_one(seed: Callable[[int | None], None]) -> None:
    def order() -> list[int]:
        return [int(v) for v in Dataset.range(50).shuffle(50)]

    seed(1)
    first = order()
    assert order() == first
    with default_seed(2):
        second = order()
    with default_seed(1):
        assert order() == first != second
    with default_seed(None):
        assert order() == first
    seed(None)
    assert order() != order()


def test_a_seed_that_is_none_is_refused_and_changes_nothing() -> None:
    paceline.set_seed(1)
    first = [int(v) for v in Dataset.range(50).shuffle(50)]
    for wrong in (1.5, "1", 1 << 63):
        with pytest.raises((TypeError, ValueError), match="seed must be"):
            paceline.set_seed(wrong)  # type: ignore[arg-type]
    assert [int(v) for v in Dataset.range(50).shuffle(50)] == first


def test_options_leave_as_it_is_what_they_do_not_say() -> None:
    dataset = Dataset.range(4).with_options(OFF).with_options(Options(deterministic=False))
    assert dataset.options() == Options(auto_shard_policy=AutoShardPolicy.OFF, deterministic=False)
    assert dataset.with_options(DATA).options().auto_shard_policy is AutoShardPolicy.DATA
    assert dataset.with_options(Options(deterministic=True)).options().deterministic is True


@pytest.mark.parametrize(
    "join", [lambda a, b: Dataset.zip(a, b), lambda a, b: a.concatenate(b)], ids=["zip", "concat"]
)
def test_datasets_that_become_one_bring_their_options_along(
    join: Callable[[Dataset, Dataset], Dataset],
) -> None:
    plain, off = Dataset.range(4), Dataset.range(4).with_options(OFF)
    assert join(plain, off).options() == join(off, plain).options() == OFF
    unordered = Dataset.range(4).with_options(Options(deterministic=False))
    assert (
        join(off, unordered).options() == off.with_options(Options(deterministic=False)).options()
    )
    with pytest.raises(ValueError, match=r"must not contradict each other, .*OFF.*DATA"):
        join(off, plain.with_options(DATA))
