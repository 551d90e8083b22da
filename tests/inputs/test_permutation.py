"""The permutation behind a full shuffle: one-to-one, well mixed, and without a table."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import Dataset
from paceline.inputs.shuffle_order import Permutation

LARGE = 200_003


@settings(max_examples=15, deadline=None)
@given(size=st.one_of(st.integers(0, 2000), st.integers(65_530, 70_000)), seed=st.integers(0, 99))
def test_each_number_comes_once(size: int, seed: int) -> None:
    results = Permutation((seed,), size).at(np.arange(size))
    assert np.array_equal(np.sort(results), np.arange(size))


@pytest.mark.parametrize("size", [1 << 17, (1 << 17) + 1, 300 * 300, 300 * 300 - 1, 300 * 300 + 1])
def test_each_number_comes_once_around_sizes_that_fill_the_grid(size: int) -> None:
    assert len(np.unique(Permutation((1,), size).at(np.arange(size)))) == size


@given(numbers=st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=50, unique=True))
def test_numbers_of_any_size_stay_apart(numbers: list[int]) -> None:
    results = Permutation((1,), 2**62).at(np.array(numbers))
    assert len(set(results.tolist())) == len(numbers)
    assert results.min() >= 0


def test_results_do_not_depend_on_which_others_are_asked_for() -> None:
    permutation = Permutation((1,), LARGE)
    numbers = np.random.default_rng(1).integers(0, LARGE, 100)
    assert np.array_equal(permutation.at(np.arange(LARGE))[numbers], permutation.at(numbers))


def test_keys_make_different_orders() -> None:
    first, second = (Permutation((key,), LARGE).at(np.arange(LARGE)) for key in (1, 2))
    assert np.count_nonzero(first == second) < 20
    assert np.count_nonzero(first == np.arange(LARGE)) < 20


def test_neighbours_are_scattered_as_by_numpy_s_permutation() -> None:
    order = Permutation((1,), LARGE).at(np.arange(LARGE)) / LARGE
    for distance in (1, 2, 447, 448):  # the last two are the sides of the grid
        assert abs(np.corrcoef(order[distance:], order[:-distance])[0, 1]) < 0.01
        assert abs(np.abs(order[distance:] - order[:-distance]).mean() - 1 / 3) < 0.005


def test_each_stretch_of_the_order_draws_from_the_whole() -> None:
    stretches = Permutation((1,), LARGE).at(np.arange(LARGE))[:200_000].reshape(20, -1)
    counts = np.array([np.histogram(s, 20, (0, LARGE))[0] for s in stretches])
    chi_squared = ((counts - 500) ** 2 / 500).sum()
    assert 270 < chi_squared < 460  # 19 * 19 degrees of freedom: 361 ± 27


def test_over_many_keys_each_result_is_equally_likely() -> None:
    results = [int(Permutation((key,), LARGE).at(np.array([5]))[0]) for key in range(2000)]
    counts = Counter(result * 10 // LARGE for result in results)
    assert all(150 < count < 250 for count in counts.values())


def test_a_shuffle_of_a_hundred_million_takes_no_memory_for_its_size() -> None:
    dataset = Dataset.range(10**8).shuffle(10**8, seed=1).repeat().batch(64)
    iterator = iter(dataset)
    state = iterator.get_state()
    state["elements"]["position"] = 10**8 // 64 - 2
    tracemalloc.start()
    iterator.set_state(state)
    batches = [next(iterator) for _ in range(4)]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert len(np.unique(np.concatenate(batches[:2]))) == 128
