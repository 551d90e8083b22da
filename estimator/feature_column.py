"""Feature columns: which features a premade model reads, and how they become numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class NumericColumn:
    """A column of real numbers; made by `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: np.dtype
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def num_elements(self) -> int:
        """The number of values per example."""
        return int(np.prod(self.shape))

    def read(self, features: Mapping[str, Any]) -> np.ndarray:
        """(batch, num_elements) the values of a batch.

        Raises:
            ValueError: The features lack the key, or have another shape.
        """
        if not isinstance(features, Mapping) or self.key not in features:
            there = (
                ", ".join(features) if isinstance(features, Mapping) else type(features).__name__
            )
            raise ValueError(
                f"feature column {self.key!r} finds no feature of this name; input_fn gives {there}"
            )
        values = np.asarray(features[self.key], self.dtype)
        if values.ndim == 1 and self.shape == (1,):
            values = values[:, None]
        if values.shape[1:] != self.shape:
            raise ValueError(
                f"feature {self.key!r} has shape {values.shape}, its column expects "
                f"(batch, {', '.join(map(str, self.shape))})"
            )
        if self.normalizer_fn is not None:
            values = np.asarray(self.normalizer_fn(values), self.dtype)
        return values.reshape(len(values), -1)


def numeric_column(
    key: str,
    shape: int | tuple[int, ...] = (1,),
    default_value: Any = None,
    dtype: Any = np.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """A column of real numbers.

    Args:
        key: The feature's name.
        shape: The shape of one example's values.
        default_value: Accepted for TensorFlow's signature: arrays have no missing values.
        dtype: A float or integer type; the values are converted to it.
        normalizer_fn: Applied to the batch of values.

    Raises:
        ValueError: The dtype is not numeric.
    """
    dtype = np.dtype(dtype)
    if not np.issubdtype(dtype, np.number):
        raise ValueError(f"dtype of column {key!r} must be a float or integer type, it is {dtype}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return NumericColumn(key, shape, default_value, dtype, normalizer_fn)
