"""Losses under Keras's names: functions, objects with a reduction, and `get` for strings.

A function gives one value for each example: `y_true` is an array (or tensor) of labels, `y_pred` a
tensor or array of predictions; the result is a tensor with the dtype of the predictions. Losses of
several outputs are means over the last axis, so that (n, d) gives (n,). Predictions of shape (n,)
are one number for each example and give (n,). (Keras would take the mean over them, which a later
division by the batch would not notice.)

Called as `loss(y_true, y_pred)`, an object gives the mean over the replica's examples unless its
reduction says otherwise. That is what `minimize` in an Estimator wants. A custom training loop over
several replicas wants `Reduction.NONE` and `nn.compute_average_loss`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autodiff import Tensor, sigmoid_cross_entropy, softmax_cross_entropy
from ..strategies import current_store, get_replica_context
from .arguments import meaning_of
from .serialization import Serializable
from .shapes import as_tensor, class_indices, like_predictions, like_values

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Reduction",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "compute_average_loss",
    "get",
    "huber",
    "mean_absolute_error",
    "mean_squared_error",
    "scale_regularization_loss",
    "sparse_categorical_crossentropy",
]

_SMALLEST_PROBABILITY = 1e-7
"""Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras."""


def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `(y_pred - y_true)²`."""
    y_true, y_pred = _matched("mean_squared_error", y_true, y_pred)
    return _over_outputs(np.square(y_pred - y_true))


def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `|y_pred - y_true|`."""
    y_true, y_pred = _matched("mean_absolute_error", y_true, y_pred)
    return _over_outputs(np.abs(y_pred - y_true))


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """Half the squared error up to an error of `delta`, and linear beyond it: Huber (1964)."""
    y_true, y_pred = _matched("huber", y_true, y_pred)
    error = y_pred - y_true
    magnitude = np.abs(error)
    quadratic = 0.5 * np.square(error)
    linear = delta * magnitude - 0.5 * delta * delta
    # The two meet at delta with one slope: it does not matter whose gradient is taken there.
    return _over_outputs(np.where(magnitude.data <= delta, quadratic, linear))


def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """The mean of `-y·log p - (1 - y)·log(1 - p)`.

    Args:
        y_true: Labels in [0, 1].
        y_pred: Probabilities, or logits.
        from_logits: Whether `y_pred` are logits z, with p = sigmoid(z): the exact way.
        label_smoothing: Move labels this share of the way to one half.
    """
    y_true, y_pred = _matched("binary_crossentropy", y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        return _over_outputs(sigmoid_cross_entropy(y_pred, y_true))
    # Clipped, a hopeless prediction costs 16 and not infinity; it has no gradient out of there.
    p = np.clip(y_pred, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return _over_outputs(-(y_true * np.log(p) + (1 - y_true) * np.log(1 - p)))


def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """`-Σ y·log p` over the last axis, the classes: (...), one loss for each example.

    Args:
        y_true: A distribution over the classes (one-hot, or soft) for each example, (..., classes).
        y_pred: Probabilities, scaled to add up to 1 if they do not, or logits, (..., classes).
        from_logits: Whether `y_pred` are logits z, with p = softmax(z): the exact way.
        label_smoothing: Move labels this share of the way to the uniform distribution.
    """
    y_true, y_pred = _matched("categorical_crossentropy", y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + label_smoothing / y_pred.shape[-1]
    if not from_logits:
        y_pred = y_pred / np.sum(y_pred, axis=-1, keepdims=True)
        p = np.clip(y_pred, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
        return -np.sum(y_true * np.log(p), axis=-1)
    return softmax_cross_entropy(y_pred, y_true)


def sparse_categorical_crossentropy(y_true: Any, y_pred: Any, from_logits: bool = False) -> Tensor:
    """`-log p[y]`: the categorical cross-entropy of labels that are class numbers.

    Args:
        y_true: Class numbers in [0, classes), (...) or (..., 1).
        y_pred, from_logits: See `categorical_crossentropy`.

    Raises:
        ValueError: A label is out of range.
    """
    y_pred = _floats(y_pred)
    labels = class_indices("sparse_categorical_crossentropy", as_tensor(y_true).data, y_pred)
    if not from_logits:  # logarithms of shares are logits: softmax(log(p)) scales p to a sum of 1
        y_pred = np.log(np.maximum(y_pred, _SMALLEST_PROBABILITY))
    return softmax_cross_entropy(y_pred, labels)


class Reduction(enum.StrEnum):
    """What a loss object makes of the examples' losses. Strings are accepted as well."""

    AUTO = "auto"
    """The same as SUM_OVER_BATCH_SIZE."""
    NONE = "none"
    """One loss for each example."""
    SUM = "sum"
    """Their sum."""
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    """Their mean over this replica's batch; 0 of an empty one, as in Keras."""

    @classmethod
    def parse(cls, value: Reduction | str) -> Reduction:
        """A `Reduction` from itself or from its value in any case."""
        try:
            return cls(value.lower())
        except (AttributeError, ValueError):
            known = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"reduction must be one of {known}, it is {value!r}") from None


