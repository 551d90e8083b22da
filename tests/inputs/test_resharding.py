"""IN-26: resuming on another number of workers; each element exactly once in each epoch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paceline.inputs import Dataset, DatasetIterator, per_replica_batches

Order = Callable[[], Dataset]
Worker = Callable[[int, int], Any]


def numbers(element: Any) -> list[int]:
    parts = element if isinstance(element, tuple) else (element,)
    return [int(v) for part in parts for v in part]


def run(make: Worker, num_workers: int, states: list[Any], num_steps: int | None) -> Any:
    """What the workers see in so many steps (None: to the end), and their states afterwards."""
    seen, after = [], []
    for index in range(num_workers):
        iterator: DatasetIterator = iter(make(num_workers, index))
        if states:
            iterator.set_states(states, index)
        steps = 0
        while num_steps is None or steps < num_steps:
            element = next(iterator, None)
            if element is None:
                break
            seen += numbers(element)
            steps += 1
        after.append(json.loads(json.dumps(iterator.get_state())))
        iterator.close()
    return seen, after


def arrays() -> Dataset:
    return Dataset.range(40).shuffle(40, seed=3)


def stream() -> Dataset:
    return Dataset.from_generator(range(40)).shuffle(7, seed=3)


ORDERS = {"arrays": arrays, "stream": stream}
each_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
each_source = pytest.mark.parametrize("source", ORDERS.values(), ids=ORDERS)


@each_order
@settings(max_examples=40, deadline=None)
@example(legs=[(1, 1, 1), (4, 3, 4), (1, 1, 0)], num_local=1)  # one is behind at the end
@given(
    legs=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=3
    ),
    num_local=st.integers(1, 2),
)
def test_in_26_one_epoch_over_changing_numbers_of_workers(
    order: Order, legs: list[tuple[int, int, int]], num_local: int
) -> None:
    """Each leg has a number of workers, a batch size and a number of steps; the last goes on."""
    seen, states = [], []
    for leg, (num_workers, batch_size, num_steps) in enumerate(legs):

        def make(count: int, index: int, size: int = batch_size) -> Any:
            batches = order().shard(count, index).map(lambda v: v).batch(size).prefetch(1)
            return per_replica_batches(batches, num_local, worker=(count, index))

        is_last = leg == len(legs) - 1
        new, states = run(make, num_workers, states, None if is_last else num_steps)
        seen += new
    assert sorted(seen) == list(range(40))


def test_in_26_several_epochs_over_changing_numbers_of_workers() -> None:
    def make(count: int, index: int) -> Dataset:
        return arrays().repeat(3).shard(count, index).batch(4)

    first, states = run(make, 3, [], 5)
    second, states = run(make, 2, states, 6)
    third, _ = run(make, 5, states, None)
    expected = [int(e) for e in arrays().repeat(3)]
    assert sorted(first) == sorted(expected[:60])
    assert sorted(second) == sorted(expected[60:108])
    assert sorted(third) == sorted(expected[108:])
    assert Counter(first + second + third) == dict.fromkeys(range(40), 3)


@pytest.mark.parametrize(
    "order",
    [
        lambda d: d.shard(2, 1),
        lambda d: d.shard(2, 0).shard(2, 1),
        lambda d: Dataset.zip(d.shard(2, 0), d.shard(2, 1)).map(lambda a, b: a),
        lambda d: d.shard(3, 0).concatenate(d.shard(3, 2)),
    ],
)
@each_source
def test_in_26_a_part_of_the_data_is_divided_anew_as_all_of_it_is(
    source: Order, order: Callable[[Dataset], Dataset]
) -> None:
    def make(count: int, index: int) -> Dataset:
        return order(source()).shard(count, index).batch(2)

    first, states = run(make, 2, [], 1)
    second, states = run(make, 1, states, 1)
    third, _ = run(make, 3, states, None)
    assert sorted(first + second + third) == sorted(int(v) for v in order(source()))


def test_as_many_workers_as_before_go_on_with_their_own_states() -> None:
    def make(count: int, index: int) -> Dataset:
        return Dataset.range(40).shard(count, index).shuffle(40, seed=index).repeat().batch(4)

    _, states = run(make, 2, [], 3)
    resumed = iter(make(2, 1))
    resumed.set_states(states, 1)
    assert resumed.get_state() == states[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda n, i: Dataset.range(40).shard(n, i).shuffle(9, seed=1).batch(4),
            "read different data, and cannot be resumed as another number",
        ),
        (
            lambda n, i: Dataset.range(40).shuffle(9).shard(n, i).batch(4),
            r"not one order of .* that they share",
        ),
        (
            lambda n, i: Dataset.range(40 + n).shuffle(9, seed=1).shard(n, i).batch(4),
            r"not one order of .* that they share",
        ),
    ],
)
def test_what_cannot_be_divided_anew_is_refused(make: Worker, message: str) -> None:
    _, states = run(make, 2, [], 3)
    with pytest.raises(ValueError, match=message):
        iter(make(3, 0)).set_states(states, 0)


@pytest.mark.parametrize(
    ("states", "message"),
    [([], "at least one worker, got none"), ([{"position": 3}], "a state of the fields")],
)
def test_what_is_no_state_is_refused(states: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iter(Dataset.range(4)).set_states(states, 0)


def test_workers_that_stand_at_different_places_are_refused() -> None:
    def make(count: int, index: int) -> Dataset:
        return Dataset.range(40).shard(count, index).batch(4)

    states = [run(make, 2, [], steps)[1][index] for index, steps in enumerate((2, 3))]
    with pytest.raises(ValueError, match="Worker 0 had seen 8 elements and another 12"):
        iter(make(3, 0)).set_states(states, 0)


def test_a_shard_of_an_order_without_a_seed_is_refused_on_several_workers() -> None:
    dataset = Dataset.range(8).shuffle(8).shard(2, 0).batch(2)
    with pytest.raises(ValueError, match=r"shuffle\(\) has no seed, so each worker would draw"):
        iter(per_replica_batches(dataset, 1, worker=(2, 0)))
    list(per_replica_batches(dataset, 1, worker=(2, 0), seed=1))
    list(per_replica_batches(dataset.shuffle(2), 1, worker=(1, 0)))
