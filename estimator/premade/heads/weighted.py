"""Heads of one array of labels: what the loss of a batch is, whose examples may have weights."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....autodiff import Array, Tensor, by_host, effect, traceable
from ....nn.losses import Reduction
from ....nn.metrics import Mean, Metric, to_host
from ....nn.shapes import as_tensor
from ....strategies import get_replica_context
from ...feature_column import NumericColumn
from .head import Head, checked_logits, total

WeightColumn: TypeAlias = "str | NumericColumn | None"
"""Where the examples' weights are: a feature, as it is or as a column makes it."""

LossFunction: TypeAlias = Callable[..., Any]
"""`loss_fn(labels, logits)`, which may also name features and loss_reduction."""


@dataclass(frozen=True)
class Batch:
    """A batch as a head sees it.

    Args:
        logits: (..., logits_dimension).
        labels: As the head's `checked_labels` makes them.
        losses: Of each example, (..., 1); of regression of each logit, (..., logits_dimension).
        weights: Of each loss, or of each example (..., 1); None where all weigh the same.
    """

    logits: Tensor
    labels: Array
    losses: Tensor
    weights: Array | None

    @property
    def host_weights(self) -> np.ndarray | None:
        """The weights where metrics take them."""
        return None if self.weights is None else to_host(self.weights)


