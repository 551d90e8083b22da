"""What `fit`, `evaluate` and `predict` are given, as a dataset of global batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...autodiff import TensorLike
from ...inputs import Dataset, DistributedDataset, nest

Source: TypeAlias = "Dataset | DistributedDataset"

BATCH_SIZE = 32


def source_of(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool = False,
    class_weight: Mapping[int, float] | None = None,
) -> Source:
    """A dataset of global batches: `x`, `(x, y)` or `(x, y, sample_weight)`.

    Args:
        x: Arrays with one row for each example, which are cut into batches; or what has batches
            already: a `Dataset`, a distributed one, a PyTorch `DataLoader`, a Keras `Sequence`, a
            generator or any other iterable.
        y, sample_weight: Arrays; None where `x` has batches.
        batch_size: Of arrays; 32 by default.
        shuffle: Whether arrays are shuffled, anew in each pass.
        class_weight: Class → the factor of the loss of its examples.

    Raises:
        ValueError: Arguments that are for arrays, and batches; or arrays of different lengths.
    """
    if x is None:
        raise ValueError("x is missing: give arrays, or a dataset of batches")
    if not has_batches(x):
        if class_weight is not None:
            sample_weight = _weights(_arrays(y), sample_weight, class_weight)
        return _of_arrays(_packed(x, y, sample_weight), batch_size, shuffle)
    for name, value in (("y", y), ("sample_weight", sample_weight), ("batch_size", batch_size)):
        if value is not None:
            raise ValueError(
                f"x is a {type(x).__name__}, which gives whole batches, so {name} has no meaning; "
                f"let it give (x, y) or (x, y, sample_weight), batched"
            )
    if isinstance(x, DistributedDataset):
        if class_weight is not None:
            raise ValueError("class_weight is for data that are not distributed so far")
        return x
    dataset = x if isinstance(x, Dataset) else _of_batches(x)
    if class_weight is not None:
        dataset = dataset.map(lambda *batch: _with_class_weight(batch, class_weight))
    return dataset


def has_batches(x: Any) -> bool:
    """Whether something gives whole batches, and is no structure of arrays."""
    return not (
        isinstance(x, (np.ndarray, np.generic, TensorLike, Mapping, list, tuple, int, float))
        or hasattr(x, "__array__")
        or hasattr(x, "__cuda_array_interface__")
    )


def can_be_read_once(x: Any) -> bool:
    """Whether it is a generator, or another iterator."""
    return hasattr(x, "__next__")


def split_off(
    share: float, x: Any, y: Any, sample_weight: Any
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """The first and the last `share` of arrays, as (x, y, sample_weight) each: `validation_split`.

    Raises:
        ValueError: They are no arrays, or one of the two has no example.
    """
    if has_batches(x):
        raise ValueError(
            f"validation_split is for arrays, x is a {type(x).__name__}; pass validation_data=..."
        )
    if not 0 < share < 1:
        raise ValueError(f"validation_split must be between 0 and 1, it is {share}")
    arrays = tuple(None if part is None else _arrays(part) for part in (x, y, sample_weight))
    size = nest.batch_size(_dropping_none(arrays), names=("x", "y", "sample_weight"))
    cut = int(size * (1 - share))
    if not 0 < cut < size:
        raise ValueError(
            f"validation_split={share} of {size} examples leaves none to train on, or none to "
            f"validate with"
        )
    first = tuple(_rows(part, slice(None, cut)) for part in arrays)
    last = tuple(_rows(part, slice(cut, None)) for part in arrays)
    return first, last


def _rows(structure: Any, rows: slice) -> Any:
    return None if structure is None else nest.map_structure(lambda array: array[rows], structure)


def _arrays(structure: Any) -> Any:
    """A structure of arrays: lists of numbers are arrays, lists of arrays are tuples."""
    if isinstance(structure, Mapping):
        return {name: _arrays(part) for name, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        if structure and all(hasattr(part, "shape") and np.ndim(part) for part in structure):
            return tuple(_arrays(part) for part in structure)
        if any(isinstance(part, Mapping) for part in structure):
            return tuple(_arrays(part) for part in structure)
        return np.asarray(structure)
    return structure.numpy() if isinstance(structure, TensorLike) else np.asarray(structure)


def _packed(x: Any, y: Any, sample_weight: Any) -> Any:
    if y is None and sample_weight is None:
        arrays = _arrays(x)
        return (arrays,) if isinstance(arrays, tuple) else arrays
    parts = [_arrays(x), None if y is None else _arrays(y)]
    return (*parts, *([] if sample_weight is None else [_arrays(sample_weight)]))


def _dropping_none(structure: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(part for part in structure if part is not None)


def _of_arrays(arrays: Any, batch_size: int | None, shuffle: bool) -> Dataset:
    size = nest.batch_size(arrays, names=("x", "y", "sample_weight")[: _length(arrays)])
    dataset = Dataset.from_tensor_slices(arrays)
    if shuffle and size > 1:
        dataset = dataset.shuffle(size)
    return dataset.batch(BATCH_SIZE if batch_size is None else batch_size)


def _length(arrays: Any) -> int:
    return len(arrays) if isinstance(arrays, tuple) else 1


def _of_batches(x: Any) -> Dataset:
    if can_be_read_once(x):
        # A generator of its own around `x`: the end of a pass closes that one, and the next pass
        # (validation after another epoch, say) goes on where this one has stopped reading.
        return Dataset.from_generator(lambda: (batch for batch in x)).map(_as_structure)
    return Dataset.from_source(x)


def _as_structure(*batch: Any) -> Any:
    return batch if len(batch) > 1 else batch[0]


def _with_class_weight(batch: tuple[Any, ...], class_weight: Mapping[int, float]) -> Any:
    if len(batch) < 2:
        raise ValueError("class_weight needs labels: let the data give (x, y)")
    x, y, *weight = batch
    return x, y, _weights(y, weight[0] if weight else None, class_weight)


def _weights(y: Any, sample_weight: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    """The factor of each example's loss.

    Raises:
        ValueError: The labels are no classes, or of one that has no weight.
    """
    if not isinstance(y, np.ndarray):
        raise ValueError("class_weight is for models with one output whose labels are classes")
    classes = y.argmax(axis=-1) if y.ndim > 1 and y.shape[-1] > 1 else y.reshape(len(y))
    unknown = sorted(set(np.unique(classes).tolist()) - set(class_weight))
    if unknown:
        raise ValueError(
            f"class_weight has no weight for the class(es) {unknown}, it has some for "
            f"{sorted(class_weight)}"
        )
    weights = np.asarray([class_weight[int(c)] for c in classes], np.float32)
    return weights if sample_weight is None else weights * np.asarray(sample_weight)
