"""What records of examples hold for a premade model: features, labels and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...inputs import FixedLenFeature
from ...nn.arguments import count
from ..feature_column import FeatureColumn, make_parse_example_spec
from ..feature_column.base import ParseSpec


def classifier_parse_example_spec(
    feature_columns: Sequence[FeatureColumn],
    label_key: str,
    label_dtype: Any = np.int64,
    label_default: Any = None,
    weight_column: str | None = None,
) -> ParseSpec:
    """What `inputs.parse_example` is to read for a classifier.

    Args:
        feature_columns: Those of the model.
        label_key: The name of the label among the features of a record.
        label_dtype: An integer type, or `str` where the model has a label_vocabulary.
        label_default: What stands for a missing label; None makes one an error.
        weight_column: The name of the weight, where the model has weights.

    Returns:
        Key → the form of the feature. Labels and weights have shape (1,) in each record.

    Raises:
        ValueError: The label or the weight is a feature of a column.
        TypeError: Something is no column.
    """
    label = FixedLenFeature((1,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Sequence[FeatureColumn],
    label_key: str,
    label_dtype: Any = np.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: str | None = None,
) -> ParseSpec:
    """What `inputs.parse_example` is to read for a regressor.

    Args:
        label_dtype: A float or integer type.
        label_dimension: The number of labels in each record.
        feature_columns, label_key, label_default, weight_column: See
            `classifier_parse_example_spec`.

    Raises:
        ValueError, TypeError: See `classifier_parse_example_spec`.
    """
    shape = (count("label_dimension", label_dimension),)
    label = FixedLenFeature(shape, label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _with_label(
    columns: Sequence[FeatureColumn],
    label_key: str,
    label: FixedLenFeature,
    weight_column: str | None,
) -> ParseSpec:
    spec = make_parse_example_spec(columns)
    more = {"label_key": (label_key, label)}
    if weight_column is not None:
        more["weight_column"] = weight_column, FixedLenFeature((1,), np.float32)
    for argument, (key, form) in more.items():
        if key in spec:
            raise ValueError(f"{argument} {key!r} is a feature of a column, too")
        spec[key] = form
    return spec
