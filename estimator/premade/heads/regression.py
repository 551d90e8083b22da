"""Heads whose predictions are numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Array, Tensor, by_host, sigmoid, sigmoid_cross_entropy, traceable
from ....nn.losses import Reduction
from ....nn.metrics import Metric
from ...export import ExportOutput, RegressionOutput
from .head import checked_logits, chosen, serving_outputs
from .labels import label_array, numbers, shares
from .weighted import Batch, LossFunction, WeightColumn, WeightedHead


class RegressionHead(WeightedHead):
    """Predicts one or several real numbers, by default with the squared error.

    Labels are numbers (batch, label_dimension), or (batch,) where label_dimension is 1. Weights
    are one for each example, or one for each label. Predictions are "predictions" and, with an
    `inverse_link_fn`, "logits". Metrics are average_loss, label/mean and prediction/mean.

    Args:
        label_dimension: The number of labels, and of logits, of each example.
        weight_column: The feature with the examples' weights.
        loss_reduction: See `Head`. The mean is over all labels of all examples.
        loss_fn: `loss_fn(labels, logits) -> losses` (batch, label_dimension) in the place of the
            squared error; it may also name features and loss_reduction.
        inverse_link_fn: From logits to predictions, such as `np.exp`; nothing by default.
        name: See `Head`.
    """

    has_weights_per_logit = True

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: LossFunction | None = None,
        inverse_link_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, label_dimension, loss_reduction, weight_column, loss_fn)
        if inverse_link_fn is not None and not callable(inverse_link_fn):
            raise TypeError(f"inverse_link_fn must be a function, it is {inverse_link_fn!r}")
        self._inverse_link_fn = inverse_link_fn

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        return traceable(numbers(label_array(labels, logits, self.logits_dimension), logits))

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        losses: Tensor = np.square(logits - labels)
        return losses

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        logits = checked_logits(logits, self.logits_dimension)
        if self._inverse_link_fn is None:
            return chosen({"predictions": logits}, keys)
        return chosen({"predictions": self._inverse_link_fn(logits), "logits": logits}, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        return serving_outputs(predictions, regression=RegressionOutput(predictions["predictions"]))

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        means = self.means("average_loss", "prediction/mean", "label/mean")
        return {**means, **self.mean_of_regularization(regularization_losses)}

    def update(self, eval_metrics: Mapping[str, Metric], batch: Batch) -> None:
        predicted = self.predictions(batch.logits)["predictions"]
        eval_metrics[self.key("prediction/mean")].update_state(predicted, batch.host_weights)
        eval_metrics[self.key("label/mean")].update_state(batch.labels, batch.host_weights)


class PoissonRegressionHead(RegressionHead):
    """Predicts counts: logits are logarithms of the mean of a Poisson distribution.

    Args:
        label_dimension, weight_column, loss_reduction, name: See `RegressionHead`. Labels are ≥ 0.
        compute_full_loss: Whether the loss has the part that does not depend on the model,
            log(label!) by Stirling's formula for labels above 1; it shifts what is reported.
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        compute_full_loss: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(
            label_dimension, weight_column, loss_reduction, inverse_link_fn=np.exp, name=name
        )
        self._is_full = compute_full_loss

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        checked = super().checked_labels(labels, logits)
        if not (checked >= 0).all():
            raise ValueError(
                f"labels of a Poisson regression are counts and must be ≥ 0, the smallest is "
                f"{checked.min()}"
            )
        return traceable(checked)

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        losses: Tensor = np.exp(logits) - labels * logits
        if not self._is_full:
            return losses
        above = np.maximum(labels, 1)  # log(1!) is 0, and so is what Stirling's formula is cut to
        stirling = above * np.log(above) - above + 0.5 * np.log(2 * np.pi * above)
        return losses + np.where(labels > 1, stirling, 0).astype(losses.dtype)


class LogisticRegressionHead(RegressionHead):
    """Predicts a probability; labels are numbers in [0, 1], which need not be 0 or 1.

    Args:
        weight_column, loss_reduction, name: See `RegressionHead`.
    """

    def __init__(
        self,
        weight_column: WeightColumn = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        name: str | None = None,
    ) -> None:
        super().__init__(1, weight_column, loss_reduction, inverse_link_fn=sigmoid, name=name)

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        return traceable(shares(super().checked_labels(labels, logits), logits))

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        return sigmoid_cross_entropy(logits, labels)
