"""Linear models of feature columns."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, final

from ...autodiff import Tensor
from ...nn.losses import Reduction
from ..estimator import Estimator
from ..feature_column import FeatureColumn, LinearModel
from ..feature_column.base import any_columns
from ..feature_column.rows import check_combiner
from ..run_config import RunConfig
from ..warm_start import WarmStartSettings
from .heads import Head, RegressionHead, WeightColumn, binary_or_multi_class_head
from .model import OptimizerArgument, Part, model_fn_of


@final
class LinearPart(Part):
    """Logits that are a linear function of columns: see `feature_column.LinearModel`.

    Args:
        columns, sparse_combiner: Those of the model.
        argument, optimizer, learning_rate: See `Part`.

    Raises:
        TypeError, ValueError: See `Part`; or there is no such combiner.
    """

    def __init__(
        self,
        columns: Sequence[FeatureColumn],
        sparse_combiner: str,
        argument: str,
        optimizer: OptimizerArgument,
        learning_rate: float,
    ) -> None:
        super().__init__("linear", argument, optimizer, learning_rate)
        self._columns = columns
        self._combiner = check_combiner("sparse_combiner", sparse_combiner)

    def logits(self, features: Mapping[str, Any], units: int, training: bool) -> Tensor:
        layer = LinearModel(self._columns, units, self._combiner, name="linear/linear_model")
        outputs: Tensor = layer(features)
        return outputs


class LinearEstimator(Estimator):
    """A linear model with a head of one's own.

    Variables: "linear/linear_model/<column>/weights" and "linear/linear_model/bias_weights", which
    begin at zero.

    Args:
        head: Makes a loss, predictions and metrics of the logits.
        feature_columns: What to read, dense or categorical; at least one.
        model_dir, config, warm_start_from: See `Estimator`.
        optimizer: The name of an optimizer, whose learning rate is then 0.2, and of Ftrl
            min(0.2, 1/√(number of columns)); an optimizer; or a function of no argument that makes
            one.
        sparse_combiner: What is made of several categories of one example and column: "sum", "mean"
            or "sqrtn".

    Raises:
        ValueError: No column, or an unknown optimizer or combiner.
        TypeError: Something is no head, column or optimizer.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Sequence[FeatureColumn],
        model_dir: str | os.PathLike[str] | None = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
    ) -> None:
        columns = any_columns("feature_columns", feature_columns)
        rate = linear_rate(columns, 0.2) if _is_ftrl(optimizer) else 0.2
        part = LinearPart(columns, sparse_combiner, "optimizer", optimizer, rate)
        super().__init__(
            model_fn_of(head, [part]), model_dir, config, warm_start_from=warm_start_from
        )


class LinearClassifier(LinearEstimator):
    """A linear classifier: logistic regression, of two or more classes.

    Args:
        n_classes: At least 2; of two there is one logit.
        weight_column: The name of a feature with a weight for each example.
        label_vocabulary: The words that labels are; they are numbers by default.
        loss_reduction: See `Head`.
        feature_columns, model_dir, optimizer, config, warm_start_from, sparse_combiner: See
            `LinearEstimator`.
    """

    def __init__(
        self,
        feature_columns: Sequence[FeatureColumn],
        model_dir: str | os.PathLike[str] | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = binary_or_multi_class_head(
            n_classes, weight_column, label_vocabulary, loss_reduction
        )
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, sparse_combiner, warm_start_from
        )


class LinearRegressor(LinearEstimator):
    """Linear regression, with the squared error.

    Args:
        label_dimension: The number of values to predict for each example.
        weight_column: The name of a feature with a weight for each example.
        loss_reduction: See `Head`.
        feature_columns, model_dir, optimizer, config, warm_start_from, sparse_combiner: See
            `LinearEstimator`.
    """

    def __init__(
        self,
        feature_columns: Sequence[FeatureColumn],
        model_dir: str | os.PathLike[str] | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, sparse_combiner, warm_start_from
        )


def linear_rate(columns: Sequence[FeatureColumn], largest: float) -> float:
    """The learning rate of a linear model of so many columns, which all move the same logits."""
    return min(largest, 1 / math.sqrt(len(columns)))


def _is_ftrl(optimizer: OptimizerArgument) -> bool:
    return isinstance(optimizer, str) and optimizer.lower() == "ftrl"
