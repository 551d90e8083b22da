"""Layers over feature columns: what columns give as one array, and a linear model of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor, lift
from ...inputs import FixedLenFeature, VarLenFeature
from ...nn.arguments import count
from ...nn.layers import Layer, LayerOptions
from .base import DenseColumn, FeatureColumn, ParseSpec, any_columns, columns_by_name, dense_columns
from .rows import check_combiner


class DenseFeatures(Layer):
    """What dense columns give for a batch of features, side by side in the order of their names.

    Inputs are a dict of features; outputs (batch, total of the columns' num_elements). Weights:
    "<column>/embedding_weights" of embedding columns.

    Args:
        feature_columns: Dense columns.
        **options: See `Layer`.

    Raises:
        ValueError: There are no columns, or two of one name.
        TypeError: A column is not dense.
    """

    def __init__(
        self, feature_columns: Sequence[DenseColumn], **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self._columns = dense_columns("feature_columns", feature_columns)

    def call(self, inputs: Mapping[str, Any]) -> Tensor:
        return lift(np.concatenate([c.dense(inputs, self) for c in self._columns], axis=1))


class LinearModel(Layer):
    """A linear function of columns of any kind, with weights that begin at zero.

    Inputs are a dict of features; outputs (batch, units). Weights: "<column>/weights" (num_elements
    or num_buckets, units) of each column, and "bias_weights" (units,).

    Args:
        feature_columns: Columns of any kind.
        units: The number of outputs.
        sparse_combiner: What is made of several categories of one example and column: "sum", "mean"
            or "sqrtn".
        **options: See `Layer`.

    Raises:
        ValueError: There are no columns, or two of one name, or an argument is out of range.
        TypeError: Something is no column.
    """

    def __init__(
        self,
        feature_columns: Sequence[FeatureColumn],
        units: int = 1,
        sparse_combiner: str = "sum",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self._columns = any_columns("feature_columns", feature_columns)
        self.units = count("units", units)
        self.sparse_combiner = check_combiner("sparse_combiner", sparse_combiner)

    def call(self, inputs: Mapping[str, Any]) -> Tensor:
        total: Any = self.add_weight("bias_weights", (self.units,), initializer="zeros")
        for column in self._columns:
            total = column.weighted_sum(inputs, self, self.units, self.sparse_combiner) + total
        return lift(total)


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Sequence[DenseColumn],
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    cols_to_vars: None = None,
    cols_to_output_tensors: None = None,
) -> Tensor:
    """What dense columns give for a batch, (batch, total of num_elements); see `DenseFeatures`.

    Args:
        features, feature_columns, trainable: See `DenseFeatures`.
        weight_collections: Of TensorFlow's graphs; without effect.
        cols_to_vars, cols_to_output_tensors: Must be None: nothing is told of single columns.

    Raises:
        ValueError, TypeError: See `DenseFeatures`.
    """
    _require_none(cols_to_vars=cols_to_vars, cols_to_output_tensors=cols_to_output_tensors)
    layer = DenseFeatures(feature_columns, trainable=trainable, name="input_layer")
    values: Tensor = layer(features)
    return values


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Sequence[FeatureColumn],
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    cols_to_vars: None = None,
) -> Tensor:
    """A linear function of columns of any kind, (batch, units); see `LinearModel`.

    Args:
        features, feature_columns, units, sparse_combiner, trainable: See `LinearModel`.
        weight_collections, cols_to_vars: See `input_layer`.

    Raises:
        ValueError, TypeError: See `LinearModel`.
    """
    _require_none(cols_to_vars=cols_to_vars)
    layer = LinearModel(
        feature_columns, units, sparse_combiner, trainable=trainable, name="linear_model"
    )
    outputs: Tensor = layer(features)
    return outputs


def _require_none(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"{name} must be None: nothing is told of single columns; call input_layer or "
                f"linear_model for each column, or find variables by the name of their column"
            )


def make_parse_example_spec(feature_columns: Sequence[FeatureColumn]) -> ParseSpec:
    """What `inputs.parse_example` is to read for columns.

    Args:
        feature_columns: Columns of any kind; one may come twice, as where those of the two parts of
            a wide and deep model are joined.

    Returns:
        Key → `FixedLenFeature` for numeric columns and `VarLenFeature` for categorical ones. The
        latter have any number of values, so that they are batched with `padded_batch`, text with ""
        and whole numbers with `padding_values` of -1.

    Raises:
        ValueError: Two columns read one feature in different forms.
        TypeError: Something is no column.
    """
    spec: ParseSpec = {}
    for column in columns_by_name("feature_columns", feature_columns):
        for key, form in column.parse_example_spec.items():
            if key in spec and not _agree(spec[key], form):
                raise ValueError(
                    f"column {column.name!r} reads feature {key!r} as {form}, another one reads it "
                    f"as {spec[key]}; let them agree"
                )
            spec.setdefault(key, form)
    return spec


def _agree(first: FixedLenFeature | VarLenFeature, second: FixedLenFeature | VarLenFeature) -> bool:
    """Whether they parse alike. A default value may be an array, of which `==` says too much."""
    if type(first) is not type(second):
        return False
    fields = zip(vars(first).values(), vars(second).values(), strict=True)
    return all(np.array_equal(one, other) for one, other in fields)
