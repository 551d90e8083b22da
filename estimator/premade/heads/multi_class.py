"""The head of three classes and more, of which each example has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Array, Tensor, by_host, softmax, softmax_cross_entropy, traceable
from ....nn.losses import Reduction
from ....nn.metrics import Metric, SparseCategoricalAccuracy
from ...export import ClassificationOutput, ExportOutput
from .binary_class import BinaryClassHead
from .head import Head, checked_logits, chosen, serving_outputs
from .labels import Classes, label_array
from .weighted import Batch, LossFunction, WeightColumn, WeightedHead


class MultiClassHead(WeightedHead):
    """Tells several classes apart, by the cross-entropy of one logit for each.

    Labels are class numbers in [0, n_classes), or words of the vocabulary, (batch, 1) or (batch,).
    Predictions are "logits" and "probabilities" (batch, n_classes), "class_ids" and "classes"
    (batch, 1), "all_class_ids" and "all_classes" (batch, n_classes). Metrics are average_loss and
    accuracy.

    Args:
        n_classes: At least 3; two are told apart by a `BinaryClassHead`.
        weight_column: The feature with a weight for each example.
        label_vocabulary: The words that labels are, n_classes of them; they are numbers by default.
        loss_reduction: See `Head`.
        loss_fn: `loss_fn(labels, logits) -> losses` (batch, 1) in the place of the cross-entropy.
        name: See `Head`.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: LossFunction | None = None,
        name: str | None = None,
    ) -> None:
        if n_classes == 2:
            raise ValueError("n_classes of MultiClassHead must be above 2; use BinaryClassHead")
        super().__init__(name, n_classes, loss_reduction, weight_column, loss_fn)
        self._classes = Classes(n_classes, label_vocabulary)

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        return traceable(self._classes.ids(label_array(labels, logits, 1), logits))

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        return softmax_cross_entropy(logits, labels[..., 0]).reshape(labels.shape)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        logits = checked_logits(logits, self.logits_dimension)
        class_ids = np.argmax(logits.data, axis=-1)[..., None]
        found = {
            "logits": logits,
            "probabilities": softmax(logits),
            "class_ids": class_ids,
            "classes": self._classes.words(class_ids),
        }
        return chosen(found | self._classes.all_of_each(logits), keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        classes = ClassificationOutput(predictions["probabilities"], predictions["all_classes"])
        return serving_outputs(predictions, classification=classes)

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        key = self.key("accuracy")
        return {
            **self.means("average_loss"),
            key: SparseCategoricalAccuracy(key),
            **self.mean_of_regularization(regularization_losses),
        }

    def update(self, eval_metrics: Mapping[str, Metric], batch: Batch) -> None:
        accuracy = eval_metrics[self.key("accuracy")]
        weights = None if batch.weights is None else batch.weights[..., 0]
        accuracy.update_state(batch.labels[..., 0], batch.logits, weights)


def binary_or_multi_class_head(
    n_classes: int,
    weight_column: WeightColumn = None,
    label_vocabulary: Sequence[str | bytes] | None = None,
    loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
) -> Head:
    """The head of a classifier: with one logit for two classes, else with one for each.

    Args:
        n_classes: At least 2.
        weight_column, label_vocabulary, loss_reduction: See `MultiClassHead`.
    """
    if n_classes == 2:
        return BinaryClassHead(weight_column, None, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
