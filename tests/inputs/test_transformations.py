"""IN-20: each transformation against a model in plain Python, over arrays and over streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import INFINITE, UNKNOWN, Dataset, nest

Step = tuple[str, Callable[[Dataset], Dataset], Callable[[list[Any]], list[Any]]]


def over_arrays(num_elements: int) -> Dataset:
    return Dataset.from_tensor_slices(np.arange(num_elements))


def over_a_stream(num_elements: int) -> Dataset:
    return Dataset.from_generator(lambda: iter(range(num_elements)))


SOURCES = {"arrays": over_arrays, "stream": over_a_stream, "range": Dataset.range}
each_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


def plain(element: Any) -> Any:
    """The element with lists in place of arrays."""
    return nest.map_structure(lambda leaf: leaf.tolist(), element)


def in_batches(items: list[Any], size: int, drop_remainder: bool) -> list[Any]:
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    return [b for b in batches if len(b) == size or not drop_remainder]


def add_one(value: Any) -> Any:
    return value + 1


def add_one_to_lists(value: Any) -> Any:
    return [add_one_to_lists(v) for v in value] if isinstance(value, list) else value + 1


counts = st.integers(0, 7)
sizes = st.integers(1, 5)


def steps() -> st.SearchStrategy[Step]:
    """One transformation: its text, how a dataset does it, how a list does it."""
    return st.one_of(
        counts.map(lambda n: (f"take {n}", lambda d: d.take(n), lambda x: x[:n])),
        counts.map(lambda n: (f"skip {n}", lambda d: d.skip(n), lambda x: x[n:])),
        st.integers(0, 3).map(lambda n: (f"repeat {n}", lambda d: d.repeat(n), lambda x: x * n)),
        sizes.flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))).map(
            lambda s: (f"shard {s}", lambda d: d.shard(*s), lambda x: x[s[1] :: s[0]])
        ),
        st.just(("map", lambda d: d.map(add_one), lambda x: [add_one_to_lists(v) for v in x])),
        st.just(
            (
                "map in threads",
                lambda d: d.map(add_one, num_parallel_calls=2),
                lambda x: [add_one_to_lists(v) for v in x],
            )
        ),
        st.just(
            (
                "filter",
                lambda d: d.filter(lambda v: v.sum() % 3 > 0),
                lambda x: [v for v in x if np.sum(v) % 3 > 0],
            )
        ),
        counts.map(
            lambda n: (f"concatenate {n}", lambda d: d.concatenate(d.skip(n)), lambda x: x + x[n:])
        ),
        st.just(("cache", lambda d: d.cache(), lambda x: x)),
        st.just(("prefetch", lambda d: d.prefetch(2), lambda x: x)),
    )


def chains() -> st.SearchStrategy[list[Step]]:
    """Several transformations with at most one batch, since ragged batches do not stack."""
    arguments = st.tuples(sizes, st.booleans())
    batches = st.one_of(
        arguments.map(lambda b: (f"batch {b}", lambda d: d.batch(*b), lambda x: in_batches(x, *b))),
        arguments.map(
            lambda b: (
                f"padded_batch {b}",
                lambda d: d.padded_batch(b[0], drop_remainder=b[1]),
                lambda x: in_batches(x, *b),
            )
        ),
        arguments.map(
            lambda b: (
                f"map_and_batch {b}",
                lambda d: d.map_and_batch(add_one, *b),
                lambda x: in_batches([v + 1 for v in x], *b),
            )
        ),
    )
    several = st.lists(steps(), max_size=3)
    return st.builds(
        lambda before, batch, after: [*before, *batch, *after],
        st.lists(st.one_of(steps(), steps_over_numbers()), max_size=3),
        st.lists(batches, max_size=1),
        several,
    )


def steps_over_numbers() -> st.SearchStrategy[Step]:
    """Transformations of elements of equal shape."""
    windows = st.tuples(sizes, sizes, st.integers(1, 2), st.booleans())
    cycles = st.tuples(sizes, st.integers(1, 3))
    return st.one_of(
        sizes.map(lambda n: (f"unbatch {n}", lambda d: d.batch(n).unbatch(), lambda x: x)),
        sizes.map(
            lambda n: (
                f"map_batched {n}",
                lambda d: d.map_batched(add_one, n),
                lambda x: [v + 1 for v in x],
            )
        ),
        windows.map(
            lambda w: (
                f"window {w}",
                lambda d: d.window(*w).flat_map(lambda v: v),
                lambda x: [v for window in windows_of(x, *w) for v in window],
            )
        ),
        cycles.map(
            lambda c: (
                f"interleave {c}",
                lambda d: d.interleave(lambda v: Dataset.range(v, v + v % 4), *c),
                lambda x: taken_in_turn([list(range(v, v + v % 4)) for v in x], *c),
            )
        ),
    )


def windows_of(
    items: list[Any], size: int, shift: int, stride: int, drop_remainder: bool
) -> list[list[Any]]:
    starts = range(0, len(items), shift)
    windows = [items[i : i + (size - 1) * stride + 1 : stride] for i in starts]
    return [w for w in windows if len(w) == size or not drop_remainder]


def taken_in_turn(lists: list[list[Any]], cycle_length: int, block_length: int) -> list[Any]:
    """Blocks of each list in turn; a slot whose list has ended waits one round for the next."""
    waiting, slots, result = list(lists), [None] * cycle_length, []
    while waiting or any(slot is not None for slot in slots):
        for turn in range(cycle_length):
            if slots[turn] is None and waiting:
                slots[turn] = waiting.pop(0)
            if slots[turn] is not None:
                block, rest = slots[turn][:block_length], slots[turn][block_length:]
                result += block
                slots[turn] = rest if len(block) == block_length else None
    return result


@each_source
@settings(max_examples=60, deadline=None)
@given(num_elements=st.integers(0, 12), chain=chains())
def test_in_20_a_chain_of_transformations_does_what_lists_do(
    make: Callable[[int], Dataset], num_elements: int, chain: list[Step]
) -> None:
    dataset, model = make(num_elements), list(range(num_elements))
    for _, transform, transform_list in chain:
        dataset, model = transform(dataset), transform_list(model)
    assert [plain(e) for e in dataset] == model
    assert dataset.cardinality() in (len(model), UNKNOWN)


@each_source
@settings(max_examples=25, deadline=None)
@given(num_elements=st.integers(0, 12), chain=chains())
def test_in_20_a_chain_can_be_iterated_again(
    make: Callable[[int], Dataset], num_elements: int, chain: list[Step]
) -> None:
    dataset = make(num_elements)
    for _, transform, _ in chain:
        dataset = transform(dataset)
    assert [plain(e) for e in dataset] == [plain(e) for e in dataset]


@each_source
@pytest.mark.parametrize(("n", "i"), [(n, i) for n in range(1, 6) for i in range(n)])
def test_in_07_a_shard_is_every_nth_element(make: Callable[[int], Dataset], n: int, i: int) -> None:
    assert [int(e) for e in make(11).shard(n, i)] == list(range(11))[i::n]


@each_source
@settings(max_examples=40, deadline=None)
@given(num_elements=st.integers(0, 30), num_shards=st.integers(1, 5), shuffled=st.booleans())
def test_in_07_the_shards_together_are_the_dataset_without_overlap(
    make: Callable[[int], Dataset], num_elements: int, num_shards: int, shuffled: bool
) -> None:
    dataset = make(num_elements)
    if shuffled:
        dataset = dataset.shuffle(7, seed=3).repeat(2)
    shards = [dataset.shard(num_shards, i) for i in range(num_shards)]
    assert sorted(int(e) for shard in shards for e in shard) == sorted(int(e) for e in dataset)


@each_source
def test_in_20_zip_ends_with_the_shortest(make: Callable[[int], Dataset]) -> None:
    zipped = Dataset.zip(make(3), make(5).map(add_one), Dataset.range(10, 20).repeat())
    assert [plain(e) for e in zipped] == [(0, 1, 10), (1, 2, 11), (2, 3, 12)]


@each_source
def test_in_20_zip_takes_a_structure_of_datasets(make: Callable[[int], Dataset]) -> None:
    zipped = Dataset.zip({"a": make(4), "b": (Dataset.range(4, 8),)}).batch(2)
    assert [plain(e) for e in zipped] == [
        {"a": [0, 1], "b": ([4, 5],)},
        {"a": [2, 3], "b": ([6, 7],)},
    ]


@each_source
def test_a_repeated_zip_starts_each_part_again(make: Callable[[int], Dataset]) -> None:
    zipped = Dataset.zip(make(3), Dataset.range(2).repeat()).repeat(2).batch(4)
    assert [plain(e) for e in zipped] == [([0, 1, 2, 0], [0, 1, 0, 0]), ([1, 2], [1, 0])]


@each_source
def test_repeat_without_a_count_goes_on(make: Callable[[int], Dataset]) -> None:
    repeated = make(3).repeat()
    assert [int(e) for e in repeated.take(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [int(e) for e in repeated.skip(4).take(2)] == [1, 2]
    assert [int(e) for e in repeated.take(4).repeat(2)] == [0, 1, 2, 0, 0, 1, 2, 0]


@each_source
def test_repeating_nothing_ends(make: Callable[[int], Dataset]) -> None:
    assert list(make(0).repeat()) == []
    assert list(make(0).repeat().batch(2)) == []


@each_source
def test_a_part_of_an_infinite_dataset_can_be_repeated_for_ever(
    make: Callable[[int], Dataset],
) -> None:
    part = make(3).repeat().skip(1).take(2).repeat()
    assert [int(e) for e in part.take(5)] == [1, 2, 1, 2, 1]
    assert [e.tolist() for e in part.batch(3).take(2)] == [[1, 2, 1], [2, 1, 2]]


def test_an_infinite_part_restarts_correctly_after_very_many_repetitions() -> None:
    part = Dataset.range(3).repeat().take(2).repeat()
    iterator = iter(part.batch(3))
    state = iterator.get_state()
    state["elements"]["position"] = 10**12
    iterator.set_state(state)
    assert next(iterator).tolist() == [0, 1, 0]


def test_batches_of_a_repeated_dataset_cross_its_end() -> None:
    batches = Dataset.from_tensor_slices(np.arange(3)).repeat(3).batch(4)
    assert [b.tolist() for b in batches] == [[0, 1, 2, 0], [1, 2, 0, 1], [2]]


def test_repeated_batches_do_not_cross_the_end() -> None:
    batches = Dataset.from_tensor_slices(np.arange(3)).batch(2).repeat(2)
    assert [b.tolist() for b in batches] == [[0, 1], [2], [0, 1], [2]]


@each_source
def test_batches_of_batches_have_two_leading_axes(make: Callable[[int], Dataset]) -> None:
    assert [b.tolist() for b in make(8).batch(2).batch(2)] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@each_source
def test_map_after_batch_is_called_once_for_each_batch(make: Callable[[int], Dataset]) -> None:
    sizes_seen = []
    list(make(5).batch(2).map(lambda batch: sizes_seen.append(len(batch)) or batch))
    assert sizes_seen == [2, 2, 1]


@each_source
def test_map_before_batch_is_called_once_for_each_element(make: Callable[[int], Dataset]) -> None:
    seen = []
    list(make(5).map(lambda value: seen.append(int(value)) or value).batch(2))
    assert seen == [0, 1, 2, 3, 4]


def test_map_unpacks_tuples_and_nothing_else(images: np.ndarray) -> None:
    pairs = Dataset.from_tensor_slices((images, np.arange(10)))
    assert [int(e) for e in pairs.map(lambda image, label: label).take(2)] == [0, 1]
    dicts = Dataset.from_tensor_slices({"image": images, "label": np.arange(10)})
    assert [int(e) for e in dicts.map(lambda example: example["label"]).take(2)] == [0, 1]


def test_map_returns_what_a_source_takes() -> None:
    (element,) = Dataset.range(1).map(lambda _: ({"x": [1.0, 2.0]}, 3, 0.5))
    assert nest.map_structure(lambda leaf: str(leaf.dtype), element) == (
        {"x": "float32"},
        "int64",
        "float32",
    )


def test_a_batch_of_consecutive_rows_is_a_view_that_cannot_be_written(images: np.ndarray) -> None:
    batch = next(iter(Dataset.from_tensor_slices(images).batch(4)))
    assert np.shares_memory(batch, images)
    with pytest.raises(ValueError, match="read-only"):
        batch += 1


def test_a_shuffled_batch_belongs_to_the_caller(images: np.ndarray) -> None:
    batch = next(iter(Dataset.from_tensor_slices(images).shuffle(10, seed=1).batch(4)))
    batch += 1
    assert images[0, 0, 0, 0] == 0


@pytest.mark.parametrize(
    ("dataset", "cardinality"),
    [
        (Dataset.range(10), 10),
        (Dataset.range(10).repeat(), INFINITE),
        (Dataset.range(0).repeat(), 0),
        (Dataset.range(10).repeat(3).batch(4), 8),
        (Dataset.range(10).batch(4, drop_remainder=True), 2),
        (Dataset.range(10).repeat().batch(4), INFINITE),
        (Dataset.range(10).repeat().take(7), 7),
        (Dataset.range(10).repeat().skip(7), INFINITE),
        (Dataset.range(10).shard(4, 2), 2),
        (Dataset.range(10).shuffle(3).cache().map(add_one).prefetch(1).take(20), 10),
        (Dataset.range(10).repeat(0), 0),
        (over_a_stream(10), UNKNOWN),
        (over_a_stream(10).repeat(), UNKNOWN),
        (over_a_stream(10).take(0), 0),
        (Dataset.zip(Dataset.range(3), Dataset.range(2).repeat()), 3),
        (Dataset.zip(Dataset.range(3), over_a_stream(2)), UNKNOWN),
    ],
)
def test_cardinality_is_known_without_reading(dataset: Dataset, cardinality: int) -> None:
    assert dataset.cardinality() == cardinality


def test_element_spec_describes_shapes_and_dtypes(images: np.ndarray) -> None:
    dataset = Dataset.from_tensor_slices(({"image": images}, np.arange(10)))
    image, label = dataset.batch(4).element_spec
    assert (image["image"].shape, image["image"].dtype) == ((None, 2, 2, 1), np.float32)
    assert (label.shape, label.dtype) == ((None,), np.int64)
    assert dataset.batch(4, drop_remainder=True).element_spec[1].shape == (4,)
    assert dataset.map(lambda f, _: f["image"]).shuffle(3).element_spec.shape == (2, 2, 1)
    assert over_a_stream(3).repeat().element_spec.shape == ()
    with pytest.raises(ValueError, match=r"from_generator\(\) is unknown because the dataset has"):
        _ = over_a_stream(0).element_spec


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda d: d.batch(0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda d: d.batch(-3), ValueError, "batch_size must be at least 1, got -3"),
        (lambda d: d.batch(2.5), TypeError, r"batch_size must be an integer, got 2.5 \(float\)"),
        (lambda d: d.batch(True), TypeError, "batch_size must be an integer, got True"),
        (lambda d: d.shuffle(0), ValueError, "buffer_size must be at least 1, got 0"),
        (lambda d: d.shuffle(3, seed="x"), TypeError, "seed must be an integer, got 'x'"),
        (lambda d: d.shuffle(3, seed=2**63), ValueError, r"seed must be below 2\*\*63"),
        (lambda d: d.shard(0, 0), ValueError, "num_shards must be at least 1, got 0"),
        (lambda d: d.shard(2, 2), ValueError, "index must be below num_shards = 2, got 2"),
        (lambda d: d.shard(2, -1), ValueError, "index must be at least 0, got -1"),
        (lambda d: d.take(-2), ValueError, "count must be at least -1, got -2"),
        (lambda d: d.skip(-2), ValueError, "count must be at least -1, got -2"),
        (lambda d: d.batch(2, num_parallel_calls=-2), ValueError, "num_parallel_calls must be"),
        (lambda d: d.batch(2, deterministic=1), TypeError, "deterministic must be True or False"),
        (lambda d: d.cache("file"), ValueError, "filename must be empty, got 'file'"),
        (lambda d: d.ignore_errors(log_warning=1), TypeError, "log_warning must be True or False"),
        (lambda d: d.repeat(-2), ValueError, "count must be at least -1, got -2"),
        (lambda d: d.prefetch(-2), ValueError, "buffer_size must be at least -1, got -2"),
        (lambda d: d.map(3), TypeError, "map_func must be a function of an element, got int"),
        (lambda d: Dataset.zip(), ValueError, "at least one Dataset, got an empty structure"),
        (lambda d: Dataset.zip(d, [1]), TypeError, r"datasets\[1\]\[0\] must be a Dataset"),
    ],
)
def test_a_bad_argument_is_named(
    build: Callable[[Dataset], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(Dataset.range(4))


def test_tf_data_spells_no_limit_as_minus_one() -> None:
    assert [int(e) for e in Dataset.range(3).take(-1)] == [0, 1, 2]
    assert Dataset.range(3).repeat(-1).cardinality() == INFINITE
    assert [int(e) for e in Dataset.range(3).prefetch(-1)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        (
            [np.zeros(2), np.zeros(3)],
            r"its elements: shape \(2,\) in the first element, shape \(3,\) in element 1",
        ),
        (
            [(1, [1.0]), (2, [1.0, 2.0])],
            r"component \[1\]: shape \(1,\) in the first element, shape \(2,\)",
        ),
        (
            [{"a": 1}, {"a": 1.5}],
            r"component \['a'\]: dtype int64 in the first element, dtype float32",
        ),
        ([(1, None), (1, 2)], r"component \[1\]: a value in one element, None in another"),
        ([{"a": 1}, {"b": 1}], r"keys \['a'\], another has a dict with the keys \['b'\]"),
    ],
)
def test_elements_that_do_not_stack_are_named(elements: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(Dataset.from_generator(elements).batch(2))


def test_strings_and_missing_components_stack() -> None:
    (batch,) = Dataset.from_generator([("a", None), ("long", None)]).batch(2)
    assert batch[0].tolist() == ["a", "long"]
    assert batch[1] is None


@each_source
def test_to_skip_minus_one_leaves_out_all_and_to_take_it_keeps_all(make: Any) -> None:
    data = make(3)
    assert (len(list(data.skip(-1))), len(list(data.take(-1)))) == (0, 3)
