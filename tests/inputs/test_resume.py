"""IN-26: an iterator restored from any element's state gives exactly the remaining elements."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import Dataset, default_seed, per_replica_batches, split_global_batches

Transform = Callable[[Dataset], Dataset]


def over_arrays() -> Dataset:
    return Dataset.from_tensor_slices((np.arange(12), np.arange(24.0).reshape(12, 2)))


def over_a_stream() -> Dataset:
    return Dataset.from_generator(lambda: ((i, [2.0 * i, 2.0 * i + 1]) for i in range(12)))


SOURCES = {"arrays": over_arrays, "stream": over_a_stream}
each_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def swap(a: Any, b: Any) -> Any:
    return b, a


def several(a: Any, b: Any) -> Dataset:
    """A dataset of none to three elements."""
    return Dataset.from_tensors((a, b)).repeat(int(a) % 4)


def refuse_some(a: Any, b: Any) -> Any:
    if a % 4 == 1:
        raise ValueError("refused")
    return a, b


CHAINS: dict[str, Transform] = {
    "source alone": lambda d: d,
    "take": lambda d: d.take(5),
    "skip": lambda d: d.skip(5),
    "shard": lambda d: d.shard(3, 1),
    "repeat": lambda d: d.repeat(2),
    "batch": lambda d: d.batch(5),
    "batch without remainder": lambda d: d.batch(5, drop_remainder=True),
    "map": lambda d: d.map(lambda a, b: {"a": a + 1, "b": b}),
    "full shuffle": lambda d: d.shuffle(12),
    "buffered shuffle": lambda d: d.shuffle(4),
    "same order each time": lambda d: d.shuffle(4, reshuffle_each_iteration=False).repeat(2),
    "shuffle by one": lambda d: d.shuffle(1),
    "cache": lambda d: d.cache().repeat(2),
    "cached shuffle": lambda d: d.shuffle(5).cache().repeat(2),
    "prefetch": lambda d: d.prefetch(3),
    "prefetch inside": lambda d: d.shuffle(5).prefetch(2).repeat(2).batch(5),
    "the usual": lambda d: d.shuffle(12).repeat(3).batch(5),
    "the usual with map": lambda d: (
        d.map(lambda a, b: (b, a)).cache().shuffle(5).batch(4).repeat(2)
    ),
    "repeat before shuffle": lambda d: d.repeat(3).shuffle(7).batch(5).prefetch(2),
    "shard of a shuffle": lambda d: d.shuffle(12, seed=5).shard(2, 1).repeat(3).batch(4),
    "shuffle of shuffles": lambda d: d.shuffle(3).repeat(2).shuffle(6).skip(2),
    "endless": lambda d: d.repeat().shuffle(9).take(30).batch(7),
    "zip": lambda d: Dataset.zip(d.shuffle(6), Dataset.range(20).shuffle(20)).repeat(2),
    "nothing": lambda d: d.take(0).repeat(),
    "filter": lambda d: d.filter(lambda a, _: a % 3 > 0).repeat(2),
    "concatenate": lambda d: d.shuffle(5).concatenate(d.take(3)).repeat(2),
    "enumerate": lambda d: d.shuffle(5).enumerate(7),
    "unbatch": lambda d: d.batch(5).unbatch().skip(3),
    "padded batch": lambda d: d.map(lambda a, b: (a, b[: a % 3])).padded_batch(5),
    "map in threads": lambda d: d.shuffle(5).map(lambda a, b: (b, a), num_parallel_calls=3),
    "map in batches": lambda d: d.map_batched(lambda a, b: (b, a + 1), 5).shuffle(4).batch(3),
    "map and batch": lambda d: d.map_and_batch(lambda a, b: (b, a), 5, num_parallel_calls=2),
    "window": lambda d: d.window(4, shift=2, stride=2).flat_map(lambda a, b: a.batch(3)),
    "window with gaps": lambda d: d.window(2, shift=5).flat_map(lambda a, b: Dataset.zip(b, a)),
    "interleave": lambda d: d.interleave(several, cycle_length=3, block_length=2),
    "interleave in threads": lambda d: d.take(4).interleave(several, 2, num_parallel_calls=1),
    "interleave of shuffles": lambda d: d.interleave(lambda a, _: Dataset.range(4).shuffle(3)),
    "flat_map": lambda d: d.flat_map(several).batch(4),
    "errors ignored": lambda d: d.map(refuse_some).ignore_errors().batch(3),
    "errors in threads": lambda d: d.map(refuse_some, 2).ignore_errors().shuffle(3),
}


@each_source
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_in_26_a_chain_resumes_from_every_element(
    source: Callable[[], Dataset],
    chain: Transform,
    assert_resumes_from_every_element: Callable[[Any], None],
) -> None:
    assert_resumes_from_every_element(lambda: chain(source()))


STEPS: list[Transform] = [
    lambda d: d.shuffle(5),
    lambda d: d.shuffle(50, seed=2),
    lambda d: d.repeat(2),
    lambda d: d.take(9),
    lambda d: d.skip(2),
    lambda d: d.shard(2, 1),
    lambda d: d.cache(),
    lambda d: d.map(lambda *e: e),
    lambda d: d.prefetch(1),
    lambda d: d.filter(lambda a, _: a % 3 > 0),
    lambda d: d.concatenate(d.take(2)),
    lambda d: d.map(lambda a, b: (a, b), num_parallel_calls=2),
    lambda d: d.map_batched(lambda a, b: (a + 1, b), 3),
    lambda d: d.batch(3).unbatch(),
    lambda d: d.window(3, shift=2).flat_map(lambda *w: Dataset.zip(*w)),
    lambda d: d.take(8).interleave(several, 2),
    lambda d: d.map(refuse_some).ignore_errors(),
]


@each_source
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=4),
    batch_size=st.sampled_from([None, 1, 4]),
)
def test_in_26_random_compositions_resume_from_every_element(
    source: Callable[[], Dataset],
    steps: list[Transform],
    batch_size: int | None,
    assert_resumes_from_every_element: Callable[[Any], None],
) -> None:
    def make() -> Dataset:
        dataset = source()
        for step in steps:
            dataset = step(dataset)
        return dataset if batch_size is None else dataset.batch(batch_size)

    assert_resumes_from_every_element(make)


@each_source
@pytest.mark.parametrize("prefetch", [0, 2])
def test_in_26_distributed_datasets_resume_from_every_step(
    source: Callable[[], Dataset],
    prefetch: int,
    assert_resumes_from_every_element: Callable[[Any], None],
) -> None:
    def dataset() -> Dataset:
        return source().shuffle(7).batch(5).repeat(2)

    assert_resumes_from_every_element(
        lambda: split_global_batches(dataset(), 2, 2, prefetch=prefetch)
    )
    assert_resumes_from_every_element(lambda: per_replica_batches(dataset(), 4, prefetch=prefetch))


@each_source
def test_in_17_ten_calls_of_next_and_then_on_with_the_eleventh(
    source: Callable[[], Dataset],
) -> None:
    iterator = iter(source().map(lambda a, _: a))
    assert [int(next(iterator)) for _ in range(10)] == list(range(10))
    assert [int(element) for element in iterator] == [10, 11]


@each_source
def test_resuming_calls_the_map_function_only_for_what_is_left(
    source: Callable[[], Dataset],
) -> None:
    seen: list[int] = []
    dataset = source().map(lambda a, _: seen.append(int(a)) or a)
    iterator = iter(dataset)
    for _ in range(10):
        next(iterator)
    resumed = iter(dataset)
    resumed.set_state(iterator.get_state())
    seen.clear()
    list(resumed)
    assert seen == [10, 11]


@pytest.mark.parametrize("buffer_size", [10**8, 1000])
def test_the_state_of_a_large_shuffled_dataset_is_small(buffer_size: int) -> None:
    iterator = iter(Dataset.range(10**6).shuffle(buffer_size).repeat().batch(64))
    next(iterator)
    assert len(json.dumps(iterator.get_state())) < 1024


def test_the_state_of_a_shuffled_stream_names_a_place_shortly_before_its_buffer() -> None:
    iterator = iter(Dataset.from_generator(range(100_000)).shuffle(50, seed=1))
    for _ in range(5000):
        next(iterator)
    state = iterator.get_state()
    assert len(json.dumps(state)) < 1024
    assert state["elements"]["read"] - state["elements"]["from"] < 50 * 20


def test_resuming_a_buffered_shuffle_takes_the_place_and_not_the_time_since_the_start() -> None:
    iterator = iter(Dataset.range(10**6).repeat().shuffle(100, seed=1))
    state = iterator.get_state()
    state["elements"]["position"] = 10**9 + 500_000
    iterator.set_state(state)
    window = np.array([int(next(iterator)) for _ in range(50)])
    assert np.all(np.abs(window - 500_000) < 5000)


def test_a_state_restores_the_seed_and_the_pass() -> None:
    dataset = Dataset.range(20).shuffle(20)
    list(dataset)
    iterator = iter(dataset)
    state = iterator.get_state()
    with default_seed(99):
        resumed = iter(Dataset.range(20).shuffle(20))
    resumed.set_state(state)
    assert [int(e) for e in resumed] == [int(e) for e in iterator]


def test_a_map_out_of_order_resumes_with_exactly_the_elements_that_were_not_given() -> None:
    release = threading.Event()

    def hold_back_some(value: Any) -> Any:
        if value in (0, 3):
            assert release.wait(timeout=30)
        return value

    def make() -> Dataset:
        return Dataset.range(12).map(hold_back_some, num_parallel_calls=3, deterministic=False)

    iterator = iter(make())
    given = [int(next(iterator)) for _ in range(2)]
    assert not {0, 3} & set(given)
    state = json.loads(json.dumps(iterator.get_state()))
    release.set()
    resumed = iter(make())
    resumed.set_state(state)
    assert sorted(given + [int(e) for e in resumed]) == list(range(12))
    assert sorted(given + [int(e) for e in iterator]) == list(range(12))


def test_prefetching_or_not_makes_no_difference_to_a_state() -> None:
    iterator = iter(Dataset.range(9).prefetch(3))
    next(iterator)
    resumed = iter(Dataset.range(9))
    resumed.set_state(iterator.get_state())
    assert int(next(resumed)) == 1


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "a state of the fields"),
        ({"position": 3}, r"got \{'position': 3\}\..* give what get_state\(\)"),
    ],
)
def test_something_that_is_no_state_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iter(Dataset.range(3)).set_state(state)


def test_a_state_of_another_chain_is_refused() -> None:
    state = iter(Dataset.range(100).batch(8)).get_state()
    message = (
        r"saved by range\(0, 100, 1\)\.batch\(8\), but this is an iterator over "
        r"range\(0, 100, 1\)\.batch\(16\)"
    )
    with pytest.raises(ValueError, match=message):
        iter(Dataset.range(100).batch(16)).set_state(state)


@pytest.mark.parametrize("buffer_size", [1, 5, 80])
def test_a_shuffle_over_elements_that_fail_resumes_from_every_element(
    buffer_size: int, assert_resumes_from_every_element: Any
) -> None:
    def refuse_some(value: Any) -> Any:
        if value % 11 == 0:
            raise ValueError(f"{value} is refused")
        return value

    def make() -> Dataset:
        numbers = Dataset.from_generator(range(150)).map(refuse_some)
        return numbers.shuffle(buffer_size, seed=1).ignore_errors(lambda number, error: None)

    assert sorted(int(v) for v in make()) == [v for v in range(150) if v % 11]
    assert_resumes_from_every_element(make)


def test_an_error_that_is_new_when_a_shuffle_resumes_is_raised() -> None:
    refused: set[int] = {3}

    def refuse(value: Any) -> Any:
        if int(value) in refused:
            raise ValueError(f"{value} is refused")
        return value

    dataset = Dataset.from_generator(range(40)).map(refuse).shuffle(20, seed=1)
    iterator = iter(dataset.ignore_errors(lambda number, error: None))
    next(iterator)
    refused.add(5)
    with pytest.raises(ValueError, match="5 is refused"):
        iter(dataset.ignore_errors(lambda number, error: None)).set_state(iterator.get_state())


def test_a_source_that_has_become_shorter_is_named_when_a_shuffle_resumes() -> None:
    lengths = iter([40, 10])
    dataset = Dataset.from_generator(lambda: range(next(lengths))).shuffle(20, seed=1)
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(ValueError, match="source ends after 10 elements, of which 21 had been"):
        iter(dataset).set_state(iterator.get_state())
