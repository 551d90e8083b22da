"""`Head`: what stands behind the logits of a model, whatever the model is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Tensor
from ....nn.arguments import count
from ....nn.losses import Reduction
from ....nn.metrics import Mean, Metric
from ....nn.optimizers import Optimizer, TrainOp, group
from ....nn.shapes import as_tensor
from ....strategies import Variable
from ....training import ModeKeys
from ...export import DEFAULT_SERVING_SIGNATURE_DEF_KEY, ExportOutput, PredictOutput
from ...specs import EstimatorSpec


class Head(ABC):
    """Makes of a model's logits all that an `EstimatorSpec` needs.

    A subclass says in four methods what its loss is, what it predicts, and how it is measured;
    `create_estimator_spec` puts them together. Logits are a tensor (..., logits_dimension) whose
    first axis is the examples.

    Args:
        name: Tells heads of one model apart: what they report has it behind a slash.
        logits_dimension: The number of logits of each example.
        loss_reduction: What `loss` makes of the examples' weighted losses, over the global batch.
            `Reduction.SUM_OVER_BATCH_SIZE`: their mean (weights do not change the divisor), or
            `Reduction.SUM`.

    Attributes:
        name, logits_dimension, loss_reduction: As given.

    Raises:
        ValueError: There is no such reduction, or logits_dimension is no positive integer.
    """

    def __init__(
        self,
        name: str | None,
        logits_dimension: int,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
    ) -> None:
        self.name = name
        self.logits_dimension = count("logits_dimension", logits_dimension)
        self.loss_reduction = _checked(loss_reduction)

    def made_of(self) -> Any:
        """What its answers depend on: heads of one class and of equal attributes do the same."""
        return vars(self)

    @abstractmethod
    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Tensor:
        """What training makes small: a scalar, the reduced loss and all regularization losses.

        Args:
            labels, logits: Of a batch.
            features: Of the batch, where the weights of examples are among them.
            mode: A `ModeKeys`, where it makes a difference.
            regularization_losses: Scalars to add.

        Raises:
            ValueError: Labels or weights are missing or not what they must be.
        """

    @abstractmethod
    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        """Arrays by name, one row for each example.

        Args:
            logits: Of a batch.
            keys: Which of them; all by default.

        Raises:
            ValueError: A key that there is not.
        """

    @abstractmethod
    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        """Metrics by their keys, without data."""

    @abstractmethod
    def update_metrics(
        self,
        eval_metrics: Mapping[str, Metric],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Mapping[str, Metric]:
        """Add a batch to what `metrics` gave, and return it.

        Args:
            eval_metrics: From `metrics`.
            features, logits, labels, mode, regularization_losses: See `loss`.
        """

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        """What an exported model gives, by the names of signatures; None: the predictions.

        Args:
            predictions: All that `predictions` has given for a batch.
        """
        return None

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Variable] | None = None,
        train_op_fn: Callable[[Tensor], TrainOp] | None = None,
        update_ops: Sequence[TrainOp] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """What a `model_fn` returns for one batch.

        Args:
            features: Those that the `model_fn` was given.
            mode: That of the `model_fn`.
            logits: (..., logits_dimension), one row for each example.
            labels: Needed to train and to evaluate.
            optimizer: Makes the training step, by `minimize`.
            trainable_variables: What `optimizer` changes; by default all trainable variables.
            train_op_fn: Makes the step of the loss, in the place of `optimizer`.
            update_ops: Steps to make besides, in order, behind the other one. (Layers keep their
                statistics by themselves.)
            regularization_losses: Scalars to add to the loss.

        Raises:
            ValueError: Both or none of optimizer and train_op_fn are given to train; labels,
                logits or weights are not what they must be.
        """
        mode = ModeKeys(mode)
        if mode is ModeKeys.PREDICT:
            found = self.predictions(logits)
            exported = self.export_outputs(found)
            return EstimatorSpec(mode, predictions=found, export_outputs=exported)
        loss = self.loss(labels, logits, features, mode, regularization_losses)
        if mode is ModeKeys.TRAIN:
            step = _step(loss, optimizer, trainable_variables, train_op_fn)
            steps = group(step, *update_ops) if update_ops else step
            return EstimatorSpec(mode, loss=loss, train_op=steps)
        metrics = self.update_metrics(
            self.metrics(regularization_losses),
            features,
            logits,
            labels,
            mode,
            regularization_losses,
        )
        predictions = self.predictions(logits)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=metrics)

    def key(self, name: str) -> str:
        """A metric's name, with that of the head where it has one: "loss/head"."""
        return f"{name}/{self.name}" if self.name else name

    def mean_of_regularization(self, losses: Sequence[Any] | None) -> dict[str, Metric]:
        """The metric of what is added to the loss; none where nothing is."""
        if losses is None:
            return {}
        key = self.key("regularization_loss")
        return {key: Mean(key)}


