"""From categories to floats: columns that count them, and columns that look up learned rows."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from ...autodiff import Array, Tensor
from ...checkpoint import latest_checkpoint, load
from ...nn import initializers
from ...nn.arguments import count
from ...nn.layers import Layer
from .base import (
    CategoricalColumn,
    DenseColumn,
    Features,
    ParseSpec,
    beside_replica,
    categories_of,
)
from .categorical import WeightedColumn, check_categorical
from .rows import check_combiner, combined_rows, counts


@final
@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """See `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def num_elements(self) -> int:
        return self.categorical_column.num_buckets

    def dense(self, features: Features, layer: Layer) -> Tensor | Array:
        categories = categories_of(self.categorical_column, features)
        return beside_replica(counts(*categories, self.num_elements))


@dataclass(frozen=True)
class _Table:
    """A table of learned rows, and how they are read."""

    num_rows: int
    dimension: int
    combiner: str
    initializer: Callable[..., Any]
    max_norm: float | None
    trainable: bool

    def __post_init__(self) -> None:
        check_combiner("combiner", self.combiner)
        if self.max_norm is not None and not self.max_norm > 0:
            raise ValueError(f"max_norm must be positive or None, it is {self.max_norm}")

    def rows(
        self, name: str, column: CategoricalColumn, features: Features, layer: Layer
    ) -> Tensor:
        """(batch, dimension) one combined row for each example.

        Args:
            name: Of the table: the variable is "<layer>/<name>/embedding_weights".
            column: Says the rows.
            features, layer: See `DenseColumn.dense`.
        """
        table = layer.add_weight(
            f"{name}/embedding_weights",
            (self.num_rows, self.dimension),
            initializer=self.initializer,
            trainable=self.trainable,
        )
        return combined_rows(table, *categories_of(column, features), self.combiner, self.max_norm)


@final
@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn):
    """See `embedding_column` and `shared_embeddings`.

    Args:
        shared_name: The name of the table that it shares with others; None: one of its own.
    """

    categorical_column: CategoricalColumn
    table: _Table
    shared_name: str | None

    @property
    def name(self) -> str:
        kind = "embedding" if self.shared_name is None else "shared_embedding"
        return f"{self.categorical_column.name}_{kind}"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def num_elements(self) -> int:
        return self.table.dimension

    def dense(self, features: Features, layer: Layer) -> Tensor | Array:
        name = self.shared_name or self.name
        return self.table.rows(name, self.categorical_column, features, layer)


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """How often each example has each category: 0 and 1 where it has one ("one-hot").

    Args:
        categorical_column: The categories. Of a weighted one it is the sum of the weights.

    Raises:
        TypeError: It is no categorical column.
    """
    return IndicatorColumn(check_categorical("indicator_column", categorical_column))


def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: str | Callable[..., Any] | None = None,
    ckpt_to_load_from: str | os.PathLike[str] | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:
    """A learned row of floats for each category.

    The gradient covers only the rows that a batch reads; see `nn.layers.Embedding` for what that
    means with each optimizer. An example without categories gets zeros.

    Args:
        categorical_column: The categories.
        dimension: The length of a row.
        combiner: What is made of the rows of an example with several categories: their "mean",
            "sum", or "sqrtn": the sum over the square root of their number (of the sum of the
            squared weights, in a weighted column).
        initializer: See `nn.initializers`; by default a truncated normal distribution of standard
            deviation 1/√dimension.
        ckpt_to_load_from, tensor_name_in_ckpt: Begin with the values of a variable of a checkpoint:
            its path, or a directory, of which the newest is taken. Both or neither.
        max_norm: Rows that are longer (L2) are used as if they had this length.
        trainable: Whether optimizers change the rows.
        use_safe_embedding_lookup: As in TensorFlow's signature. The look-up is the safe one in any
            case.

    Raises:
        TypeError: It is no categorical column.
        ValueError: Another argument is out of range.
    """
    column = check_categorical("embedding_column", categorical_column)
    first = _first_rows(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    table = _Table(column.num_buckets, dimension, combiner, first, max_norm, trainable)
    return EmbeddingColumn(column, table, None)


def shared_embeddings(
    categorical_columns: Sequence[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: str | Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | os.PathLike[str] | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[EmbeddingColumn]:
    """Columns that look up their rows in one table: of a watched and a liked film, for instance.

    Args:
        categorical_columns: Of one kind, and of one number of categories.
        shared_embedding_collection_name: The name of the table; by default made of the columns'.
        dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm,
            trainable, use_safe_embedding_lookup: See `embedding_column`.

    Returns:
        A dense column for each of them, in their order.

    Raises:
        TypeError: One is no categorical column.
        ValueError: They differ in kind or in the number of categories, or another argument is out
            of range.
    """
    columns = [check_categorical("shared_embeddings", column) for column in categorical_columns]
    if not columns:
        raise ValueError("categorical_columns is empty; name those that share a table")
    kinds = {(type(_unweighted(column)).__name__, column.num_buckets) for column in columns}
    if len(kinds) > 1:
        raise ValueError(
            f"columns that share a table must be of one kind and number of categories; these are "
            f"{', '.join(f'{kind} of {n}' for kind, n in sorted(kinds))}"
        )
    names = "_".join(sorted(column.name for column in columns))
    first = _first_rows(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    table = _Table(columns[0].num_buckets, dimension, combiner, first, max_norm, trainable)
    name = shared_embedding_collection_name or f"{names}_shared_embedding"
    return [EmbeddingColumn(column, table, name) for column in columns]


def _unweighted(column: CategoricalColumn) -> CategoricalColumn:
    return column.categorical_column if isinstance(column, WeightedColumn) else column


def _first_rows(
    dimension: int,
    initializer: str | Callable[..., Any] | None,
    path: str | os.PathLike[str] | None,
    name: str | None,
) -> Callable[..., Any]:
    """What gives the first values of a table.

    Raises:
        ValueError: The dimension is not positive, or half of where to find them is missing.
    """
    stddev = 1 / math.sqrt(count("dimension", dimension))
    if (path is None) != (name is None):
        raise ValueError(
            f"ckpt_to_load_from={path!r} and tensor_name_in_ckpt={name!r} belong together: where "
            f"the checkpoint is, and what the variable is called there; give both or neither"
        )
    if path is not None and name is not None:
        return partial(_from_checkpoint, os.fspath(path), name)
    return initializers.get(initializer or initializers.TruncatedNormal(stddev=stddev))


def _from_checkpoint(
    path: str, name: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> np.ndarray:
    """An initializer: the value of a variable in a checkpoint, or in the newest of a directory."""
    checkpoint = load(latest_checkpoint(path) or path)
    if name not in checkpoint.names:
        raise ValueError(
            f"tensor_name_in_ckpt: {checkpoint.path} has no {name!r}; it has "
            f"{', '.join(checkpoint.names)}"
        )
    value = checkpoint.read(name)
    if value.shape != shape:
        raise ValueError(
            f"the embedding has shape {shape}, and {name!r} in {path} has {value.shape}; give the "
            f"column as many categories and the dimension of that one"
        )
    return np.asarray(value, dtype)
