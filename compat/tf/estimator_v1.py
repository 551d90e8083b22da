"""`tf.compat.v1.estimator`: canned Estimators whose loss is the sum over a batch.

TensorFlow 2's canned Estimators, in `tf.estimator`, take the mean. With the sum, gradients are
larger by the batch size, and so is `loss` in what `evaluate` gives: the mean over its batches, in
which a batch counts by its number of examples. `average_loss` is the mean over examples in both.
"""

from __future__ import annotations

from typing import Any

from ... import estimator
from ...nn.losses import Reduction

__all__ = [
    "BaselineClassifier",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearRegressor",
]


class _OfSummedLoss:
    """The constructor of TensorFlow 1's canned Estimators, in front of the class here."""

    def __init__(
        self,
        *args: Any,
        loss_reduction: Any = Reduction.SUM,
        input_layer_partitioner: Any = None,
        partitioner: Any = None,
        **options: Any,
    ) -> None:
        # Partitioners have no effect: a parameter-server strategy has its own, and values are the
        # same with any.
        canned: Any = super()  # the next base class of each class below
        canned.__init__(*args, loss_reduction=loss_reduction, **options)


class BaselineClassifier(_OfSummedLoss, estimator.BaselineClassifier):
    """`paceline.estimator.BaselineClassifier` with the sum over the batch for its loss."""


class BaselineRegressor(_OfSummedLoss, estimator.BaselineRegressor):
    """`paceline.estimator.BaselineRegressor` with the sum over the batch for its loss."""


class DNNClassifier(_OfSummedLoss, estimator.DNNClassifier):
    """`paceline.estimator.DNNClassifier` with the sum over the batch for its loss."""


class DNNLinearCombinedClassifier(_OfSummedLoss, estimator.DNNLinearCombinedClassifier):
    """`paceline.estimator.DNNLinearCombinedClassifier` with the sum over the batch for its loss."""


class DNNLinearCombinedRegressor(_OfSummedLoss, estimator.DNNLinearCombinedRegressor):
    """`paceline.estimator.DNNLinearCombinedRegressor` with the sum over the batch for its loss."""


class DNNRegressor(_OfSummedLoss, estimator.DNNRegressor):
    """`paceline.estimator.DNNRegressor` with the sum over the batch for its loss."""


class LinearClassifier(_OfSummedLoss, estimator.LinearClassifier):
    """`paceline.estimator.LinearClassifier` with the sum over the batch for its loss."""


class LinearRegressor(_OfSummedLoss, estimator.LinearRegressor):
    """`paceline.estimator.LinearRegressor` with the sum over the batch for its loss."""
