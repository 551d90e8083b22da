"""What records of examples hold for a premade model: features, labels and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...inputs import FixedLenFeature
from ...nn.arguments import count
from ..feature_column import FeatureColumn, NumericColumn, make_parse_example_spec, numeric_column
from ..feature_column.base import ParseSpec, check_key
from .heads.weighted import WeightColumn, checked_weight_column


def classifier_parse_example_spec(
    feature_columns: Sequence[FeatureColumn],
    label_key: str,
    label_dtype: Any = np.int64,
    label_default: Any = None,
    weight_column: WeightColumn = None,
) -> ParseSpec:
    """What `inputs.parse_example` is to read for a classifier.

    Args:
        feature_columns: Those of the model.
        label_key: The name of the label among the features of a record.
        label_dtype: An integer type, or `str` where the model has a label_vocabulary.
        label_default: What stands for a missing label; None makes one an error.
        weight_column: The name of the weight, or a `numeric_column` of it, where the model has
            weights.

    Returns:
        Key → the form of the feature. Labels have shape (1,) in each record, and so have weights
            whose column does not say otherwise.

    Raises:
        ValueError: The label or the weight is a feature of a column, or both are one feature.
        TypeError: Something is no column, label_key no name, or weight_column neither.
    """
    label = FixedLenFeature((1,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Sequence[FeatureColumn],
    label_key: str,
    label_dtype: Any = np.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: WeightColumn = None,
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
    weight_column: WeightColumn,
) -> ParseSpec:
    more: dict[str, ParseSpec] = {"label_key": {check_key(label_key, "label_key"): label}}
    weight = checked_weight_column(weight_column)
    if weight is not None:
        column = weight if isinstance(weight, NumericColumn) else numeric_column(weight)
        more["weight_column"] = column.parse_example_spec
    spec = make_parse_example_spec(columns)
    for argument, forms in more.items():
        for key in sorted(forms.keys() & spec.keys()):
            raise ValueError(
                f"{argument} {key!r} is a feature of a column or the label, too; leave it out there"
            )
        spec |= forms
    return spec
