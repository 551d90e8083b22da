"""The head of two classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Array, Tensor, by_host, sigmoid, sigmoid_cross_entropy, traceable
from ....nn.losses import Reduction
from ....nn.metrics import AUC, Accuracy, Metric, Precision, Recall, to_host
from ...export import ClassificationOutput, ExportOutput, RegressionOutput
from .head import checked_logits, chosen, serving_outputs
from .labels import Classes, label_array, shares
from .thresholds import AtThresholds, positives
from .weighted import Batch, LossFunction, WeightColumn, WeightedHead


class BinaryClassHead(WeightedHead):
    """Tells two classes apart, by the cross-entropy of one logit.

    Labels are 0 or 1, or the probability of class 1 in between, or words of the vocabulary,
    (batch, 1) or (batch,). To the metrics that count positives (precision, recall, auc and
    auc_precision_recall) each label above 0 is one, and a share in between equals neither answer
    where accuracy is counted; both as in TensorFlow. Predictions are
    "logits", "logistic" (batch, 1), "probabilities" (batch, 2), "class_ids" and "classes"
    (batch, 1), "all_class_ids" and "all_classes" (batch, 2). Metrics are average_loss, accuracy,
    precision, recall, label/mean, prediction/mean, accuracy_baseline (of the answer that fits most
    labels), auc and auc_precision_recall.

    Args:
        weight_column: The feature with a weight for each example.
        thresholds: In (0, 1); for each there are accuracy/positive_threshold_<threshold>, and
            precision and recall as well.
        label_vocabulary: The two words that labels are; they are numbers by default.
        loss_reduction: See `Head`.
        loss_fn: `loss_fn(labels, logits) -> losses` (batch, 1) in the place of the cross-entropy.
        name: See `Head`.
    """

    def __init__(
        self,
        weight_column: WeightColumn = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: LossFunction | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, 1, loss_reduction, weight_column, loss_fn)
        self._classes = Classes(2, label_vocabulary)
        self._at_thresholds = AtThresholds(thresholds)

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        given = label_array(labels, logits, 1)
        if self._classes.vocabulary is None:
            return traceable(shares(given, logits))
        return traceable(self._classes.ids(given, logits).astype(logits.dtype))

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        return sigmoid_cross_entropy(logits, labels)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        logits = checked_logits(logits, 1)
        # Both from the logit: 1 - sigmoid(z) would be 0 where sigmoid(-z) is small.
        both = [sigmoid(-logits), sigmoid(logits)]
        class_ids = (logits.data > 0).astype(np.int64)
        found = {
            "logits": logits,
            "logistic": both[1],
            "probabilities": np.concatenate(both, axis=-1),
            "class_ids": class_ids,
            "classes": self._classes.words(class_ids),
        }
        return chosen(found | self._classes.all_of_each(logits), keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        return serving_outputs(
            predictions,
            classification=ClassificationOutput(
                predictions["probabilities"], predictions["all_classes"]
            ),
            regression=RegressionOutput(predictions["logistic"]),
        )

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        key = self.key
        return {
            **self.means("average_loss", "label/mean", "prediction/mean"),
            key("accuracy"): Accuracy(key("accuracy")),
            key("precision"): Precision(name=key("precision")),
            key("recall"): Recall(name=key("recall")),
            key("accuracy_baseline"): _AccuracyBaseline(key("accuracy_baseline")),
            key("auc"): AUC(name=key("auc")),
            key("auc_precision_recall"): AUC(curve="PR", name=key("auc_precision_recall")),
            **self._at_thresholds.metrics(self),
            **self.mean_of_regularization(regularization_losses),
        }

    def update(self, eval_metrics: Mapping[str, Metric], batch: Batch) -> None:
        labels, weights = to_host(batch.labels), batch.host_weights
        probabilities = to_host(sigmoid(batch.logits))
        class_ids = to_host(batch.logits) > 0
        for name in ("label/mean", "accuracy_baseline"):
            eval_metrics[self.key(name)].update_state(labels, weights)
        eval_metrics[self.key("prediction/mean")].update_state(probabilities, weights)
        eval_metrics[self.key("accuracy")].update_state(labels, class_ids, weights)
        is_positive = positives(labels)
        for name in ("precision", "recall"):
            eval_metrics[self.key(name)].update_state(is_positive, class_ids, weights)
        for name in ("auc", "auc_precision_recall"):
            eval_metrics[self.key(name)].update_state(is_positive, probabilities, weights)
        self._at_thresholds.update(self, eval_metrics, labels, probabilities, weights)


class _AccuracyBaseline(Metric):
    """The accuracy of who always answers with the more frequent of the labels 0 and 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ones = self.add_weight("ones")
        self._count = self.add_weight("count")

    def update_state(self, labels: np.ndarray, weights: np.ndarray | None) -> None:
        weights = np.ones_like(labels) if weights is None else weights
        self._ones.assign_add(np.sum(labels * weights, dtype=np.float64))
        self._count.assign_add(np.sum(weights, dtype=np.float64))

    def result(self) -> float:
        ones, count = float(self.total(self._ones)), float(self.total(self._count))
        return max(ones, count - ones) / count if count else 0.0
