"""`cache`: computed once, served ever after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.inputs import Dataset

each_source = pytest.mark.parametrize(
    "make",
    [Dataset.range, lambda n: Dataset.from_generator(range(n))],
    ids=["random access", "stream"],
)


class Counter:
    """A map function that remembers its calls."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, value: Any) -> Any:
        self.seen.append(int(value))
        return value * 10


@each_source
def test_what_comes_before_a_cache_is_computed_once(make: Callable[[int], Dataset]) -> None:
    counter = Counter()
    dataset = make(4).map(counter).cache()
    expected = [0, 10, 20, 30]
    assert [int(e) for e in dataset.repeat(2)] == expected * 2
    assert [int(e) for e in dataset] == expected
    assert [e.tolist() for e in dataset.batch(4)] == [expected]
    assert counter.seen == [0, 1, 2, 3]


@each_source
def test_an_interrupted_pass_is_completed_later(make: Callable[[int], Dataset]) -> None:
    dataset = make(4).map(lambda value: value * 10).cache()
    assert [int(e) for e in dataset.take(2)] == [0, 10]
    assert [int(e) for e in dataset] == [0, 10, 20, 30]
    assert [int(e) for e in dataset] == [0, 10, 20, 30]


@each_source
def test_a_shuffle_before_a_cache_keeps_its_first_order(make: Callable[[int], Dataset]) -> None:
    order = [int(e) for e in make(20).shuffle(20).cache().repeat(2)]
    assert sorted(order[:20]) == list(range(20))
    assert order[:20] == order[20:]


@each_source
def test_a_shuffle_after_a_cache_is_reshuffled(make: Callable[[int], Dataset]) -> None:
    order = [int(e) for e in make(20).cache().shuffle(20).repeat(2)]
    assert sorted(order[:20]) == sorted(order[20:]) == list(range(20))
    assert order[:20] != order[20:]


@each_source
def test_a_new_order_before_a_cache_is_not_mixed_with_the_kept_one(
    make: Callable[[int], Dataset],
) -> None:
    dataset = make(20).shuffle(20).cache()
    assert len(list(dataset.take(5))) == 5
    assert sorted(int(e) for e in dataset) == list(range(20))


@each_source
def test_kept_elements_cannot_be_changed(make: Callable[[int], Dataset]) -> None:
    dataset = make(2).map(lambda value: np.full(3, value)).cache()
    for element in dataset:
        with pytest.raises(ValueError, match="read-only"):
            element += 1


def test_a_buffer_that_is_filled_again_is_copied_into_the_cache() -> None:
    buffer = np.zeros(1)

    def refill(value: Any) -> np.ndarray:
        buffer[0] = value
        return buffer

    dataset = Dataset.range(3).map(refill).cache()
    list(dataset)
    assert [e.tolist() for e in dataset] == [[0], [1], [2]]