class Loss(Serializable, ABC):
    """A loss with its reduction. A subclass says in `call` what the loss of each example is.

    Args:
        reduction: See `Reduction`.
        name: For messages and logs.
    """

    def __init__(self, reduction: Reduction | str = Reduction.AUTO, name: str = "loss") -> None:
        self.reduction = Reduction.parse(reduction)
        self.name = name

    @abstractmethod
    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        """The losses, one for each example."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """The reduced loss.

        Args:
            y_true: Labels.
            y_pred: Predictions.
            sample_weight: Factors for the examples' losses, (n,); the mean still divides by n.

        Raises:
            ValueError: The shapes do not fit; or a mean is asked for in a custom loop over several
                replicas, where gradients are summed (the message says what to do).
        """
        losses = _weighted(self.name, self.call(y_true, y_pred), sample_weight)
        if self.reduction is Reduction.NONE:
            return losses
        if self.reduction is Reduction.SUM:
            return losses.sum()
        _check_mean(self.reduction)
        return losses.mean() if losses.size else losses.sum()


class _FunctionLoss(Loss):
    """The loss object of a function `(y_true, y_pred, **options) -> losses`."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        reduction: Reduction | str = Reduction.AUTO,
        name: str | None = None,
        **options: Any,
    ) -> None:
        if not 0 <= options.get("label_smoothing", 0) <= 1:
            smoothing = options["label_smoothing"]
            raise ValueError(f"label_smoothing must be between 0 and 1, it is {smoothing}")
        super().__init__(reduction, str(name or getattr(function, "__name__", "loss")))
        self._function = function
        self._options = options

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return self._function(y_true, y_pred, **self._options)


class MeanSquaredError(_FunctionLoss):
    """See `mean_squared_error`."""

    def __init__(
        self, reduction: Reduction | str = Reduction.AUTO, name: str = "mean_squared_error"
    ) -> None:
        super().__init__(mean_squared_error, reduction, name)


class MeanAbsoluteError(_FunctionLoss):
    """See `mean_absolute_error`."""

    def __init__(
        self, reduction: Reduction | str = Reduction.AUTO, name: str = "mean_absolute_error"
    ) -> None:
        super().__init__(mean_absolute_error, reduction, name)


class Huber(_FunctionLoss):
    """See `huber`."""

    def __init__(
        self,
        delta: float = 1.0,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "huber_loss",
    ) -> None:
        if not delta > 0:
            raise ValueError(f"delta must be positive, it is {delta}")
        super().__init__(huber, reduction, name, delta=delta)


class BinaryCrossentropy(_FunctionLoss):
    """See `binary_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "binary_crossentropy",
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing}
        super().__init__(binary_crossentropy, reduction, name, **options)


class CategoricalCrossentropy(_FunctionLoss):
    """See `categorical_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "categorical_crossentropy",
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing}
        super().__init__(categorical_crossentropy, reduction, name, **options)


class SparseCategoricalCrossentropy(_FunctionLoss):
    """See `sparse_categorical_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "sparse_categorical_crossentropy",
    ) -> None:
        super().__init__(sparse_categorical_crossentropy, reduction, name, from_logits=from_logits)


_BY_NAME: dict[str, Callable[[], Loss]] = {
    "mse": MeanSquaredError,
    "mean_squared_error": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mean_absolute_error": MeanAbsoluteError,
    "huber": Huber,
    "huber_loss": Huber,
    "binary_crossentropy": BinaryCrossentropy,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
}