class WeightedHead(Head):
    """A head of one array of labels.

    A subclass says what labels it takes and what the loss of an example is.

    Args:
        name, logits_dimension, loss_reduction: See `Head`.
        weight_column: The feature with a weight for each example.
        loss_fn: Gives the examples' losses in the place of the head's own.
    """

    has_weights_per_logit = False
    """Whether each logit may have a weight of its own."""

    def __init__(
        self,
        name: str | None,
        logits_dimension: int,
        loss_reduction: Reduction | str,
        weight_column: WeightColumn,
        loss_fn: LossFunction | None,
    ) -> None:
        super().__init__(name, logits_dimension, loss_reduction)
        self.weight_column = checked_weight_column(weight_column)
        self._loss_fn = loss_fn
        self._loss_fn_takes = frozenset() if loss_fn is None else _arguments(loss_fn)

    @abstractmethod
    def checked_labels(self, labels: Any, logits: Tensor) -> Array:
        """Labels as numbers, one for each loss or logit.

        Raises:
            ValueError: They are not what this head takes.
        """

    @abstractmethod
    def example_losses(self, labels: Array, logits: Tensor) -> Tensor:
        """One loss for each example, (..., 1), or for each logit."""

    @abstractmethod
    def update(self, eval_metrics: Mapping[str, Metric], batch: Batch) -> None:
        """Add a batch to the metrics that this head has besides the mean loss."""

    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Tensor:
        loss = self._reduced(self._batch(labels, logits, features))
        return loss + total(regularization_losses) if regularization_losses else loss

    def update_metrics(
        self,
        eval_metrics: Mapping[str, Metric],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Mapping[str, Metric]:
        batch = self._batch(labels, logits, features)
        eval_metrics[self.key("average_loss")].update_state(batch.losses, batch.host_weights)
        self.update(eval_metrics, batch)
        if regularization_losses is not None:
            key = self.key("regularization_loss")
            eval_metrics[key].update_state(total(regularization_losses))
        return eval_metrics

    def means(self, *names: str) -> dict[str, Metric]:
        """Metrics that are means, by their keys."""
        keys = [self.key(name) for name in names]
        return {key: Mean(key) for key in keys}

    def _batch(self, labels: Any, logits: Any, features: Any) -> Batch:
        logits = checked_logits(logits, self.logits_dimension)
        checked = self.checked_labels(labels, logits)
        losses = self._losses(checked, logits, features)
        return Batch(logits, checked, losses, self._weights(features, losses))

    def _losses(self, labels: Array, logits: Tensor, features: Any) -> Tensor:
        if self._loss_fn is None:
            return self.example_losses(labels, logits)
        given = {"features": features, "loss_reduction": self.loss_reduction}
        more = {name: given[name] for name in self._loss_fn_takes & given.keys()}
        losses = as_tensor(self._loss_fn(labels=labels, logits=logits, **more))
        width = self.logits_dimension if self.has_weights_per_logit else 1
        allowed = ((*logits.shape[:-1], width), (*logits.shape[:-1], 1))
        if losses.shape not in allowed:
            raise ValueError(
                f"loss_fn must give one loss for each example, of shape {allowed[0]}, it gave "
                f"{losses.shape}; leave the mean over the batch to the head"
            )
        return losses

    @by_host
    def _weights(self, features: Any, losses: Tensor) -> Array | None:
        column = self.weight_column
        if column is None:
            return None
        weights = _feature(features, column) if isinstance(column, str) else column.read(features)
        per_example = losses.shape[:-1]
        if weights.shape == per_example:
            weights = weights.reshape((*per_example, 1))
        is_wide = self.has_weights_per_logit and weights.shape == losses.shape
        if weights.shape != (*per_example, 1) and not is_wide:
            raise ValueError(
                f"weight_column {column!r} has shape {weights.shape}; there must be a weight for "
                f"each example, of shape {per_example} or {(*per_example, 1)}"
            )
        return traceable(weights.astype(losses.dtype))

    def _reduced(self, batch: Batch) -> Tensor:
        """The loss of the batch, such that its mean over replicas is that of the global batch.

        The mean is taken by the train op, in which each replica weighs as many examples as it has.
        """
        losses = batch.losses
        weighted = losses if batch.weights is None else losses * batch.weights
        if self.loss_reduction is Reduction.SUM_OVER_BATCH_SIZE:
            return weighted.mean() if weighted.size else weighted.sum()
        return _times_share(weighted.sum(), losses.shape[0])


def checked_weight_column(weight_column: WeightColumn) -> WeightColumn:
    """The column.

    Raises:
        TypeError: It is neither a name nor a numeric column.
    """
    if weight_column != "" and isinstance(weight_column, str | NumericColumn | None):
        return weight_column
    raise TypeError(
        f"weight_column must be a feature's name or a numeric_column, it is {weight_column!r}"
    )


def _feature(features: Any, name: str) -> Array:
    """The numbers of a feature.

    Raises:
        ValueError: There are none.
    """
    if not isinstance(features, Mapping) or name not in features:
        there = ", ".join(features) if isinstance(features, Mapping) else "no dict"
        raise ValueError(
            f"weight_column {name!r} is no feature of the batch; input_fn gives {there}"
        )
    weights = as_tensor(features[name]).data
    if weights.dtype.kind not in "fiub":
        raise ValueError(f"weight_column {name!r} must hold numbers, it holds {weights.dtype}")
    return weights


@effect  # a replica that nobody asks for the result meets the others all the same
def _times_share(total: Tensor, num_examples: int) -> Tensor:
    """A sum over a replica's examples, times all examples over its own."""
    return total * (_num_examples_of_all(num_examples) / max(num_examples, 1))


def _num_examples_of_all(num_examples: int) -> float:
    """The number of examples of the global batch: of those who share the gradients of a step.

    Raises:
        ValueError: They do not meet before the parameter servers take the mean of what they send.
    """
    replica = get_replica_context()
    if replica is None:
        return num_examples
    extended = replica.strategy.extended
    if extended.shard[0] != extended.num_workers:
        raise ValueError(
            "loss_reduction is 'sum', and where several workers make each step together at "
            "parameter servers (max_staleness=0) none knows how many examples the others have; "
            "use 'sum_over_batch_size', let workers make steps of their own (max_staleness=None), "
            "or use MultiWorkerMirroredStrategy"
        )
    return float(replica.all_reduce("SUM", np.float64(num_examples)))


def _arguments(loss_fn: LossFunction) -> frozenset[str]:
    """What `loss_fn` names.

    Raises:
        TypeError: It is not callable.
        ValueError: It lacks labels or logits, or needs something else.
    """
    if not callable(loss_fn):
        raise TypeError(f"loss_fn must be a function (labels, logits), it is {loss_fn!r}")
    known = {"labels", "logits", "features", "loss_reduction"}
    parameters = inspect.signature(loss_fn).parameters.values()
    names = {p.name for p in parameters}
    needed = {p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD}
    if not {"labels", "logits"} <= names or needed - known:
        raise ValueError(
            f"loss_fn must take labels and logits, and of features and loss_reduction what it "
            f"needs; it takes {', '.join(names)}"
        )
    return frozenset(names)
