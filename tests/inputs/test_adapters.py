"""Sources of other libraries, by protocol, and what these libraries' own were seen to answer.

`tests/peers/make_sources.py` made and stored these answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.inputs import INFINITE, UNKNOWN, Dataset, nest


def plain(dataset: Any) -> list[Any]:
    return [nest.map_structure(lambda leaf: leaf.tolist(), element) for element in dataset]


class Indexed:
    """What PyTorch's map-style datasets and Grain's `MapDataset` look like."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, position: int) -> Any:
        self.asked.append(position)
        if position == 7:
            raise KeyError("seven")
        return {"n": position, "row": [float(position)] * 2}


class IndexedInBatches(Indexed):
    """As PyTorch and Hugging Face datasets that fetch many at a time."""

    def __getitems__(self, positions: list[int]) -> list[Any]:
        self.asked.append(positions)
        return [{"n": position} for position in positions]


class Iterated:
    """What loaders look like."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        for i in range(3):
            yield [np.full(2, i), {"label": np.int64(i)}]


def test_what_can_be_indexed_is_shuffled_and_sharded_by_position() -> None:
    source = Indexed()
    dataset = Dataset.from_source(source)
    assert dataset.cardinality() == 10
    assert plain(dataset.take(1)) == [{"n": 0, "row": [0.0, 0.0]}]
    source.asked.clear()
    batches = plain(dataset.take(6).shuffle(6, seed=1).shard(2, 0).batch(3))
    assert sorted(source.asked) == sorted(batches[0]["n"])
    assert len(source.asked) == 3


def test_what_fetches_many_is_asked_once_for_each_batch() -> None:
    source = IndexedInBatches()
    batches = plain(Dataset.from_source(source).shuffle(10, seed=1).repeat().batch(4).take(2))
    assert [batch["n"] for batch in batches] == source.asked


class Refusing(Iterated):
    """As PyTorch's `IterableDataset`, which has brackets only to refuse them."""

    def __getitem__(self, position: int) -> Any:
        raise NotImplementedError


class Filtered(Indexed):
    """As Grain's `MapDataset.filter`, which keeps the positions of what it leaves out."""

    def __getitem__(self, position: int) -> Any:
        return None if position == 1 else position


class Endless(Indexed):
    """As Grain's `MapDataset.repeat`."""

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, position: int) -> Any:
        return position % 3


def test_brackets_that_refuse_every_position_are_not_used() -> None:
    assert Dataset.from_source(Refusing()).cardinality() == UNKNOWN
    assert len(plain(Dataset.from_source(Refusing()))) == 3


def test_an_item_that_is_none_is_an_error_and_can_be_left_out() -> None:
    dataset = Dataset.from_source(Filtered())
    with pytest.raises(ValueError, match=r"The item is None, as Grain's .* to_iter_dataset\(\)"):
        list(dataset)
    assert plain(dataset.ignore_errors(lambda *_: None).take(2)) == [0, 2]


def test_more_items_than_anyone_will_see_are_without_end() -> None:
    dataset = Dataset.from_source(Endless())
    assert dataset.cardinality() == INFINITE
    assert plain(dataset.repeat().shard(2, 1).batch(4).take(2)) == [[1, 0, 2, 1], [0, 2, 1, 0]]


def test_an_item_that_cannot_be_read_is_named() -> None:
    with pytest.raises(KeyError, match="seven") as caught:
        list(Dataset.from_source(Indexed()))
    assert caught.value.__notes__[0] == "While reading item 7 of the source."


def test_what_is_iterated_over_comes_in_order_with_lists_as_tuples() -> None:
    dataset = Dataset.from_source(Iterated())
    assert dataset.cardinality() == UNKNOWN
    expected = [([i, i], {"label": i}) for i in range(3)]
    assert plain(dataset) == plain(dataset) == expected