def get(loss: str | Loss | Callable[[Any, Any], Tensor]) -> Loss:
    """The loss object that an argument means.

    Args:
        loss: A name ("mse", "huber", or Keras's class name "MeanSquaredError"), a loss object, or a
            function `(y_true, y_pred) -> one loss for each example`.

    Raises:
        ValueError: No loss has this name.
        TypeError: It is none of these.
    """
    if isinstance(loss, Loss):
        return loss
    allowed = "a name, a loss object or a function (y_true, y_pred)"
    meant = meaning_of("loss", loss, _BY_NAME, allowed)
    return meant() if isinstance(loss, str) else _FunctionLoss(meant)


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None
) -> Tensor:
    """This replica's share of the mean loss over the global batch, for a custom training loop.

    There gradients are summed over replicas, so that each replica divides by the *global* batch.
    (`minimize` in an Estimator averages over replicas itself: there take the plain mean.)

    Args:
        per_example_loss: (n,) or (n, ...) losses of this replica's examples.
        sample_weight: Weights of the examples; they do not change the divisor.
        global_batch_size: By default this replica's batch times the number of replicas, which is
            right where all batches are equal.

    Returns:
        A scalar: the sum of the (weighted) losses divided by `global_batch_size`.

    Raises:
        RuntimeError: It is called outside a replica, where there is no batch of one's own.
        ValueError: `per_example_loss` is a scalar, or `global_batch_size` is not positive.
    """
    num_replicas = _num_replicas("compute_average_loss")
    losses = _weighted("compute_average_loss", per_example_loss, sample_weight)
    if losses.ndim == 0:
        raise ValueError(
            "per_example_loss must have one loss for each example, it is a scalar; "
            "make the loss object with reduction=Reduction.NONE"
        )
    if global_batch_size is None:
        global_batch_size = losses.shape[0] * num_replicas
    elif not global_batch_size > 0:
        raise ValueError(f"global_batch_size must be positive, it is {global_batch_size}")
    if global_batch_size == 0:
        return losses.sum()  # of nothing: a replica without data
    return losses.sum() / float(global_batch_size)


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """This replica's share of a penalty that all replicas compute alike: its sum over their number.

    Raises:
        RuntimeError: It is called outside a replica.
    """
    num_replicas = _num_replicas("scale_regularization_loss")
    return as_tensor(regularization_loss).sum() / float(num_replicas)


def _matched(name: str, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Predictions as floats, and labels in their shape and dtype."""
    y_pred = _floats(y_pred)
    y_true = like_predictions(name, as_tensor(y_true), y_pred)
    return y_true.astype(y_pred.dtype), y_pred


def _floats(y_pred: Any) -> Tensor:
    y_pred = as_tensor(y_pred)
    return y_pred if y_pred.dtype.kind == "f" else y_pred.astype(np.float32)


def _over_outputs(values: Any) -> Tensor:
    return values if values.ndim < 2 else values.mean(axis=-1)


def _weighted(name: str, losses: Any, sample_weight: Any) -> Tensor:
    """Losses times their examples' weights; None leaves them as they are."""
    losses = as_tensor(losses)
    if sample_weight is None:
        return losses
    weight = as_tensor(sample_weight).astype(losses.dtype)
    return losses * like_values(name, weight, losses)


def _num_replicas(caller: str) -> int:
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError(
            f"{caller} was called in cross-replica context; call it in the step function that is "
            f"given to strategy.run, where the losses of one replica are"
        )
    return replica.num_replicas_in_sync


def _check_mean(reduction: Reduction) -> None:
    """Refuse a mean over one replica's batch where gradients of several replicas are summed.

    The sum of N means is N times the loss that was meant; nothing else would show it.
    """
    replica = get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1 or current_store().averages_replicas:
        return
    raise ValueError(
        f"reduction {reduction.value!r} is the mean over one replica's batch, and in a custom loop "
        f"over {replica.num_replicas_in_sync} replicas gradients are summed; make the loss with "
        f"reduction=Reduction.NONE and pass what it gives to nn.compute_average_loss"
    )
