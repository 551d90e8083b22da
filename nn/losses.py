"""Loss objects under Keras's names, and `get` for strings; the functions behind them as well.

Called as `loss(y_true, y_pred)`, an object gives the mean over the replica's examples unless its
reduction says otherwise. That is what `minimize` in an Estimator wants. A custom training loop over
several replicas wants `Reduction.NONE` and `nn.compute_average_loss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..autodiff import Tensor
from ._loss_functions import (
    binary_crossentropy,
    categorical_crossentropy,
    huber,
    mean_absolute_error,
    mean_squared_error,
    sparse_categorical_crossentropy,
)
from .reduction import Reduction, reduce_losses, weighted

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
    "get",
    "huber",
    "mean_absolute_error",
    "mean_squared_error",
    "sparse_categorical_crossentropy",
]


class Loss(ABC):
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
        losses = weighted(self.name, self.call(y_true, y_pred), sample_weight)
        return reduce_losses(losses, self.reduction)


class MeanSquaredError(Loss):
    """See `mean_squared_error`."""

    def __init__(
        self, reduction: Reduction | str = Reduction.AUTO, name: str = "mean_squared_error"
    ) -> None:
        super().__init__(reduction, name)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return mean_squared_error(y_true, y_pred)


class MeanAbsoluteError(Loss):
    """See `mean_absolute_error`."""

    def __init__(
        self, reduction: Reduction | str = Reduction.AUTO, name: str = "mean_absolute_error"
    ) -> None:
        super().__init__(reduction, name)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return mean_absolute_error(y_true, y_pred)


class Huber(Loss):
    """See `huber`."""

    def __init__(
        self,
        delta: float = 1.0,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "huber_loss",
    ) -> None:
        super().__init__(reduction, name)
        if not delta > 0:
            raise ValueError(f"delta must be positive, it is {delta}")
        self.delta = delta

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return huber(y_true, y_pred, self.delta)


class BinaryCrossentropy(Loss):
    """See `binary_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "binary_crossentropy",
    ) -> None:
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.label_smoothing = _checked_smoothing(label_smoothing)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return binary_crossentropy(y_true, y_pred, self.from_logits, self.label_smoothing)


class CategoricalCrossentropy(Loss):
    """See `categorical_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "categorical_crossentropy",
    ) -> None:
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.label_smoothing = _checked_smoothing(label_smoothing)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return categorical_crossentropy(y_true, y_pred, self.from_logits, self.label_smoothing)


class SparseCategoricalCrossentropy(Loss):
    """See `sparse_categorical_crossentropy`."""

    def __init__(
        self,
        from_logits: bool = False,
        *,
        reduction: Reduction | str = Reduction.AUTO,
        name: str = "sparse_categorical_crossentropy",
    ) -> None:
        super().__init__(reduction, name)
        self.from_logits = from_logits

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return sparse_categorical_crossentropy(y_true, y_pred, self.from_logits)


class _FunctionLoss(Loss):
    """A user's function `(y_true, y_pred) -> losses` as a loss object."""

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        super().__init__(name=getattr(function, "__name__", "loss"))
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return self._function(y_true, y_pred)


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
_BY_SPELLING = {name.replace("_", ""): maker for name, maker in _BY_NAME.items()}


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
    if not isinstance(loss, str):
        if not callable(loss):
            raise TypeError(
                f"loss must be a name, a loss object or a function (y_true, y_pred), not {loss!r}"
            )
        return _FunctionLoss(loss)
    maker = _BY_SPELLING.get(loss.replace("_", "").lower())
    if maker is None:
        raise ValueError(f"no loss is called {loss!r}; there are {', '.join(_BY_NAME)}")
    return maker()


def _checked_smoothing(label_smoothing: float) -> float:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, it is {label_smoothing}")
    return label_smoothing
