"""Filter, interleave, window, padded_batch and the like: what lists as a model do not show."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.inputs import INFINITE, UNKNOWN, Dataset, DatasetSpec, Options, nest


def over_arrays(num_elements: int) -> Dataset:
    return Dataset.from_tensor_slices(np.arange(num_elements))


def over_a_stream(num_elements: int) -> Dataset:
    return Dataset.from_generator(lambda: iter(range(num_elements)))


SOURCES = {"arrays": over_arrays, "stream": over_a_stream}
each_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
Make = Callable[[int], Dataset]


def plain(element: Any) -> Any:
    return nest.map_structure(lambda leaf: leaf.tolist(), element)


def test_interleave_gives_the_order_of_tf_data_s_documentation() -> None:
    dataset = Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    order = "111122221122333344443344555555"
    assert "".join(str(e) for e in dataset) == order


@each_source
@pytest.mark.parametrize("num_parallel_calls", [None, 2, -1])
def test_interleave_in_threads_gives_the_same_order(
    make: Make, num_parallel_calls: int | None
) -> None:
    dataset = make(6).interleave(
        lambda x: Dataset.range(10 * x, 10 * x + x),
        cycle_length=3,
        num_parallel_calls=num_parallel_calls,
    )
    expected = make(6).interleave(lambda x: Dataset.range(10 * x, 10 * x + x), 3)
    assert [int(e) for e in dataset] == [int(e) for e in expected]


@each_source
def test_flat_map_gives_dataset_after_dataset(make: Make) -> None:
    assert [int(e) for e in make(4).flat_map(Dataset.range)] == [0, 0, 1, 0, 1, 2]


def test_shuffles_inside_an_interleave_follow_the_iterator_s_seed_and_differ() -> None:
    dataset = Dataset.range(2).flat_map(lambda _: Dataset.range(20).shuffle(20))
    iterator = iter(dataset)
    state = iterator.get_state()
    order = [int(e) for e in iterator]
    again = iter(dataset)
    again.set_state(state)
    assert [int(e) for e in again] == order
    assert sorted(order[:20]) == sorted(order[20:]) == list(range(20))
    assert order[:20] != order[20:]


def test_a_function_that_makes_no_dataset_is_named() -> None:
    with pytest.raises(TypeError, match="map_func must return a Dataset, it returned int64"):
        list(Dataset.range(2).interleave(lambda x: x))
    with pytest.raises(TypeError, match="transformation_func must return a Dataset, it returned"):
        Dataset.range(2).apply(lambda d: None)


@each_source
def test_enumerate_counts_from_its_start_in_each_repetition(make: Make) -> None:
    dataset = make(3).enumerate(5)
    assert [plain(e) for e in dataset.repeat(2)] == [(5, 0), (6, 1), (7, 2)] * 2
    assert dataset.cardinality() == make(3).cardinality()
    assert make(3).repeat().enumerate().cardinality() == make(3).repeat().cardinality()


@each_source
def test_windows_are_datasets_of_the_components(make: Make) -> None:
    pairs = make(7).map(lambda v: (v, {"twice": 2 * v}))
    windows = list(pairs.window(3, shift=2, drop_remainder=True))
    assert [[int(e) for e in first] for first, _ in windows] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert [int(e) for e in windows[1][1]["twice"]] == [4, 6, 8]
    assert isinstance(pairs.window(3).element_spec[0], DatasetSpec)


def test_dicts_with_their_keys_in_another_order_are_matched_by_key() -> None:
    dataset = Dataset.from_generator([{"a": 1, "b": [2]}, {"b": [20], "a": 10}])
    (window,) = dataset.window(2)
    assert [int(e) for e in window["a"]] == [1, 10]
    for batches in (
        dataset.batch(2),
        dataset.padded_batch(2, {"b": [1], "a": ()}, {"b": 0, "a": 0}),
        dataset.cache().shuffle(1).batch(2),
    ):
        (batch,) = batches
        assert plain(batch) == {"a": [1, 10], "b": [[2], [20]]}


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize(("size", "shift", "stride"), [(3, 2, 1), (2, 5, 1), (3, 1, 3), (9, 1, 2)])
def test_the_number_of_windows_is_known(
    size: int, shift: int, stride: int, drop_remainder: bool
) -> None:
    dataset = Dataset.range(10).window(size, shift, stride, drop_remainder)
    assert dataset.cardinality() == len(list(dataset))


@each_source
def test_windows_become_batches_by_flat_map(make: Make) -> None:
    dataset = make(5).window(3, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(3))
    assert [e.tolist() for e in dataset] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def ragged(make: Make) -> Dataset:
    return make(4).map(lambda n: {"n": n, "row": np.arange(n), "text": "x" * int(n)})


@each_source
def test_padded_batch_pads_to_the_largest_of_each_batch(make: Make) -> None:
    first, second = ragged(make).padded_batch(2)
    assert plain(first) == {"n": [0, 1], "row": [[0], [0]], "text": ["", "x"]}
    assert plain(second) == {"n": [2, 3], "row": [[0, 1, 0], [0, 1, 2]], "text": ["xx", "xxx"]}
    assert ragged(make).padded_batch(3, drop_remainder=True).cardinality() in (1, UNKNOWN)


@each_source
def test_padded_batch_takes_shapes_and_values_in_the_structure_of_an_element(make: Make) -> None:
    dataset = make(3).map(lambda n: (np.arange(n), {"m": np.ones((1, n))}))
    (batch,) = dataset.padded_batch(3, ([4], {"m": (None, -1)}), (-1, {"m": 0.5}))
    assert plain(batch) == (
        [[-1, -1, -1, -1], [0, -1, -1, -1], [0, 1, -1, -1]],
        {"m": [[[0.5, 0.5]], [[1.0, 0.5]], [[1.0, 1.0]]]},
    )
    (batch,) = dataset.padded_batch(3, padding_values=9)
    assert batch[0].tolist() == [[9, 9], [0, 9], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padded_shapes": ([1], None)}, r"got \(1,\) for element\[0\], which comes up to \(2,\)"),
        ({"padded_shapes": ([1, 1], None)}, r"got \(1, 1\) for element\[0\]"),
        ({"padded_shapes": [3]}, r"padded_shapes must have the structure of an element, whose"),
        ({"padding_values": (0,)}, r"padding_values must have the structure of an element"),
    ],
)
def test_a_padding_that_does_not_fit_is_named(arguments: Any, message: str) -> None:
    dataset = Dataset.range(3).map(lambda n: (np.arange(n), n))
    with pytest.raises(ValueError, match=message):
        list(dataset.padded_batch(3, **arguments))


def test_only_sizes_may_differ_in_a_padded_batch() -> None:
    dataset = Dataset.from_generator([np.zeros(2), np.zeros((2, 2))])
    with pytest.raises(ValueError, match="the first is float64 of rank 1, number 1 is float64 of"):
        list(dataset.padded_batch(2))


def test_map_batched_is_called_once_for_each_batch_whatever_lies_between() -> None:
    sizes = []

    def scaled(images: np.ndarray) -> np.ndarray:
        sizes.append(len(images))
        return images.astype(np.float32) / 255

    images = np.arange(40, dtype=np.uint8).reshape(10, 2, 2)
    dataset = Dataset.from_tensor_slices(images).map_batched(scaled)
    batches = list(dataset.shuffle(10, seed=1).repeat(2).batch(4))
    assert sizes == [4] * 5
    values = np.sort(np.concatenate(batches), axis=None)
    assert np.array_equal(values[::2], np.arange(40, dtype=np.float32) / 255)
    assert next(iter(dataset)).shape == (2, 2)


@each_source
def test_map_batched_must_keep_the_number_of_rows(make: Make) -> None:
    with pytest.raises(ValueError, match="as many rows as it is given, got 1 for 2"):
        list(make(2).map_batched(lambda v: v[:1], 2).batch(2))


def test_filter_wants_a_truth_value_for_each_element() -> None:
    with pytest.raises(ValueError, match=r"it returned an array of shape \(2,\). Filter before"):
        list(Dataset.range(4).batch(2).filter(lambda v: v > 1))


def test_the_results_of_map_in_threads_keep_their_order_unless_told_otherwise() -> None:
    is_second_done = threading.Event()

    def first_waits_for_second(value: Any) -> Any:
        if value == 0:
            assert is_second_done.wait(timeout=30)
        if value == 1:
            is_second_done.set()
        return value

    def order(options: Options, deterministic: bool | None) -> list[int]:
        is_second_done.clear()
        dataset = Dataset.range(4).map(first_waits_for_second, 2, deterministic)
        return [int(e) for e in dataset.with_options(options)]

    assert order(Options(), None) == [0, 1, 2, 3]
    assert order(Options(deterministic=False), True) == [0, 1, 2, 3]
    assert order(Options(), False)[0] != 0
    assert order(Options(deterministic=False), None)[0] != 0


def test_map_makes_as_many_calls_at_a_time_as_it_is_told() -> None:
    barrier = threading.Barrier(3)
    dataset = Dataset.range(9).map(lambda v: barrier.wait(timeout=30) * 0 + v, num_parallel_calls=3)
    assert [int(e) for e in dataset] == list(range(9))


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_error_in_a_thread_is_raised_in_the_consumer(deterministic: bool) -> None:
    def broken(value: Any) -> Any:
        if value == 2:
            raise KeyError("label")
        return value

    iterator = iter(Dataset.range(5).map(broken, 2, deterministic))
    seen = []
    with pytest.raises(KeyError, match="label") as caught:
        seen += [int(e) for e in iterator]
    assert any("While making element" in note for note in caught.value.__notes__)
    seen += [int(e) for e in iterator]
    assert set(seen) <= {0, 1, 3, 4}
    iterator.close()


def test_an_error_before_the_threads_comes_in_its_turn() -> None:
    def broken() -> Any:
        yield from (0, 1, 2)
        raise OSError("disk")

    iterator = iter(Dataset.from_generator(broken).map(lambda v: v, num_parallel_calls=2))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="disk"):
        next(iterator)
    iterator.close()


@each_source
def test_ignored_errors_are_counted_and_reported(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_odd(value: Any) -> Any:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value

    dataset = make(6).map(refuse_odd)
    with caplog.at_level(logging.WARNING, logger="paceline"):
        assert [int(e) for e in dataset.ignore_errors()] == [0, 2, 4]
    assert [record.getMessage() for record in caplog.records] == [
        "ignore_errors: element 1 is left out (ValueError: 1 is odd); others are only counted.",
        "ignore_errors: 3 of 6 were left out.",
    ]
    heard = []
    list(dataset.ignore_errors(lambda index, error: heard.append((index, str(error)))))
    assert heard == [(1, "1 is odd"), (3, "3 is odd"), (5, "5 is odd")]


def refuse_some(value: Any) -> Any:
    if value in (1, 2):
        raise ValueError("refused")
    return value


@each_source
@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (lambda d: d.prefetch(2), [0, 3, 4]),
        (lambda d: d.cache().repeat(2), [0, 3, 4, 0, 3, 4]),
        (lambda d: Dataset.zip(d, Dataset.range(5)), [(0, 0), (3, 3), (4, 4)]),
        (lambda d: Dataset.zip(Dataset.range(5).cache(), d), [(0, 0), (3, 3), (4, 4)]),
        (lambda d: d.batch(1).unbatch(), [0, 3, 4]),
        (lambda d: d.map(lambda v: v, 2), [0, 3, 4]),
        (lambda d: Dataset.range(2).interleave(lambda _: d, 2), [0, 0, 3, 3, 4, 4]),
    ],
)
def test_one_can_go_on_behind_errors_whatever_step_they_pass(
    make: Make, chain: Callable[[Dataset], Dataset], expected: list[Any]
) -> None:
    dataset = chain(make(5).map(refuse_some)).ignore_errors(lambda *_: None)
    assert [nest.map_structure(int, element) for element in dataset] == expected


def test_what_a_broken_generator_would_have_given_is_not_lost_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Any:
        yield 0
        raise OSError("disk")

    with caplog.at_level(logging.WARNING, logger="paceline"):
        elements = list(Dataset.from_generator(broken).ignore_errors(lambda *_: None))
    assert elements == [0]
    (record,) = caplog.records
    assert "ended right after the error of element 1. A generator ends" in record.getMessage()


def test_ignore_errors_does_not_hide_a_source_that_cannot_be_opened() -> None:
    def missing() -> Any:
        raise FileNotFoundError("data.txt")

    with pytest.raises(FileNotFoundError, match=r"data\.txt"):
        list(Dataset.from_generator(missing).ignore_errors())


@each_source
def test_a_feature_that_is_not_finite_is_named(make: Make) -> None:
    dataset = make(6).map(lambda v: {"x": np.array([1.0, np.nan if v == 5 else v])}).batch(2)
    with pytest.raises(ValueError, match=r"nan in component \['x'\] at index \(1, 1\)") as caught:
        list(dataset.require_finite())
    assert caught.value.__notes__[0] == "At element 2 of the transformation's input."
    assert caught.value.__notes__[1].startswith("While making element 2 of ")
    assert len(list(dataset.require_finite().ignore_errors(lambda *_: None))) == 2


@each_source
@pytest.mark.parametrize("num_parallel_calls", [None, 2])
def test_an_error_of_a_function_tells_the_element_after_resuming_too(
    make: Make, num_parallel_calls: int | None
) -> None:
    def refuse_seven(value: Any) -> Any:
        if value == 107:
            raise ValueError("refused")
        return value

    dataset = make(9).map(lambda v: v + 100).map(refuse_seven, num_parallel_calls).batch(2)
    iterator = iter(dataset)
    next(iterator)
    resumed = iter(dataset)
    resumed.set_state(iterator.get_state())
    for each in (iterator, resumed):
        with pytest.raises(ValueError, match="refused") as caught:
            list(each)
        assert caught.value.__notes__[0] == "At element 7 of the transformation's input."
        each.close()


def test_options_hold_for_the_whole_chain_and_are_checked() -> None:
    dataset = Dataset.range(3).with_options(Options(deterministic=False)).batch(2)
    assert dataset.options() == Options(deterministic=False)
    with pytest.raises(TypeError, match="options must be an Options, got dict"):
        dataset.with_options({})
    with pytest.raises(TypeError, match=r"auto_shard_policy must be .*OFF or .*AUTO"):
        Options(auto_shard_policy="DATA")


@pytest.mark.parametrize(
    ("dataset", "cardinality"),
    [
        (Dataset.range(4).filter(lambda v: True), UNKNOWN),
        (Dataset.range(4).concatenate(Dataset.range(3)), 7),
        (Dataset.range(4).concatenate(Dataset.range(3).repeat()), INFINITE),
        (Dataset.range(4).concatenate(over_a_stream(3)), UNKNOWN),
        (Dataset.range(4).batch(2).unbatch(), UNKNOWN),
        (Dataset.range(5).padded_batch(2), 3),
        (Dataset.range(5).map(lambda v: v, 2), 5),
        (Dataset.range(5).map_batched(lambda v: v), 5),
        (Dataset.range(5).map_and_batch(lambda v: v, 2), 3),
        (Dataset.range(5).interleave(Dataset.range), UNKNOWN),
        (Dataset.range(5).ignore_errors(), UNKNOWN),
    ],
)
def test_cardinality_is_known_where_it_can_be(dataset: Dataset, cardinality: int) -> None:
    assert dataset.cardinality() == cardinality


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda d: d.filter(3), TypeError, "predicate must be a function of an element, got int"),
        (lambda d: d.map(abs, 1.5), TypeError, "num_parallel_calls must be an integer"),
        (lambda d: d.map(abs, 2, "yes"), TypeError, "deterministic must be True or False"),
        (lambda d: d.map_batched(abs, 0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda d: d.interleave(abs, -2), ValueError, "cycle_length must be at least -1, got -2"),
        (lambda d: d.interleave(abs, 1, 0), ValueError, "block_length must be at least 1, got 0"),
        (lambda d: d.window(0), ValueError, "size must be at least 1, got 0"),
        (lambda d: d.window(1, 0), ValueError, "shift must be at least 1, got 0"),
        (lambda d: d.window(1, 1, 0), ValueError, "stride must be at least 1, got 0"),
        (lambda d: d.padded_batch(0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda d: d.concatenate([1]), TypeError, "dataset must be a Dataset, got list"),
        (lambda d: d.apply(1), TypeError, "transformation_func must be a function of a Dataset"),
        (lambda d: d.ignore_errors(1), TypeError, "report must be a function of a number and"),
        (lambda d: d.enumerate("a"), TypeError, "start must be an integer, got 'a'"),
        (lambda d: d.batch(2, 1), TypeError, "drop_remainder must be True or False, got 1"),
        (lambda d: d.shuffle(2, 1, 0), TypeError, "reshuffle_each_iteration must be True or False"),
    ],
)
def test_a_bad_argument_is_named(
    build: Callable[[Dataset], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(Dataset.range(4))
