"""The head of classes of which an example may have any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Array, Tensor, by_host, sigmoid, sigmoid_cross_entropy, traceable
from ....nn.losses import Reduction
from ....nn.metrics import AUC, Metric, to_host
from ....nn.shapes import as_tensor
from ...export import ClassificationOutput, ExportOutput
from .head import checked_logits, chosen, serving_outputs
from .labels import Classes, as_text, label_array, shares
from .thresholds import AtThresholds, positives
from .weighted import Batch, LossFunction, WeightColumn, WeightedHead


class MultiLabelHead(WeightedHead):
    """Says of each class whether an example has it, by the mean cross-entropy of one logit each.

    Labels are (batch, n_classes) of 0 and 1, or probabilities in between (each above 0 is a
    positive to metrics that count those); with a vocabulary they may also be (batch, any) words,
    where the empty word is none. Predictions are "logits" and "probabilities", (batch, n_classes),
    and "classes", which are the words of all classes in each row, as in TensorFlow. Metrics are
    average_loss, auc and auc_precision_recall.

    Args:
        n_classes: At least 2.
        weight_column: The feature with a weight for each example.
        thresholds: In (0, 1); for each there are accuracy/positive_threshold_<threshold>, and
            precision and recall as well, over all classes.
        label_vocabulary: A word for each class.
        loss_reduction: See `Head`.
        loss_fn: `loss_fn(labels, logits) -> losses` (batch, 1) in the place of the cross-entropy.
        classes_for_class_based_metrics: Numbers or words of classes for which there are
            probability_mean/<class>, auc/<class> and auc_precision_recall/<class>.
        name: See `Head`.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: LossFunction | None = None,
        classes_for_class_based_metrics: Sequence[int | str | bytes] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, n_classes, loss_reduction, weight_column, loss_fn)
        self._classes = Classes(n_classes, label_vocabulary)
        self._at_thresholds = AtThresholds(thresholds)
        self._measured = [
            self._classes.number("classes_for_class_based_metrics", value)
            for value in classes_for_class_based_metrics or ()
        ]

    @by_host
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        given = None if labels is None or isinstance(labels, dict) else as_tensor(labels).data
        if given is not None and given.dtype.kind in "USO" and self._classes.vocabulary:
            return traceable(self._has_words(given, logits))
        return traceable(shares(label_array(labels, logits, self.logits_dimension), logits))

    def _has_words(self, words: np.ndarray, logits: Tensor) -> Array:
        """Rows of words as one 0 or 1 for each class."""
        if words.ndim != logits.ndim or words.shape[:-1] != logits.shape[:-1]:
            raise ValueError(
                f"labels that are words must have a row for each example, "
                f"{(*logits.shape[:-1], 'any number')}; their shape is {words.shape}"
            )
        given = np.array([as_text(word) or "" for word in words.ravel()]).reshape(words.shape)
        is_word = given != ""
        found = np.zeros(logits.shape, logits.dtype)
        ids = self._classes.ids(given[is_word], logits)
        found[(*np.nonzero(is_word)[:-1], to_host(ids))] = 1
        return np.asarray(found, like=logits.data)

    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        return sigmoid_cross_entropy(logits, labels).mean(axis=-1, keepdims=True)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        logits = checked_logits(logits, self.logits_dimension)
        found = {
            "logits": logits,
            "probabilities": sigmoid(logits),
            "classes": self._classes.all_of_each(logits)["all_classes"],
        }
        return chosen(found, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        classes = ClassificationOutput(predictions["probabilities"], predictions["classes"])
        return serving_outputs(predictions, classification=classes)

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        found = self.means("average_loss")
        for at in ("", *map(self._at, self._measured)):
            if at:
                found |= self.means(f"probability_mean{at}")
            auc, auc_pr = self.key(f"auc{at}"), self.key(f"auc_precision_recall{at}")
            found |= {auc: AUC(name=auc), auc_pr: AUC(curve="PR", name=auc_pr)}
        found |= self._at_thresholds.metrics(self)
        return {**found, **self.mean_of_regularization(regularization_losses)}

    def update(self, eval_metrics: Mapping[str, Metric], batch: Batch) -> None:
        labels, weights = to_host(batch.labels), batch.host_weights
        probabilities, is_positive = to_host(sigmoid(batch.logits)), positives(labels)
        for name in ("auc", "auc_precision_recall"):
            eval_metrics[self.key(name)].update_state(is_positive, probabilities, weights)
        self._at_thresholds.update(self, eval_metrics, labels, probabilities, weights)
        for number in self._measured:
            at, of_class = self._at(number), slice(number, number + 1)
            share, has = probabilities[..., of_class], is_positive[..., of_class]
            eval_metrics[self.key(f"probability_mean{at}")].update_state(share, weights)
            for name in (f"auc{at}", f"auc_precision_recall{at}"):
                eval_metrics[self.key(name)].update_state(has, share, weights)

    def _at(self, number: int) -> str:
        return f"/{self._classes.name(number)}"
