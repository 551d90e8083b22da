"""What feature columns are: which features a model reads, and how they become numbers.

There are two kinds. A *categorical* column gives each example the numbers of its categories, any
number of them; a *dense* one gives it a fixed number of floats. A linear model takes either, layers
of floats take dense ones: `indicator_column` and `embedding_column` make one of the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...autodiff import Array, Tensor, TensorLike, by_host, given_array, operation
from ...inputs import FixedLenFeature, VarLenFeature
from ...nn.layers import Layer
from .rows import combined_rows

Features: TypeAlias = "Mapping[str, Any]"
ParseSpec: TypeAlias = "dict[str, FixedLenFeature | VarLenFeature]"


UNKNOWN = -2
"""A word that is there, and has no category: nothing in a sum, but something in a cross."""


class Categories(NamedTuple):
    """The categories of a batch's examples.

    Attributes:
        ids: (batch, width) int64: the numbers of each example's categories. A negative one is no
            category: -1 pads examples that have fewer than others, and `UNKNOWN` stands for a word
            that its column leaves out.
        weights: (batch, width) float32; None where all count alike.
    """

    ids: np.ndarray
    weights: np.ndarray | None = None


class FeatureColumn(ABC):
    """What a model reads of its features; made by the functions of this package."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called, in messages and in the names of its variables."""

    @property
    @abstractmethod
    def parse_example_spec(self) -> ParseSpec:
        """The form in a `tf.train.Example` of each feature that it reads, by key."""

    @abstractmethod
    def weighted_sum(
        self, features: Features, layer: Layer, units: int, combiner: str
    ) -> Tensor | Array:
        """(batch, units) the values of each example times weights, which belong to `layer`.

        Args:
            features: A batch of them, by key.
            layer: Has, or gets, the weights "<column's name>/weights", which begin at zero.
            units: How many sums to make.
            combiner: What is made of several categories of an example: "sum", "mean" or "sqrtn".
        """


class DenseColumn(FeatureColumn):
    """A fixed number of floats for each example."""

    @property
    @abstractmethod
    def num_elements(self) -> int:
        """The number of values for each example."""

    @abstractmethod
    def dense(self, features: Features, layer: Layer) -> Tensor | Array:
        """(batch, num_elements) the values of a batch, float32.

        Args:
            features: A batch of them, by key.
            layer: Has, or gets, the variables of columns that learn something.
        """

    def weighted_sum(
        self, features: Features, layer: Layer, units: int, combiner: str
    ) -> Tensor | Array:
        shape = (self.num_elements, units)
        weights = layer.add_weight(f"{self.name}/weights", shape, initializer="zeros")
        total: Tensor = self.dense(features, layer) @ weights
        return total


class CategoricalColumn(FeatureColumn):
    """The numbers of each example's categories, of a fixed number of them."""

    @property
    @abstractmethod
    def num_buckets(self) -> int:
        """The number of categories: theirs are in [0, num_buckets)."""

    @abstractmethod
    def categories(self, features: Features) -> Categories:
        """The categories of a batch."""

    def weighted_sum(
        self, features: Features, layer: Layer, units: int, combiner: str
    ) -> Tensor | Array:
        shape = (self.num_buckets, units)
        weights = layer.add_weight(f"{self.name}/weights", shape, initializer="zeros")
        return combined_rows(weights, *categories_of(self, features), combiner)


@by_host
def categories_of(column: CategoricalColumn, features: Features) -> Categories:
    """The categories of a batch, which are found on the host, for `combined_rows` and `counts`."""
    return column.categories(features)


def feature(features: Features, key: str, column: str) -> Any:
    """The feature of that key.

    Raises:
        ValueError: There is none, or features are no dict; it names the column and the key.
    """
    if isinstance(features, Mapping) and key in features:
        return given_array(features[key])
    there = f"a {type(features).__name__}, no dict"
    if isinstance(features, Mapping):
        there = ", ".join(map(repr, features)) or "an empty dict"
    raise ValueError(
        f"feature column {column!r} finds no feature {key!r}; the features that input_fn gives are "
        f"{there}"
    )


def on_host(values: Any) -> np.ndarray:
    """Values as an array in host memory, where words are looked up."""
    if isinstance(values, TensorLike):
        return values.numpy()
    return Tensor(values).numpy() if is_on_device(values) else np.asarray(values)


def is_on_device(values: Any) -> bool:
    """Whether it is an array in the memory of a device, which NumPy cannot see."""
    return hasattr(values, "dtype") and not isinstance(values, np.ndarray | np.generic)


@operation
def beside_replica(values: Tensor | Array) -> Tensor:
    """Numbers as a tensor where the calling replica computes; a tensor stays as it is."""
    return values if isinstance(values, Tensor) else Tensor(values)


def check_key(key: Any, argument: str = "key") -> str:
    """The key.

    Args:
        key: What is given for it.
        argument: The name of the argument, for messages.

    Raises:
        TypeError: It is no text.
    """
    if not isinstance(key, str) or not key:
        raise TypeError(f"{argument} must be the name of a feature, it is {key!r}")
    return key


def any_columns(argument: str, columns: Any) -> Sequence[FeatureColumn]:
    """Columns as a list in the order of their names, in which models read them.

    Args:
        argument: Its name, for messages.
        columns: One, or several.

    Raises:
        ValueError: There are none, or two of one name.
        TypeError: Something is no column.
    """
    return _without_twins(argument, columns_by_name(argument, columns))


def dense_columns(argument: str, columns: Any) -> Sequence[DenseColumn]:
    """The same of dense columns.

    Raises:
        ValueError, TypeError: See `any_columns`.
    """
    advice = (
        "layers take dense columns: wrap a categorical one in indicator_column or embedding_column"
    )
    return _without_twins(argument, _sorted(argument, columns, DenseColumn, advice))


def columns_by_name(argument: str, columns: Any) -> Sequence[FeatureColumn]:
    """Columns in the order of their names, of which several may be equal.

    Raises:
        ValueError: There are none.
        TypeError: Something is no column.
    """
    advice = "make columns with the functions of paceline.feature_column"
    return _sorted(argument, columns, FeatureColumn, advice)


def _sorted(argument: str, columns: Any, kind: Any, advice: str) -> Sequence[Any]:
    given = [columns] if isinstance(columns, FeatureColumn) else list(columns or ())
    if not given:
        raise ValueError(f"{argument} is empty; name at least one, such as numeric_column('x')")
    for column in given:
        if not isinstance(column, kind):
            raise TypeError(f"{argument} holds {column!r}; {advice}")
    return sorted(given, key=lambda column: column.name)


def _without_twins(argument: str, columns: Sequence[Any]) -> Sequence[Any]:
    (name, times), *_ = Counter(column.name for column in columns).most_common(1)
    if times > 1:
        raise ValueError(
            f"{argument} has several columns called {name!r}; leave all but one out, as their "
            f"variables would have one name"
        )
    return columns
