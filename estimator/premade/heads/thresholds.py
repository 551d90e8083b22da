"""Metrics at thresholds that the user names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from ....nn.metrics import BinaryAccuracy, Metric, Precision, Recall
from .head import Head


@final
class AtThresholds:
    """Accuracy, precision and recall of probabilities, at each of some thresholds.

    Args:
        thresholds: In (0, 1); a probability above one is a positive.

    Raises:
        ValueError: One is not.
    """

    def __init__(self, thresholds: Sequence[float] | None) -> None:
        self._thresholds = tuple(thresholds or ())
        for threshold in self._thresholds:
            if not 0 < threshold < 1:
                raise ValueError(f"thresholds must be in (0, 1), one is {threshold}")

    def made_of(self) -> tuple[float, ...]:
        """What its answers depend on."""
        return self._thresholds

    def metrics(self, head: Head) -> dict[str, Metric]:
        """The metrics by their keys in `head`."""
        found: dict[str, Metric] = {}
        for threshold in self._thresholds:
            accuracy, precision, recall = self._keys(head, threshold)
            found[accuracy] = BinaryAccuracy(accuracy, threshold=threshold)
            found[precision] = Precision(threshold, name=precision)
            found[recall] = Recall(threshold, name=recall)
        return found

    def update(
        self,
        head: Head,
        eval_metrics: Mapping[str, Metric],
        labels: np.ndarray,
        probabilities: np.ndarray,
        weights: np.ndarray | None,
    ) -> None:
        """Add a batch to them."""
        is_positive = positives(labels)
        for threshold in self._thresholds:
            accuracy, precision, recall = self._keys(head, threshold)
            eval_metrics[accuracy].update_state(labels, probabilities, weights)
            for key in (precision, recall):
                eval_metrics[key].update_state(is_positive, probabilities, weights)

    def _keys(self, head: Head, threshold: float) -> list[str]:
        names = ("accuracy", "precision", "recall")
        return [head.key(f"{name}/positive_threshold_{threshold:g}") for name in names]


def positives(labels: np.ndarray) -> np.ndarray:
    """Labels in [0, 1] as 0 and 1: to a metric that counts positives any share is one."""
    return np.sign(labels)
