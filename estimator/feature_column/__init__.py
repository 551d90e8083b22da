"""Feature columns: which features a model reads, and how they become numbers.

Features are a dict of arrays by key. Numbers have shape (batch, ...). Categories are text (str or
bytes) or whole numbers of shape (batch,), or (batch, width) where examples have several, padded
with "" or -1.
"""

from .base import CategoricalColumn, Categories, DenseColumn, FeatureColumn
from .categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    weighted_categorical_column,
)
from .crossed import crossed_column
from .dense import embedding_column, indicator_column, shared_embeddings
from .layers import DenseFeatures, LinearModel, input_layer, linear_model, make_parse_example_spec
from .numeric import NumericColumn, bucketized_column, numeric_column

__all__ = [
    "CategoricalColumn",
    "Categories",
    "DenseColumn",
    "DenseFeatures",
    "FeatureColumn",
    "LinearModel",
    "NumericColumn",
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "shared_embeddings",
    "weighted_categorical_column",
]
