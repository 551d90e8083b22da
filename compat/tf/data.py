"""`tf.data`: datasets and their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from ... import inputs
from ...inputs import INFINITE, UNKNOWN, Dataset
from ..names import NameTable, register, serve
from .advice import advice

AUTOTUNE = -1
INFINITE_CARDINALITY, UNKNOWN_CARDINALITY = INFINITE, UNKNOWN
_NAMES = {
    "Dataset": "inputs.Dataset",
    "DatasetSpec": "inputs.DatasetSpec",
}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))


class Options(inputs.Options):  # type: ignore[misc]  # final, for those who write it anew
    """`paceline.inputs.Options` as TensorFlow's scripts fill them: attribute by attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set one of them.

        Raises:
            AttributeError: There is none of this name.
        """
        names = [field.name for field in fields(self)]
        name = name.removeprefix("experimental_")
        if name not in names:
            raise AttributeError(f"tf.data.Options has {', '.join(names)} here, and no {name!r}")
        inputs.Options(**{name: value})  # checks the value
        object.__setattr__(self, name, value)

    @property
    def distribute(self) -> Options:
        """Where TensorFlow has `auto_shard_policy`: these themselves."""
        return self

    experimental_distribute = distribute


def TextLineDataset(  # noqa: N802
    filenames: Any,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    name: str | None = None,
) -> Dataset:
    """The lines of text files; see `TFRecordDataset` for the arguments."""
    return _of_files(partial(inputs.text_lines, compression_type=compression_type), filenames)


def TFRecordDataset(  # noqa: N802
    filenames: Any,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    name: str | None = None,
) -> Dataset:
    """The records of TFRecord files, one file after another.

    Args:
        filenames: A path or several, a tensor of them, or a dataset of them.
        compression_type: "GZIP"; otherwise `.gz` files are unpacked.
        buffer_size: Has no effect.
        num_parallel_reads: Has no effect: the order stays that of the files. `interleave` over a
            dataset of names reads several at a time.
        name: Has no effect.
    """
    return _of_files(partial(inputs.tf_records, compression_type=compression_type), filenames)


def _of_files(read: Callable[[Any], Dataset], filenames: Any) -> Dataset:
    if isinstance(filenames, Dataset):
        return filenames.flat_map(lambda name: read(name.item()))
    return read(np.asarray(filenames).tolist())  # of a tensor, an array, a list or one name


class TFRecordWriter:
    """`tf.data.experimental.TFRecordWriter`, which writes a dataset of records as one file."""

    def __init__(self, filename: Any, compression_type: str | None = None) -> None:
        self._open = partial(inputs.TFRecordWriter, filename, compression_type)

    def write(self, dataset: Dataset) -> None:
        """Write the elements, texts or bytes, replacing a file that is there."""
        with self._open() as writer:
            for record in dataset:
                writer.write(_as_bytes(record))


def _as_bytes(record: Any) -> bytes:
    """A record as it is written: of numbers, as `TFRecordDataset` gives them, their bytes."""
    return str(record).encode() if record.dtype.kind == "U" else record.tobytes()


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `map` and `batch`."""
    calls = num_parallel_calls or (num_parallel_batches and AUTOTUNE)
    return lambda data: data.map_and_batch(map_func, batch_size, drop_remainder, calls)


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `shuffle` and `repeat`."""
    return lambda data: data.shuffle(buffer_size, seed).repeat(count)


def parallel_interleave(
    map_func: Callable[..., Dataset], cycle_length: int, block_length: int = 1, **hints: Any
) -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `interleave` that reads ahead."""
    return lambda data: data.interleave(map_func, cycle_length, block_length, AUTOTUNE)


def enumerate_dataset(start: int = 0) -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `enumerate`."""
    return lambda data: data.enumerate(start)


def unbatch() -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `unbatch`."""
    return lambda data: data.unbatch()


def ignore_errors(log_warning: bool = False) -> Callable[[Dataset], Dataset]:
    """For `dataset.apply`: `ignore_errors`."""
    return lambda data: data.ignore_errors(log_warning=log_warning)


def cardinality(dataset: Dataset) -> int:
    """The number of elements; -1 of an endless one, -2 where it is not known."""
    return dataset.cardinality()


def get_single_element(dataset: Dataset) -> Any:
    """The only element.

    Raises:
        ValueError: There is none, or more than one.
    """
    found = list(dataset.take(2))
    if len(found) != 1:
        raise ValueError(f"the dataset has {'no' if not found else 'more than one'} element")
    return found[0]


def Counter(start: int = 0, step: int = 1, dtype: Any = None) -> Dataset:  # noqa: N802
    """Numbers from `start` on without end."""
    return Dataset.range(start, 2**62 if step > 0 else -(2**62), step)


def get_structure(dataset_or_iterator: Any) -> Any:
    """What elements are made of."""
    return dataset_or_iterator.element_spec


def make_one_shot_iterator(dataset: Dataset) -> Any:
    """TensorFlow 1's: `iter(dataset)`."""
    return iter(dataset)


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> Any:
    """The same: an iterator is at its beginning when it is made, its `initializer` is None."""
    return iter(dataset)


def get_next_as_optional(iterator: Any) -> Any:
    """The next element of an iterator, or none behind the last one."""
    return iterator.get_next_as_optional()


_PREFIX = "compat.tf.data."
_FUNCTIONS = (
    "AUTOTUNE",
    "Counter",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "cardinality",
    "get_next_as_optional",
    "enumerate_dataset",
    "get_single_element",
    "get_structure",
    "ignore_errors",
    "map_and_batch",
    "parallel_interleave",
    "shuffle_and_repeat",
    "unbatch",
)
_EXPERIMENTAL = {
    **{name: f"{_PREFIX}{name}" for name in _FUNCTIONS},
    "AutoShardPolicy": "inputs.AutoShardPolicy",
    "Optional": "inputs.OptionalElement",
    "TFRecordWriter": f"{_PREFIX}TFRecordWriter",
}
register(__name__, {"experimental": ((), _EXPERIMENTAL)}, advice)
