"""Elements, batches and gathers of random access give the same, whatever the chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.inputs import Dataset

Transform = Callable[[Dataset], Dataset]

STEPS: dict[str, Transform] = {
    "shuffle": lambda d: d.shuffle(5, seed=1),
    "full shuffle": lambda d: d.shuffle(500, seed=2),
    "repeat": lambda d: d.repeat(2),
    "endless": lambda d: d.repeat().take(40),
    "take": lambda d: d.take(9),
    "skip": lambda d: d.skip(2),
    "shard": lambda d: d.shard(3, 1),
    "cache": lambda d: d.cache(),
    "map": lambda d: d.map(lambda v: v + 1),
    "map_batched": lambda d: d.map_batched(lambda v: v * 3),
    "concatenate": lambda d: d.concatenate(d.skip(1).take(3)).concatenate(Dataset.range(0)),
    "zip": lambda d: Dataset.zip(d, d.shuffle(9, seed=3)).map(lambda a, b: a * 100 + b),
    "enumerate": lambda d: d.enumerate().map_batched(lambda i, v: v + i),
    "pairs": lambda d: d.batch(2, drop_remainder=True).map(lambda v: v.sum()),
}


def sources() -> st.SearchStrategy[Dataset]:
    lengths = st.integers(0, 12)
    return st.one_of(
        lengths.map(Dataset.range),
        lengths.map(lambda n: Dataset.from_tensor_slices(np.arange(n))),
        lengths.map(lambda n: Dataset.from_source(list(range(n)))),
    )


@settings(max_examples=150, deadline=None)
@given(source=sources(), steps=st.lists(st.sampled_from(list(STEPS)), max_size=4))
def test_single_elements_stacked_elements_and_gathers_are_the_same(
    source: Dataset, steps: list[str]
) -> None:
    def make() -> Dataset:
        dataset = source
        for step in steps:
            dataset = STEPS[step](dataset)
        return dataset

    singles = [int(v) for v in make()]
    for whole in (
        make().batch(3),
        make().map(lambda v: v).batch(3),
        make().map_batched(lambda v: v).batch(3),
        make().repeat(1).concatenate(Dataset.range(0)).batch(3),
        make().padded_batch(3),
    ):
        batches = list(whole)
        assert [int(v) for batch in batches for v in batch] == singles
        assert [len(batch) for batch in batches[:-1]] == [3] * (len(batches) - 1)


def test_a_batch_across_parts_keeps_structure_dtype_and_missing_components() -> None:
    def part(first: int, text: str) -> Dataset:
        values = np.arange(first, first + 3, dtype=np.int16)
        return Dataset.from_tensor_slices({"n": values, "t": [text] * 3, "none": None})

    dataset = part(0, "a").concatenate(part(10, "long"))
    batches = list(dataset.shuffle(6, seed=1).batch(6))
    assert batches[0]["n"].dtype == np.int16
    assert batches[0]["none"] is None
    pairs = zip(batches[0]["n"].tolist(), batches[0]["t"].tolist(), strict=True)
    assert sorted(pairs) == [(i, "a") for i in range(3)] + [(10 + i, "long") for i in range(3)]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=9),
    size=st.integers(1, 4),
    is_stream=st.booleans(),
)
def test_padded_batches_are_what_lists_padded_with_zeros_are(
    lengths: list[int], size: int, is_stream: bool
) -> None:
    rows = [list(range(1, length + 1)) for length in lengths]

    def row(index: Any) -> np.ndarray:
        return np.array(rows[int(index)], np.int64)

    numbers = range(len(rows))
    source = Dataset.from_generator(numbers) if is_stream else Dataset.range(len(rows))
    expected = []
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        widest = max(map(len, chunk))
        expected.append([r + [0] * (widest - len(r)) for r in chunk])
    assert [b.tolist() for b in source.map(row).padded_batch(size)] == expected


def test_the_state_of_a_long_chain_over_a_huge_dataset_is_small() -> None:
    dataset = (
        Dataset.range(10**8)
        .shuffle(10**8, seed=2**62)
        .repeat()
        .shard(1000, 999)
        .map_batched(lambda v: v)
        .map(lambda v: (v, v))
        .filter(lambda v, _: True)
        .padded_batch(64, drop_remainder=True)
        .prefetch()
    )
    iterator = iter(dataset)
    state = iterator.get_state()
    next(iterator)
    assert len(json.dumps(iterator.get_state())) < 1024
    assert len(json.dumps(state)) < 1024
    iterator.close()
