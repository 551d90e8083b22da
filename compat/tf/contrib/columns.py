"""Feature columns under the names of `tf.contrib.layers`, over `tf.feature_column`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....estimator import feature_column
from ..arguments import refuse

__all__ = [
    "embedding_column",
    "one_hot_column",
    "real_valued_column",
    "sparse_column_with_hash_bucket",
    "sparse_column_with_integerized_feature",
    "sparse_column_with_keys",
]


def real_valued_column(
    column_name: str,
    dimension: int = 1,
    default_value: Any = None,
    dtype: Any = np.float32,
    normalizer: Callable[[Any], Any] | None = None,
) -> Any:
    """`numeric_column` of `dimension` numbers."""
    return feature_column.numeric_column(
        column_name, (dimension,), default_value, dtype, normalizer
    )


def sparse_column_with_keys(
    column_name: str,
    keys: Sequence[Any],
    default_value: int = -1,
    combiner: str = "sum",
    dtype: Any = np.str_,
) -> Any:
    """`categorical_column_with_vocabulary_list`."""
    _require_sum("sparse_column_with_keys", combiner)
    return feature_column.categorical_column_with_vocabulary_list(
        column_name, keys, default_value=default_value
    )


def sparse_column_with_hash_bucket(
    column_name: str, hash_bucket_size: int, combiner: str = "sum", dtype: Any = str
) -> Any:
    """`categorical_column_with_hash_bucket`."""
    _require_sum("sparse_column_with_hash_bucket", combiner)
    return feature_column.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: Any = np.int64
) -> Any:
    """`categorical_column_with_identity`."""
    _require_sum("sparse_column_with_integerized_feature", combiner)
    return feature_column.categorical_column_with_identity(column_name, bucket_size)


def embedding_column(
    sparse_id_column: Any, dimension: int, combiner: str = "mean", initializer: Any = None
) -> Any:
    """`embedding_column`."""
    return feature_column.embedding_column(sparse_id_column, dimension, combiner, initializer)


def one_hot_column(sparse_id_column: Any) -> Any:
    """`indicator_column`."""
    return feature_column.indicator_column(sparse_id_column)


def _require_sum(name: str, combiner: str) -> None:
    refuse(name, ("combiner", combiner, "sum", "pass sparse_combiner to the linear model"))