def total(regularization_losses: Sequence[Any] | None) -> Any:
    """What is added to a loss.

    Raises:
        ValueError: One of them is no scalar.
    """
    added: Any = 0.0
    for loss in regularization_losses or ():
        if as_tensor(loss).size != 1:
            raise ValueError(
                f"regularization_losses must be scalars, one has shape {as_tensor(loss).shape}"
            )
        added = added + np.reshape(as_tensor(loss), ())
    return added


def chosen(predictions: dict[Any, Any], keys: Sequence[str] | None) -> dict[Any, Any]:
    """Those predictions that are named.

    Raises:
        ValueError: One does not exist.
    """
    unknown = set(keys or ()) - set(predictions)
    if unknown:
        raise ValueError(
            f"no prediction is called {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(map(repr, predictions))}"
        )
    return predictions if keys is None else {key: predictions[key] for key in keys}


def serving_outputs(
    predictions: Mapping[Any, Any], **special: ExportOutput
) -> dict[str, ExportOutput]:
    """Special signatures, of which the first is the default, and "predict", which gives all.

    Args:
        predictions: Arrays by name.
        special: At least one, under the names that users of TensorFlow Serving know.
    """
    default = next(iter(special.values()))
    everything = PredictOutput(predictions)
    return {DEFAULT_SERVING_SIGNATURE_DEF_KEY: default, **special, "predict": everything}


def checked_logits(logits: Any, dimension: int) -> Tensor:
    """Logits as a tensor.

    Raises:
        ValueError: Their last axis has another length.
    """
    logits = as_tensor(logits)
    if logits.ndim < 2 or logits.shape[-1] != dimension:
        raise ValueError(
            f"logits must have shape (batch, {dimension}), logits_dimension being {dimension}; "
            f"their shape is {logits.shape}"
        )
    return logits if logits.dtype.kind == "f" else logits.astype(np.float32)


def _checked(reduction: Reduction | str) -> Reduction:
    parsed = Reduction.parse(reduction)
    if parsed in (Reduction.NONE, Reduction.MEAN_WITH_SAMPLE_WEIGHT):
        raise ValueError(
            f"loss_reduction must be 'sum_over_batch_size' or 'sum', it is {parsed.value!r}: a "
            f"model is trained by one number and not by one for each example, and the weights of "
            f"examples do not change by what a head divides"
        )
    return Reduction.SUM if parsed is Reduction.SUM else Reduction.SUM_OVER_BATCH_SIZE


def _step(
    loss: Tensor,
    optimizer: Optimizer | None,
    variables: Sequence[Variable] | None,
    train_op_fn: Callable[[Tensor], TrainOp] | None,
) -> TrainOp:
    if (optimizer is None) == (train_op_fn is None):
        raise ValueError(
            f"to train, a head is given either optimizer or train_op_fn, it was given "
            f"{'neither' if optimizer is None else 'both'}"
        )
    if train_op_fn is not None:
        return train_op_fn(loss)
    assert optimizer is not None
    return optimizer.minimize(loss, var_list=variables)
