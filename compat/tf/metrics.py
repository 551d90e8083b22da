"""`tf.metrics` of TensorFlow 1: pairs (value, update) for `eval_metric_ops`, and Keras's classes.

An `EstimatorSpec` makes the update in an evaluation, and gives what all batches of all replicas and
workers come to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

from ... import nn
from ..names import NameTable, serve
from .advice import advice
from .conversion import plain

__getattr__, __dir__ = serve(NameTable(__name__, ("nn.metrics",), advice=advice))


@final
class UpdateOp:
    """The update of a metric with the batch at hand, for an `EstimatorSpec` or a summary.

    It is made once, by the first that asks for it, as a session runs an operation once in a step.

    Args:
        metric: What is updated.
        update: Adds the batch to it.
    """

    def __init__(self, metric: Any, update: Callable[[], None]) -> None:
        self._metric = metric
        self._update = update
        self._is_made = False

    def __call__(self) -> None:
        if not self._is_made:
            self._is_made = True
            self._update()

    def value(self) -> Any:
        """The figure after the update, over all replicas, which must all ask for it."""
        self()
        return self._metric.result()


Pair = tuple[Any, UpdateOp]


def _pair(metric: Any, *values: Any, weights: Any) -> Pair:
    arrays = [plain(v) for v in values]
    sample_weight = None if weights is None else plain(weights)
    update = partial(metric.update_state, *arrays, sample_weight=sample_weight)
    return metric, UpdateOp(metric, update)


def _of_predictions(metric: str) -> Callable[..., Pair]:
    def make(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Pair:
        return _pair(getattr(nn.metrics, metric)(**options), labels, predictions, weights=weights)

    return make


accuracy = _of_predictions("Accuracy")
mean_absolute_error = _of_predictions("MeanAbsoluteError")
mean_squared_error = _of_predictions("MeanSquaredError")
precision = _of_predictions("Precision")
recall = _of_predictions("Recall")
root_mean_squared_error = _of_predictions("RootMeanSquaredError")


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Any = None,
) -> Pair:
    """The area under a curve.

    Raises:
        ValueError: The area under a curve of precision and recall is to be made of trapezoids,
            which TensorFlow advises against.
    """
    ours = {"trapezoidal": "interpolation", "careful_interpolation": "interpolation"}
    if curve == "PR" and summation_method == "trapezoidal":
        raise ValueError(
            "auc: summation_method must be 'careful_interpolation', 'minoring' or 'majoring' for "
            "curve='PR', got 'trapezoidal'; pass summation_method='careful_interpolation'"
        )
    metric = nn.metrics.AUC(
        num_thresholds, curve, ours.get(summation_method, summation_method), thresholds=thresholds
    )
    return _pair(metric, labels, predictions, weights=weights)


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Pair:
    """The mean of all values."""
    return _pair(nn.metrics.Mean(), values, weights=weights)


def sparse_top_k(
    labels: Any, predictions: Any, k: int, weights: Any = None, name: str | None = None
) -> Pair:
    """How often the true class is among the k of the largest scores."""
    metric = nn.metrics.SparseTopKCategoricalAccuracy(k)
    return _pair(metric, labels, predictions, weights=weights)
