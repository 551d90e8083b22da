"""`Loss`: a loss with its reduction, and the one form of the classes whose loss is a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...autodiff import Array, Tensor, placed
from ..arguments import check_fraction, check_not_negative, check_positive, snake_case
from ..function_classes import FunctionClass
from ..masks import mask_of
from ..policies import dtype_of
from ..prototypes import Fixed, never_changes
from ..serialization import Serializable
from ..shapes import as_tensor
from .reduction import Reduction, reduced

_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "delta": check_positive,
    "gamma": check_not_negative,
    "label_smoothing": check_fraction,
}
"""What is refused of options, by their names, when the loss is made and not in its first step."""


class Loss(Serializable, ABC):
    """A loss with its reduction. A subclass says in `call` what the loss of each example is.

    >>> class Absolute(Loss):
    ...     def call(self, y_true, y_pred):
    ...         return np.abs(y_pred - y_true)
    >>> Absolute()(np.array([1.0, 2.0]), np.array([1.0, 4.0])).item()
    1.0

    Args:
        reduction: See `Reduction`; None gives one loss for each example.
        name: For messages and logs; by default the class's in snake case.
        dtype: Predictions are converted to it first; by default they keep theirs.
    """

    def __init__(
        self,
        reduction: Reduction | str | None = Reduction.AUTO,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self.reduction = Reduction.parse(reduction)
        self.name = name or snake_case(type(self).__name__)
        self.dtype = None if dtype is None else dtype_of(dtype)

    def as_prototype(self) -> dict[str, Any] | None:
        state = {name: value for name, value in vars(self).items() if name != "_arguments"}
        return state if all(map(never_changes, state.values())) else None

    def begin_as(self, prototype: dict[str, Any]) -> None:
        self.__dict__.update(prototype)

    @abstractmethod
    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        """The losses, one for each example."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """The reduced loss.

        Where predictions (or what `call` returns) carry a mask, what it excludes costs nothing, and
        a mean is that of the rest.

        Args:
            y_true: Labels.
            y_pred: Predictions.
            sample_weight: Factors for the examples' losses, (n,); the mean still divides by n,
                unless the reduction is "mean_with_sample_weight".

        Raises:
            ValueError: The shapes do not fit; or a mean is asked for in a custom loop over several
                replicas, where gradients are summed (the message says what to do).
        """
        mask = mask_of(y_pred)
        y_pred = as_tensor(y_pred)
        if self.dtype is not None:
            y_pred = y_pred.astype(self.dtype)
        elif y_pred.dtype.itemsize < 4:  # half precision: sums of losses need more
            y_pred = y_pred.astype(np.float32)
        losses = as_tensor(self.call(y_true, y_pred))
        mask = _both(mask, mask_of(losses))
        return reduced(self.name, losses, sample_weight, mask, self.reduction)


class FunctionLoss(Loss):
    """The loss object of a function `(y_true, y_pred, **options) -> losses`."""

    def __init__(
        self,
        function: Callable[..., Any],
        reduction: Reduction | str | None = Reduction.AUTO,
        name: str | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        for option, check in _CHECKS.items():
            if option in options:
                check(option, options[option])
        super().__init__(reduction, name or getattr(function, "__name__", "loss"), dtype)
        self._function = function
        self._options = Fixed(options)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        losses: Tensor = self._function(y_true, y_pred, **self._options)
        return losses


class ClassOfFunction(FunctionClass, FunctionLoss):
    """A class of losses, written as `class Huber(ClassOfFunction, of=huber)`.

    It takes the function's options, followed by `reduction`, `name` and `dtype`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        FunctionLoss.__init__(self, type(self).function, **self._bound(args, kwargs))

    @classmethod
    def _all_arguments(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        name = cls.function.__name__
        return {**options, "reduction": "auto", "name": name, "dtype": None}


def _both(first: Array | None, second: Array | None) -> Array | None:
    """What two masks leave."""
    if first is None or second is None:
        return second if first is None else first
    return np.logical_and(placed(first), placed(second))
