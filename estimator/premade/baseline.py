"""Models that look at no feature: what any other model has to beat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ...autodiff import Tensor, lift
from ...nn.losses import Reduction
from ...strategies import get_variable
from ...training import count_examples
from ..estimator import Estimator
from ..run_config import RunConfig
from .heads import Head, RegressionHead, WeightColumn, binary_or_multi_class_head
from .model import OptimizerArgument, Part, model_fn_of

_LEARNING_RATE = 0.3


@final
class _Bias(Part):
    """Logits that are the same for each example."""

    def logits(self, features: Any, units: int, training: bool) -> Tensor:
        bias = get_variable("baseline/bias", (units,), initializer=0.0)
        logits: Any = np.broadcast_to(bias, (count_examples(features), units))
        return lift(logits)


class BaselineEstimator(Estimator):
    """A model that says the same of each example, with a head of one's own.

    It learns what fits all labels best: the mean of numbers, the share of each class. Its variable
    is "baseline/bias", which begins at zero.

    Args:
        head: Makes a loss, predictions and metrics of the logits.
        model_dir, config: See `Estimator`.
        optimizer: The name of an optimizer, whose learning rate is then 0.3; an optimizer; or a
            function of no argument that makes one.

    Raises:
        ValueError: An unknown optimizer.
        TypeError: Something is no head or optimizer.
    """

    def __init__(
        self,
        head: Head,
        model_dir: str | os.PathLike[str] | None = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
    ) -> None:
        bias = _Bias("baseline", "optimizer", optimizer, _LEARNING_RATE)
        super().__init__(model_fn_of(head, [bias]), model_dir, config)


class BaselineClassifier(BaselineEstimator):
    """Predicts how frequent each class is.

    Args:
        n_classes: At least 2.
        weight_column: The name of a feature with a weight for each example.
        label_vocabulary: The words that labels are; they are numbers by default.
        loss_reduction: See `Head`.
        model_dir, optimizer, config: See `BaselineEstimator`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = binary_or_multi_class_head(
            n_classes, weight_column, label_vocabulary, loss_reduction
        )
        super().__init__(head, model_dir, optimizer, config)


class BaselineRegressor(BaselineEstimator):
    """Predicts the mean of the labels.

    Args:
        label_dimension: The number of values to predict for each example.
        weight_column: The name of a feature with a weight for each example.
        loss_reduction: See `Head`.
        model_dir, optimizer, config: See `BaselineEstimator`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerArgument = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)
