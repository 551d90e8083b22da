"""`Metric`: a figure computed from sums, which every replica collects for itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Self

import numpy as np

from ...autodiff import Tensor, TensorLike
from ...strategies import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_variable,
)
from ...training import Figure
from ..serialization import Serializable


class Metric(Serializable, Figure):
    """A figure over any number of batches and replicas.

    Its state is sums and counts in float64, kept in variables of which every replica has its own;
    `result` adds them up over the replicas first and computes the figure from the totals. It is
    therefore exact: never a mean of means.

    A subclass makes its state with `add_weight` in `__init__`, adds to it in `update_state`, and
    computes the figure in `result` from what `total` returns.

    >>> class ErrorCount(Metric):
    ...     def __init__(self, name="error_count"):
    ...         super().__init__(name)
    ...         self.errors = self.add_weight("errors")
    ...
    ...     def update_state(self, y_true, y_pred):
    ...         self.errors.assign_add(np.sum(to_host(y_true) != to_host(y_pred)))
    ...
    ...     def result(self):
    ...         return float(self.total(self.errors))
    >>> errors = ErrorCount()
    >>> errors.update_state([1, 2, 3], [1, 2, 4])
    >>> errors.result()
    1.0

    Args:
        name: Made unique in the model with a number where it is taken.
    """

    is_updated = False
    """Whether this object was ever given a batch."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "update_state" in vars(cls):
            cls.update_state = _noted(cls.update_state)  # type: ignore[method-assign]

    def __init__(self, name: str) -> None:
        self.name = current_store().unique_name(name, self)
        self._state: list[Variable] = []

    @abstractmethod
    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch, of this replica."""

    @abstractmethod
    def result(self) -> Any:
        """The figure over everything added so far on all replicas, as a Python float.

        In replica context all replicas must call it. Without data it is 0.0.
        """

    def add_weight(self, name: str, shape: tuple[int, ...] = ()) -> Variable:
        """A part of the state: the variable "<metric>/<name>", a sum that starts at zero."""
        variable = get_variable(
            f"{self.name}/{name}",
            shape,
            np.float64,  # float32 stops counting at 2²⁴ examples
            0.0,
            trainable=False,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
            saved=False,
        )
        self._state.append(variable)
        return variable

    def total(self, variable: Variable) -> np.ndarray:
        """A part of the state, added up over all replicas."""
        # Sums are aggregated before anything is divided: so the figure is never a mean of means.
        return variable.as_a_whole()

    @property
    def variables(self) -> list[Variable]:
        """The state."""
        return list(self._state)

    def reset_state(self) -> None:
        """Forget everything: in cross-replica context on all replicas, else on this one."""
        for variable in self._state:
            variable.assign(np.zeros(variable.shape))

    def merge_state(self, other: Metric) -> None:
        """Add what another metric of the same kind and options has collected.

        Raises:
            ValueError: The other one's state has other shapes.
        """
        shapes, theirs = ([v.shape for v in metric.variables] for metric in (self, other))
        if shapes != theirs:
            raise ValueError(
                f"metric {self.name!r} has a state of shapes {shapes} and {other.name!r} one of "
                f"{theirs}; only metrics of the same class and options can be merged"
            )
        for variable, more in zip(self._state, other.variables, strict=True):
            variable.assign_add(more.numpy())
        self.is_updated = self.is_updated or other.is_updated

    def clone(self) -> Self:
        """A metric of the same class, made with the same arguments, for the calling model."""
        args, kwargs = self._arguments
        return type(self)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def _noted(update_state: Callable[..., None]) -> Callable[..., None]:
    """`update_state`, noting that it was called: a metric that never is would read 0.0."""

    @wraps(update_state)
    def update(self: Metric, *args: Any, **kwargs: Any) -> None:
        self.is_updated = True
        update_state(self, *args, **kwargs)

    return update


def to_host(values: Any) -> np.ndarray:
    """The values of an array, tensor or number in host memory, outside any gradient graph."""
    if isinstance(values, TensorLike):
        return values.numpy()
    if np.isscalar(values) or isinstance(values, np.ndarray | list | tuple):
        return np.asarray(values)
    return Tensor(values).numpy()