@pytest.mark.parametrize("make", [Iterated, IndexedInBatches, lambda: list(range(5))])
def test_in_26_foreign_sources_resume_from_every_element(
    make: Callable[[], Any], assert_resumes_from_every_element: Callable[[Any], None]
) -> None:
    assert_resumes_from_every_element(lambda: Dataset.from_source(make()).shuffle(3).repeat(2))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"train": [1], "test": [2]}, r"got a dict with the keys \['train', 'test'\]\. Choose one"),
        (3, "have a length and take positions, or be iterable more than once, got int"),
        (iter([1]), "iterable more than once, got list_iterator"),
    ],
)
def test_what_is_no_dataset_is_refused(source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Dataset.from_source(source)


STORED = json.loads((Path(__file__).parents[1] / "peers" / "sources.json").read_text())["sources"]


class Tensor:
    """What NumPy sees of PyTorch's."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array


def decoded(value: Any) -> Any:
    """The value that was stored."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "raises":
        raise NotImplementedError
    if kind == "dict":
        return {name: decoded(item) for name, item in content.items()}
    if kind in ("list", "tuple"):
        items = [decoded(item) for item in content]
        return items if kind == "list" else tuple(items)
    dtype, values = content
    if kind == "tensor":
        return Tensor(np.array(values, dtype))
    return np.array(values, dtype)[()] if kind == "scalar" else np.array(values, dtype)


def played_back(name: str) -> Any:
    """An object with the methods of that library's, which answers as that did."""
    stored = STORED[name]
    if "mapping" in stored:
        return dict.fromkeys(stored["mapping"])
    answers = {
        "__len__": lambda _: stored["length"],
        "__getitem__": lambda _, at: decoded(stored["items"][at]),
        "__getitems__": lambda _, several: [decoded(stored["many"][at]) for at in several],
        "__iter__": lambda _: iter([decoded(item) for item in stored["iterated"]]),
    }
    methods = {method: answers[method] for method in stored["methods"]}
    return type(stored["kind"], (), methods)()


def test_pytorch_s_datasets_and_loaders() -> None:
    pairs = Dataset.from_source(played_back("torch TensorDataset"))
    assert pairs.cardinality() == 6
    assert plain(pairs.skip(4).batch(2)) == [([[4.0], [5.0]], [4, 5])]
    assert pairs.element_spec[0].dtype == np.float32
    loader = Dataset.from_source(played_back("torch DataLoader"))
    assert plain(loader) == [
        ([[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 3]),
        ([[4.0], [5.0]], [4, 5]),
    ]
    assert plain(Dataset.from_source(played_back("torch IterableDataset"))) == [0, 1, 2]


def test_grain_s_datasets_and_loaders() -> None:
    squares = Dataset.from_source(played_back("grain MapDataset"))
    assert plain(squares.skip(4).batch(2)) == [{"n": [4, 5], "square": [16, 25]}]
    repeated = Dataset.from_source(played_back("grain repeated"))
    assert repeated.cardinality() == INFINITE
    assert plain(repeated.skip(2).take(1)) == [{"n": 2, "square": 4}]
    with pytest.raises(ValueError, match="The item is None"):
        list(Dataset.from_source(played_back("grain filtered")))
    assert plain(Dataset.from_source(played_back("grain IterDataset"))) == [0, 2, 4]
    loader = Dataset.from_source(played_back("grain DataLoader"))
    assert plain(loader.repeat(2)) == [[0, 1, 2], [3, 4]] * 2


@pytest.mark.parametrize("kind", ["Dataset", "numpy", "IterableDataset"])
def test_hugging_face_s_datasets(kind: str) -> None:
    rows = Dataset.from_source(played_back(f"datasets {kind}"))
    expected = {"text": ["a", "bb", "c"], "tokens": [[1, 0], [1, 2], [3, 0]]}
    assert plain(rows.padded_batch(3)) == [expected]
    assert rows.cardinality() == (UNKNOWN if kind == "IterableDataset" else 3)


def test_one_of_hugging_face_s_splits_must_be_chosen() -> None:
    with pytest.raises(TypeError, match=r"got a dict with the keys \['train'\]"):
        Dataset.from_source(played_back("datasets DatasetDict"))
