"""Every chain of steps, under every policy, on 1 to 3 workers: each example exactly once.

The steps turn numbers into numbers, so that any of them can follow any other. What a chain gives is
what it gives alone, in order: a policy changes who sees an example, and nothing else.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import (
    AutoShardPolicy,
    Dataset,
    Options,
    per_replica_batches,
    split_global_batches,
    text_lines,
)

Step = Callable[[Dataset], Dataset]
FILE_SIZES = (5, 3, 6)
NUM_EXAMPLES = sum(FILE_SIZES)
WORKERS = (1, 2, 3)


def out_of_order() -> Callable[[Any], Any]:
    """A function of which every second call ends before the one before it, if it comes at all."""
    numbers, next_is_done = count(), threading.Event()

    def same(value: Any) -> Any:
        if next(numbers) % 2 == 0:
            next_is_done.wait(timeout=0.002)
            next_is_done.clear()
        else:
            next_is_done.set()
        return value

    return same


def refuse_sevens(value: Any) -> Any:
    if value % 7 == 0:
        raise ValueError(f"{value} is refused")
    return value


def pair_or_fail(first: Any, second: Any) -> Any:
    assert first == second
    return first


def twice(value: Any) -> Dataset:
    return Dataset.from_tensors(value).concatenate(Dataset.from_tensors(value + 100))


STEPS: dict[str, Step] = {
    "map": lambda d: d.map(lambda v: v + 1),
    "parallel map": lambda d: d.map(lambda v: v, num_parallel_calls=2),
    "unordered map": lambda d: d.map(out_of_order(), 2, deterministic=False),
    "unordered option": lambda d: d.map(out_of_order(), 2).with_options(
        Options(deterministic=False)
    ),
    "map_batched": lambda d: d.map_batched(lambda v: v + 0, 3),
    "filter": lambda d: d.filter(lambda v: v % 3 != 0),
    "interleave": lambda d: d.interleave(twice, cycle_length=2),
    "parallel interleave": lambda d: d.interleave(twice, 3, 1, 2, deterministic=False),
    "shuffle": lambda d: d.shuffle(5, seed=3),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(7),
    "skip": lambda d: d.skip(3),
    "shard": lambda d: d.shard(2, 1),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(2),
    "ignore_errors": lambda d: d.map(refuse_sevens).ignore_errors(lambda number, error: None),
    "require_finite": lambda d: d.require_finite(),
    "enumerate": lambda d: d.enumerate().map(lambda number, v: v + number),
    "zip": lambda d: Dataset.zip(d, d).map(pair_or_fail),
    "concatenate": lambda d: d.concatenate(d.map(lambda v: v + 1000)),
    "batch, unbatch": lambda d: d.batch(2).unbatch(),
    "padded_batch, unbatch": lambda d: d.padded_batch(4).unbatch(),
    "window": lambda d: d.window(3, shift=2).flat_map(lambda window: window),
}
PAIRS = list(product(STEPS, repeat=2))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder, numbers = tmp_path_factory.mktemp("files"), iter(range(NUM_EXAMPLES))
    for index, size in enumerate(FILE_SIZES):
        lines = "".join(f"{next(numbers)}\n" for _ in range(size))
        Path(folder, f"{index}.txt").write_text(lines)
    files = text_lines(folder / "*.txt").map(lambda line: int(str(line)))
    return {"arrays": Dataset.range(NUM_EXAMPLES), "files": files}


def chained(source: Dataset, names: tuple[str, ...]) -> Dataset:
    return reduce(lambda dataset, name: STEPS[name](dataset), names, source)


def examples(dataset: Dataset) -> Counter[int]:
    return Counter(int(value) for value in dataset)


def numbers_in(step: Any) -> Iterator[int]:
    return (int(value) for part in step for value in part)


def read(iterators: list[Any], num_steps: int | None = None) -> list[Counter[int]]:
    """What each worker sees in so many steps, or to the end; the iterators are closed then."""
    seen = []
    for iterator in iterators:
        steps = islice(iterator, num_steps)
        seen.append(Counter(number for step in steps for number in numbers_in(step)))
    return seen


def resume(make: Callable[[int, int], Any], counts: tuple[int, int]) -> list[Counter[int]] | None:
    """What each of the later workers sees, with what all saw before; None if that is refused."""
    before, after = counts
    iterators = [make(before, index) for index in range(before)]
    seen = read(iterators, num_steps=2)
    states = [json.loads(json.dumps(iterator.get_state())) for iterator in iterators]
    later = [make(after, index) for index in range(after)]
    try:
        for index, iterator in enumerate(later):
            iterator.set_states(states, index)
    except ValueError:
        return None
    finally:
        for iterator in iterators:
            iterator.close()
    return [*seen, *read(later)]


def distributed(dataset: Dataset, policy: AutoShardPolicy) -> Callable[[int, int], Any]:
    batches = dataset.batch(4).with_options(Options(auto_shard_policy=policy))

    def make(num_workers: int, index: int) -> Any:
        return iter(split_global_batches(batches, 1, num_workers, shard=(num_workers, index)))

    return make


def check_policies(source: Dataset, names: tuple[str, ...]) -> None:
    dataset = chained(source, names)
    expected = examples(dataset)
    for policy, num_workers in product(AutoShardPolicy, WORKERS):
        make = distributed(dataset, policy)
        if policy is AutoShardPolicy.FILE and dataset.plan.num_files is None:
            with pytest.raises(ValueError, match="does not begin with files, or has a step"):
                make(num_workers, 0)
            continue
        seen = read([make(num_workers, index) for index in range(num_workers)])
        case = (names, policy, num_workers)
        if policy is AutoShardPolicy.OFF:
            assert seen == [expected] * num_workers, case
        else:
            assert sum(seen, Counter()) == expected, case


def check_resuming(source: Dataset, names: tuple[str, ...], counts: tuple[int, int]) -> None:
    dataset = chained(source, names)
    expected = examples(dataset)
    for policy in (AutoShardPolicy.DATA, AutoShardPolicy.OFF, AutoShardPolicy.AUTO):
        found = resume(distributed(dataset, policy), counts)
        case = (names, policy, counts)
        if policy is AutoShardPolicy.OFF:
            for worker in range(counts[1] if found else 0):
                assert found[0] + found[counts[0] + worker] == expected, case
        elif found is not None:
            assert sum(found, Counter()) == expected, case
        else:
            assert policy is AutoShardPolicy.AUTO, case
            assert dataset.plan.num_files, case


def check_sharding(source: Dataset, names: tuple[str, ...], counts: tuple[int, int]) -> None:
    """Whatever is before and behind the shard of an input function, which resumes or says no."""
    first, last = names

    def make(num_workers: int, index: int) -> Any:
        sharded = STEPS[last](STEPS[first](source).shard(num_workers, index))
        return iter(per_replica_batches(sharded.batch(2), 1, worker=(num_workers, index)))

    whole = sum(read([make(counts[0], index) for index in range(counts[0])]), Counter())
    found = resume(make, counts)
    if found is not None:
        assert sum(found, Counter()) == whole, (names, counts)
    else:
        # The second step makes something else of each shard than of the order that is divided.
        assert last not in ("map", "parallel map", "unordered map", "map_batched", "prefetch")


@pytest.mark.parametrize("source", ["arrays", "files"])
@pytest.mark.parametrize("name", STEPS)
def test_every_step_gives_each_example_once_under_every_policy(
    name: str, source: str, sources: dict[str, Dataset]
) -> None:
    check_policies(sources[source], (name,))
    for counts in product(WORKERS, repeat=2):
        check_resuming(sources[source], (name,), counts)


@pytest.mark.parametrize("source", ["arrays", "files"])
@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.sampled_from([*STEPS]), min_size=2, max_size=3).map(tuple))
def test_chains_give_each_example_once_under_every_policy(
    source: str, sources: dict[str, Dataset], names: tuple[str, ...]
) -> None:
    check_policies(sources[source], names)


@pytest.mark.parametrize("source", ["arrays", "files"])
@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.sampled_from([*STEPS]), min_size=2, max_size=3).map(tuple),
    counts=st.tuples(*[st.sampled_from(WORKERS)] * 2),
)
def test_chains_resume_on_another_number_of_workers_without_loss(
    source: str, sources: dict[str, Dataset], names: tuple[str, ...], counts: tuple[int, int]
) -> None:
    check_resuming(sources[source], names, counts)


@pytest.mark.parametrize("source", ["arrays", "files"])
@settings(max_examples=80, deadline=None)
@given(names=st.sampled_from(PAIRS), counts=st.tuples(*[st.sampled_from(WORKERS)] * 2))
def test_shards_resume_on_another_number_of_workers_without_loss(
    source: str, sources: dict[str, Dataset], names: tuple[str, str], counts: tuple[int, int]
) -> None:
    check_sharding(sources[source], names, counts)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["arrays", "files"])
@pytest.mark.parametrize("first", STEPS)
def test_all_pairs_of_steps(first: str, source: str, sources: dict[str, Dataset]) -> None:
    for second in STEPS:
        names = first, second
        check_policies(sources[source], names)
        for counts in [(2, 3), (3, 1)]:
            check_resuming(sources[source], names, counts)
            check_sharding(sources[source], names, counts)
