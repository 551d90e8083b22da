"""Columns of real numbers, as they are and in buckets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, final

import numpy as np

from ...autodiff import Array, Tensor, TensorLike, by_host
from ...inputs import FixedLenFeature
from ...nn.arguments import count
from ...nn.layers import Layer
from .base import (
    CategoricalColumn,
    Categories,
    DenseColumn,
    Features,
    ParseSpec,
    beside_replica,
    categories_of,
    check_key,
    feature,
    is_on_device,
    on_host,
)
from .rows import counts

_FLOAT32 = np.dtype(np.float32)


@final
@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """See `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Any = field(compare=False)
    dtype: np.dtype
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    def dense(self, features: Features, layer: Layer) -> Tensor | Array:
        return beside_replica(self.read(features))

    @by_host
    def read(self, features: Features) -> Tensor | Array:
        """(batch, num_elements) the values of a batch, as float32.

        Raises:
            ValueError: The features lack the key, or have another number of values for each
                example, or a dtype that the column's cannot hold.
        """
        values = _numbers(feature(features, self.key, self.name))
        # Floats and whole numbers of any width, but 1.5 is no whole number.
        if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and self.dtype.kind != "f"):
            raise ValueError(
                f"feature column {self.name!r} takes numbers of dtype {self.dtype}, feature "
                f"{self.key!r} has {values.dtype}; convert it in input_fn with .astype"
            )
        if values.ndim == 1:
            values = values[:, None]
        # As in TensorFlow only their number counts: rows of 784 are images of (28, 28).
        if values.ndim == 0 or math.prod(values.shape[1:]) != self.num_elements:
            raise ValueError(
                f"feature column {self.name!r} takes feature {self.key!r} of shape "
                f"(batch, {', '.join(map(str, self.shape))}), or as many values in another "
                f"shape, it has {values.shape}; give the column its shape, or reshape the feature "
                f"in input_fn"
            )
        values = _in(self.dtype, values)
        if self.normalizer_fn is not None:
            # CuPy's arrays refuse NumPy's, such as the means of the features; a tensor takes both.
            given = values if isinstance(values, np.ndarray | Tensor) else Tensor(values)
            values = _numbers(self.normalizer_fn(given))
        values = _in(_FLOAT32, values)
        return values if values.ndim == 2 else values.reshape(len(values), -1)


@final
@dataclass(frozen=True)
class BucketizedColumn(CategoricalColumn, DenseColumn):
    """See `bucketized_column`. A linear model takes it as categories, and layers as 0 and 1."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.source_column.parse_example_spec

    @property
    def num_buckets(self) -> int:
        return (len(self.boundaries) + 1) * self.source_column.num_elements

    @property
    def num_elements(self) -> int:
        return self.num_buckets

    def categories(self, features: Features) -> Categories:
        values = on_host(self.source_column.read(features))
        found = np.searchsorted(np.array(self.boundaries, np.float32), values, side="right")
        # Each of several values has buckets of its own.
        first = np.arange(values.shape[1]) * (len(self.boundaries) + 1)
        return Categories(found + first)

    def dense(self, features: Features, layer: Layer) -> Tensor | Array:
        return beside_replica(counts(*categories_of(self, features), self.num_buckets))


def numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: Any = None,
    dtype: Any = np.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """A column of real numbers.

    Args:
        key: The feature's name.
        shape: The shape of one example's values. The feature may have another one with as many
            values, such as rows of 784 for (28, 28).
        default_value: What stands for a feature that an Example lacks, where records are parsed
            with `make_parse_example_spec`: one value, or one for each. Arrays lack none.
        dtype: A float or integer type, as which the values are taken.
        normalizer_fn: Applied to the batch of values in the shape that the feature has, where the
            replica computes: on a GPU they are a tensor, which takes NumPy's functions and arrays.

    Returns:
        The column. Its values are float32 in any case.

    Raises:
        ValueError: The dtype is not numeric, or a length in the shape not positive.
        TypeError: The key is no text, or normalizer_fn no function.
    """
    check_key(key)
    dtype = np.dtype(dtype)
    if dtype.kind not in "iuf":
        raise ValueError(f"dtype of column {key!r} must be a float or integer type, it is {dtype}")
    lengths = [shape] if isinstance(shape, (int, np.integer)) else shape
    lengths = tuple(count(f"a length in the shape of column {key!r}", n) for n in lengths)
    if default_value is not None:
        default_value = _default(key, default_value, lengths, dtype)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn of column {key!r} is no function: {normalizer_fn!r}")
    return NumericColumn(key, lengths, default_value, dtype, normalizer_fn)


def bucketized_column(
    source_column: NumericColumn, boundaries: Sequence[float]
) -> BucketizedColumn:
    """A numeric column in buckets: [-∞, b₀), [b₀, b₁), …, [bₙ, ∞).

    Args:
        source_column: Of `numeric_column`, with a shape of one axis. Each of its values has buckets
            of its own.
        boundaries: In ascending order.

    Raises:
        ValueError: The column is none of these, or the boundaries are not ascending.
    """
    if not isinstance(source_column, NumericColumn) or len(source_column.shape) > 1:
        raise ValueError(
            f"source_column must be a numeric_column whose shape has one axis, it is "
            f"{source_column!r}"
        )
    edges = tuple(float(edge) for edge in boundaries)
    if not edges or not all(first < second for first, second in pairwise(edges)):
        raise ValueError(f"boundaries must be numbers in ascending order, they are {boundaries!r}")
    return BucketizedColumn(source_column, edges)


def _numbers(values: Any) -> Any:
    """Values as an array or tensor, which stays what it is and on the device that it is on."""
    if isinstance(values, TensorLike):
        return values.tensor()
    return values if is_on_device(values) else np.asarray(values)


def _in(dtype: np.dtype, values: Any) -> Any:
    return values if values.dtype == dtype else values.astype(dtype)


def _default(key: str, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The value as the numbers of one example."""
    try:
        return np.broadcast_to(np.asarray(value).astype(dtype, casting="same_kind"), shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"default_value of column {key!r} must be one {dtype}, or one for each value of shape "
            f"{shape}; it is {value!r}"
        ) from error
