"""`shuffle`: every element once, picked from the buffer, in an order that seeds decide."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import Dataset, default_seed, seeds


def numbers(dataset: Dataset) -> list[int]:
    return [int(element) for element in dataset]


def as_stream(num_elements: int) -> Dataset:
    return Dataset.from_generator(range(num_elements))


each_source = pytest.mark.parametrize(
    "make", [Dataset.range, as_stream], ids=["random access", "stream"]
)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 60), buffer_size=st.integers(1, 70), seed=st.integers(-5, 2**63 - 1))
def test_a_shuffle_is_a_permutation_that_looks_ahead_by_its_buffer(
    n: int, buffer_size: int, seed: int
) -> None:
    order = numbers(Dataset.range(n).shuffle(buffer_size, seed=seed))
    assert sorted(order) == list(range(n))
    assert all(source < time + buffer_size for time, source in enumerate(order))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 60), buffer_size=st.integers(1, 70), repeats=st.integers(1, 3))
def test_streams_and_arrays_are_shuffled_alike(n: int, buffer_size: int, repeats: int) -> None:
    orders = [
        numbers(make(n).shuffle(buffer_size, seed=7).repeat(repeats))
        for make in (Dataset.range, as_stream)
    ]
    assert orders[0] == orders[1]


def test_streams_and_arrays_are_shuffled_alike_over_many_blocks() -> None:
    orders = [numbers(make(20_000).shuffle(50, seed=7)) for make in (Dataset.range, as_stream)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(20_000))


def test_a_full_shuffle_gives_every_order_equally_often() -> None:
    orders = Counter(tuple(numbers(Dataset.range(3).shuffle(3, seed=seed))) for seed in range(1200))
    assert len(orders) == 6
    assert all(150 < count < 250 for count in orders.values())


def test_a_buffered_shuffle_gives_the_orders_of_tf_data_equally_often() -> None:
    """Buffer 2 over 3: one of {0, 1}, then the other or 2, then the rest."""
    orders = Counter(tuple(numbers(Dataset.range(3).shuffle(2, seed=seed))) for seed in range(1200))
    assert set(orders) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)}
    assert all(240 < count < 360 for count in orders.values())


def test_a_buffered_shuffle_delays_elements_like_a_buffer() -> None:
    """Each step hands out a held element with probability 1/B: the mean delay is B - 1."""
    order = np.array(numbers(Dataset.range(40_000).shuffle(20, seed=1)))
    delays = np.arange(len(order)) - order
    assert abs(delays.mean()) < 0.01
    assert (delays + 19).min() == 0
    assert 18 < (delays[1000:-1000] + 19).mean() < 20


@each_source
def test_each_repetition_is_reshuffled(make: Callable[[int], Dataset]) -> None:
    order = numbers(make(20).shuffle(20, seed=1).repeat(3))
    passes = [tuple(order[i : i + 20]) for i in (0, 20, 40)]
    assert len(set(passes)) == 3
    assert all(sorted(p) == list(range(20)) for p in passes)


@each_source
@pytest.mark.parametrize("seed", [1, None])
def test_without_reshuffling_each_repetition_and_each_pass_is_the_same(
    make: Callable[[int], Dataset], seed: int | None
) -> None:
    dataset = make(20).shuffle(20, seed=seed, reshuffle_each_iteration=False)
    order = numbers(dataset.repeat(3))
    assert order[:20] == order[20:40] == order[40:]
    assert numbers(dataset) == numbers(dataset)


@each_source
@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("default", [2, None])
@pytest.mark.parametrize(
    "inside",
    [
        lambda other, part: Dataset.zip(other, part).map(lambda _, v: v),
        lambda other, part: other.take(0).concatenate(part),
        lambda other, part: part.cache().shuffle(5),
    ],
    ids=["zip", "concatenate", "shuffle"],
)
def test_without_reshuffling_parts_stay_apart_whatever_they_are_put_into(
    make: Callable[[int], Dataset],
    seed: int | None,
    default: int | None,
    inside: Callable[[Dataset, Dataset], Dataset],
) -> None:
    """As the parts for training and for validation of one shuffled dataset."""
    dataset = make(20).shuffle(20, seed=seed, reshuffle_each_iteration=False)
    other = make(30).shuffle(30).shuffle(30, reshuffle_each_iteration=False)
    with default_seed(default):
        training = numbers(dataset.skip(5))
        validation = numbers(inside(other, dataset.take(5)))
    assert sorted(training + validation) == list(range(20))


@each_source
def test_each_pass_over_a_dataset_object_is_reshuffled(make: Callable[[int], Dataset]) -> None:
    dataset = make(20).shuffle(20, seed=1)
    first, second = numbers(dataset), numbers(dataset)
    assert first != second
    again = make(20).shuffle(20, seed=1)
    assert [numbers(again), numbers(again)] == [first, second]


def test_without_a_seed_each_dataset_has_another_order() -> None:
    assert numbers(Dataset.range(50).shuffle(50)) != numbers(Dataset.range(50).shuffle(50))


def test_default_seed_decides_where_no_seed_was_given() -> None:
    dataset = Dataset.range(50).shuffle(50)

    def order(seed: int | None) -> list[int]:
        with default_seed(seed):
            return numbers(Dataset.range(50).shuffle(50))

    assert order(1) == order(1) != order(2)
    with default_seed(1), default_seed(None):
        assert numbers(dataset) != order(1)


def test_default_seed_leaves_an_explicit_seed_alone() -> None:
    expected = numbers(Dataset.range(50).shuffle(50, seed=4))
    with default_seed(1):
        assert numbers(Dataset.range(50).shuffle(50, seed=4)) == expected


def test_shuffles_without_a_seed_are_independent_of_each_other() -> None:
    with default_seed(1):
        pairs = list(Dataset.zip(Dataset.range(50).shuffle(50), Dataset.range(50).shuffle(50)))
        assert numbers(Dataset.range(50).shuffle(50)) != numbers(
            Dataset.range(50).map(lambda v: v).shuffle(50).shuffle(50)
        )
    assert any(a != b for a, b in pairs)


def test_shuffles_with_the_same_seed_keep_zipped_datasets_aligned() -> None:
    parts = [Dataset.range(50).shuffle(50, seed=3) for _ in range(2)]
    assert all(a == b for a, b in Dataset.zip(*parts))


@pytest.mark.parametrize("chain", ["shuffle.shuffle", "repeat.shuffle", "shuffle.repeat.shuffle"])
def test_shuffles_compose(chain: str) -> None:
    dataset = Dataset.range(30)
    for step in chain.split("."):
        dataset = dataset.shuffle(8, seed=1) if step == "shuffle" else dataset.repeat(4)
    repeats = 4 if "repeat" in chain else 1
    assert sorted(numbers(dataset)) == sorted(list(range(30)) * repeats)
    batched = np.concatenate(list(dataset.batch(7)))
    assert sorted(batched.tolist()) == sorted(list(range(30)) * repeats)


def test_single_elements_and_batches_come_in_the_same_order() -> None:
    dataset = Dataset.range(300)
    for chain in (
        dataset.shuffle(300, seed=1).repeat(2),
        dataset.shuffle(17, seed=1).repeat(2),
        dataset.repeat(2).shuffle(90, seed=1),
        dataset.shuffle(300, seed=1).shard(3, 1).repeat(3),
        dataset.shuffle(20, seed=1).shuffle(20, seed=2).skip(5),
        dataset.shuffle(20, seed=1).repeat().shuffle(40, seed=2).take(700),
    ):
        singles = [int(e) for e in iter(chain)]
        chain_again = chain.batch(7)
        assert np.concatenate(list(chain_again)).tolist() == singles


def test_an_endless_shuffled_dataset_gives_each_element_equally_often() -> None:
    batches = Dataset.range(10).repeat().shuffle(30, seed=1).batch(50).take(400)
    counts = Counter(np.concatenate(list(batches)).tolist())
    assert set(counts) == set(range(10))
    assert max(counts.values()) - min(counts.values()) < 60


def test_threads_that_fix_an_order_first_at_the_same_time_fix_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both_draw, draw = threading.Barrier(2), os.urandom

    def draw_together(count: int) -> bytes:
        both_draw.wait(60)
        return draw(count)

    monkeypatch.setattr(seeds, "_drawn", {})
    monkeypatch.setattr(os, "urandom", draw_together)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: seeds.process_seed(), range(2))
    assert first == second
