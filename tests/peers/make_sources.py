"""Write `sources.json`: how datasets of PyTorch, Grain and Hugging Face answer to protocols.

    python tests/peers/make_sources.py

needs these three (`pip install torch grain datasets`), not paceline. Of the methods that
`Dataset.from_source` looks for it stores which ones each source's class has, and what they gave:
`items` are those of `source[0]`, `source[1]`, …, `many` of `source.__getitems__`, `iterated` of
`iter(source)`. `tests/inputs/test_adapters.py` plays that back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import grain.python as grain
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

METHODS = ("__len__", "__getitem__", "__getitems__", "__iter__")
NUM_ITEMS = 6


class Stream(IterableDataset):
    """Has brackets only to refuse them."""

    def __iter__(self) -> Iterator[Any]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


def sources() -> dict[str, Any]:
    pairs = TensorDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6))
    squares = grain.MapDataset.range(6).map(lambda n: {"n": n, "square": n * n})
    even = grain.MapDataset.range(6).filter(lambda n: n % 2 == 0)
    batches = grain.DataLoader(
        data_source=grain.RangeDataSource(0, 5, 1),
        sampler=grain.IndexSampler(5, shuffle=False, num_epochs=1),
        operations=[grain.Batch(3)],
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "bb", "c"], "tokens": [[1], [1, 2], [3]]})
    return {
        "torch TensorDataset": pairs,
        "torch DataLoader": DataLoader(pairs, batch_size=4),
        "torch IterableDataset": Stream(),
        "grain MapDataset": squares,
        "grain repeated": squares.repeat(),
        "grain filtered": even,
        "grain IterDataset": even.to_iter_dataset(),
        "grain DataLoader": batches,
        "datasets Dataset": rows,
        "datasets numpy": rows.with_format("numpy"),
        "datasets IterableDataset": rows.to_iterable_dataset(),
        "datasets DatasetDict": datasets.DatasetDict(train=rows),
    }


def stored(source: Any) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return {"kind": type(source).__name__, "mapping": list(source)}
    methods = [name for name in METHODS if hasattr(type(source), name)]
    answers: dict[str, Any] = {"kind": type(source).__name__, "methods": methods}
    num_items = NUM_ITEMS
    if "__len__" in methods:
        answers["length"] = len(source)
        num_items = min(len(source), NUM_ITEMS)
    if "__getitem__" in methods and "__len__" in methods:
        answers["items"] = [answer(lambda at=at: source[at]) for at in range(num_items)]
    if "__getitems__" in methods:
        answers["many"] = [encoded(item) for item in source.__getitems__(list(range(num_items)))]
    if "__iter__" in methods and answers.get("length", 0) < 1000:
        answers["iterated"] = [encoded(item) for item in source]
    return answers


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return encoded(ask())
    except NotImplementedError:
        return {"raises": "NotImplementedError"}


def encoded(value: Any) -> Any:
    """The value in JSON: an object with one key says its type."""
    if isinstance(value, Mapping):
        return {"dict": {name: encoded(item) for name, item in value.items()}}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encoded(item) for item in value]}
    if isinstance(value, torch.Tensor):
        return {"tensor": [str(value.numpy().dtype), value.tolist()]}
    if isinstance(value, np.ndarray | np.generic):
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [str(value.dtype), value.tolist()]}
    assert value is None or type(value) in (int, float, str), type(value)
    return value


if __name__ == "__main__":
    from importlib.metadata import version

    versions = {name: version(name) for name in ("torch", "grain", "datasets", "numpy")}
    found = {name: stored(source) for name, source in sources().items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    text = f'{{"versions": {json.dumps(versions)},\n"sources": {{\n{lines}\n}}}}\n'
    Path(__file__).with_name("sources.json").write_text(text)
