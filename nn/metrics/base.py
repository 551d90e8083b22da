"""`Metric`: a figure computed from sums, which every replica collects for itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Self

import numpy as np

from ...autodiff import Array, Tensor, TensorLike, effect, placed, stop_gradient
from ...strategies import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_replica_context,
    get_variable,
)
from ...training import Figure
from .. import initializers
from ..arguments import snake_case
from ..masks import mask_of, with_mask
from ..policies import dtype_of
from ..serialization import Serializable
from ..shapes import like_values


class Metric(Serializable, Figure):
    """A figure over any number of batches and replicas.

    Its state is sums and counts in float64, kept in variables of which every replica has its own;
    `result` runs once for all replicas, where each variable reads as the sum over all replicas of
    all workers, and computes the figure from these. It is therefore exact: never a mean of means.

    A subclass makes its state with `add_weight` in `__init__`, adds to it in `update_state`, and
    computes the figure in `result`.

    >>> class ErrorCount(Metric):
    ...     def __init__(self, name="error_count"):
    ...         super().__init__(name)
    ...         self.errors = self.add_weight("errors", initializer="zeros")
    ...
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.errors.assign_add(np.sum(to_host(y_true) != to_host(y_pred)))
    ...
    ...     def result(self):
    ...         return self.errors
    >>> errors = ErrorCount()
    >>> errors([1, 2, 3], [1, 2, 4])
    1.0

    Args:
        name: By default the class's in snake case. The names of its variables begin with it, and
            with a number where another metric of the model has it.
        dtype: What results are rounded to; by default they are Python floats (or float64 arrays).
            Sums are float64 in any case.
    """

    is_updated = False
    """Whether this object was ever given a batch."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "update_state" in vars(cls):
            cls.update_state = _noted(cls.update_state)  # type: ignore[method-assign]
        if "result" in vars(cls):
            cls.result = _of_all(cls.result)  # type: ignore[method-assign, assignment]

    def __init__(self, name: str | None = None, dtype: Any = None) -> None:
        self.name = name or snake_case(type(self).__name__)
        self._scope = current_store().unique_name(self.name, self)
        self.dtype = None if dtype is None else dtype_of(dtype)
        self._state: dict[str, Variable] = {}

    @abstractmethod
    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch, of this replica."""

    @abstractmethod
    def result(self) -> Any:
        """The figure over all that was added so far on all replicas: a Python float, or an array.

        In replica context all replicas must call it. Without data it is 0.0.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch, and give the figure over everything added so far on all replicas."""
        self.update_state(*args, **kwargs)
        return self.result()

    def add_weight(
        self,
        name: str | None = None,
        shape: tuple[int, ...] = (),
        initializer: Any = "zeros",
        dtype: Any = None,
    ) -> Variable:
        """A part of the state: the variable "<metric>/<name>", a sum that starts at zero.

        It may be made in `update_state` too, when a batch shows the shape: by the first call.

        Args:
            name: By default one with a number.
            shape: Of what is added up.
            initializer: Zeros, in one of the ways to say so.
            dtype: Taken as Keras does; sums are kept in float64.

        Raises:
            ValueError: The initializer gives something else: each replica would add it.
        """
        name = name or f"value_{len(self._state)}"
        if name not in self._state:
            self._require_zeros(name, initializer)
            self._state[name] = get_variable(
                f"{self._scope}/{name}",
                shape,
                np.float64,  # float32 stops counting at 2²⁴ examples
                0.0,
                trainable=False,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
                saved=False,
            )
        return self._state[name]

    add_variable = add_weight

    def _require_zeros(self, name: str, initializer: Any) -> None:
        if initializer is None or initializer in ("zeros", 0):
            return
        begin = initializers.get(initializer)((), np.dtype(np.float64), np.random.default_rng(0))
        if np.any(begin):
            raise ValueError(
                f"{self.name}/{name} must begin at zero, and initializer={initializer!r} does not: "
                f"what replicas have collected is added up; add a constant in result()"
            )

    def total(self, variable: Variable) -> np.ndarray:
        """A part of the state on the host, added up over all replicas."""
        # Sums are aggregated before anything is divided: so the figure is never a mean of means.
        return variable.as_a_whole()

    @property
    def variables(self) -> list[Variable]:
        """The state."""
        return list(self._state.values())

    def reset_state(self) -> None:
        """Forget everything: in cross-replica context on all replicas, else on this one."""
        for variable in self._state.values():
            variable.assign(np.zeros(variable.shape))

    def reset_states(self) -> None:
        """`reset_state` under its older name."""
        self.reset_state()

    def merge_state(self, metrics: Metric | Iterable[Metric]) -> None:
        """Add what others of the same kind and options have collected: one metric, or several.

        Raises:
            ValueError: The state of one has other parts or shapes.
        """
        for other in [metrics] if isinstance(metrics, Metric) else metrics:
            self._require_same_parts(other)
            for name, more in other._state.items():
                part = self.add_weight(name, more.shape)
                part.assign(part.numpy() + more.numpy())  # also of the total, outside replicas
            self.is_updated = self.is_updated or other.is_updated

    def _require_same_parts(self, other: Metric) -> None:
        ours, theirs = (
            {name: variable.shape for name, variable in metric._state.items()}
            for metric in (self, other)
        )
        # One that has seen no batch may not know its parts yet.
        if ours and theirs and ours != theirs:
            raise ValueError(
                f"metric {self.name!r} has a state of shapes {ours} and {other.name!r} one of "
                f"{theirs}; only metrics of the same class and options can be merged"
            )

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
        _add(self, update_state, args, kwargs)

    return update


@effect
def _add(
    metric: Metric, update_state: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    # As in evaluation: a metric has no gradient, and may ask for plain arrays.
    named = {name: _outside_graph(value) for name, value in kwargs.items()}
    update_state(metric, *map(_outside_graph, args), **named)


def _outside_graph(value: Any) -> Any:
    """The value of a tensor that the loss is computed from, with its mask; all else as it is."""
    if type(value) is not Tensor or not value.requires_grad:
        return value
    return with_mask(stop_gradient(value), mask_of(value))


def _of_all(result: Callable[[Metric], Any]) -> Callable[[Metric], Any]:
    """`result`, called where variables read as their sums over replicas, and as plain numbers."""

    @wraps(result)
    def figure(self: Metric) -> Any:
        replica = get_replica_context()
        if replica is not None:
            return replica.merge_call(lambda strategy: figure(self))
        value = result(self)
        plain = to_host(value) if isinstance(value, TensorLike) else value
        if self.dtype is not None:
            return np.asarray(plain, self.dtype)[()]
        is_array = isinstance(plain, np.ndarray) and plain.ndim > 0
        return plain if is_array else Result(plain)

    return figure


class Result(float):
    """A Python float that gives itself as NumPy's, too: TensorFlow's scripts ask for `numpy()`."""

    __slots__ = ()

    def numpy(self) -> np.float64:
        """The number as an array's element."""
        return np.float64(self)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)


def to_host(values: Any) -> np.ndarray:
    """The values of an array, tensor or number in host memory, outside any gradient graph."""
    if isinstance(values, TensorLike):
        return values.numpy()
    if np.isscalar(values) or isinstance(values, np.ndarray | list | tuple):
        return np.asarray(values)
    return Tensor(values).numpy()


def anywhere(measure: Callable[..., Any]) -> Callable[..., Any]:
    """Mark what computes with arrays wherever they lie; all else is given NumPy arrays."""
    measure.is_anywhere = True  # type: ignore[attr-defined]
    return measure


def together(*values: Any) -> list[Any]:
    """Arrays, tensors or numbers as arrays in one memory, outside any gradient graph; None stays.

    Where one lies on the device of the calling replica it is that, else the host: what is computed
    with them is not waited for on a GPU. They are not to be written to.
    """
    arrays = [None if value is None else _array(value) for value in values]
    where = {isinstance(array, np.ndarray) for array in arrays if array is not None}
    if len(where) > 1:
        arrays = [placed(array) for array in arrays]
        if any(isinstance(array, np.ndarray) for array in arrays):  # outside replicas
            arrays = [None if array is None else to_host(array) for array in arrays]
    return arrays


def _array(value: Any) -> Array:
    if isinstance(value, TensorLike):
        return value.tensor().data
    is_array = hasattr(value, "__array_ufunc__") and not isinstance(value, np.generic)
    return value if is_array else np.asarray(value)


def batch_on_host(
    name: str, y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """`batch_of` in host memory."""
    mask = mask_of(y_pred)
    on_host = [None if x is None else to_host(x) for x in (y_true, y_pred, sample_weight, mask)]
    return _without_padding(name, *on_host)


def batch_of(
    name: str, y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[Array, Array, Array | None]:
    """Labels, predictions and weights of a batch, without what the predictions' mask excludes.

    A GPU is not waited for to know how many examples that leaves: there, those excluded have a
    weight of 0, and the label and prediction of another one, since what is there need be no number.

    Args:
        name: Of the metric, for messages.
        y_true, y_pred: With the same leading axes where there is a mask over these.
        sample_weight: None, or a weight for each example or for each position that a mask tells.

    Returns:
        Arrays `together`. Where there is a mask its axes are one.
    """
    return _without_padding(name, *together(y_true, y_pred, sample_weight, mask_of(y_pred)))


def _without_padding(
    name: str, y_true: Any, y_pred: Any, weight: Any, mask: Any
) -> tuple[Any, Any, Any]:
    if mask is None:
        return y_true, y_pred, weight
    if weight is not None:
        weight = np.broadcast_to(like_values(name, weight, mask), mask.shape)
    if isinstance(mask, np.ndarray):
        return y_true[mask], y_pred[mask], None if weight is None else weight[mask]
    flat = mask.reshape(-1)
    weight = np.ones_like(flat, dtype=np.float64) if weight is None else weight.reshape(-1)
    y_true, y_pred = (_padded_alike(name, y, mask) for y in (y_true, y_pred))
    return y_true, y_pred, np.where(flat, weight, 0)


def _padded_alike(name: str, values: Array, mask: Array) -> Array:
    """Values, of which those that a mask excludes become the largest of the others."""
    if values.shape[: mask.ndim] != mask.shape:
        raise ValueError(
            f"{name}: the mask of the predictions has shape {mask.shape}, with which labels and "
            f"predictions must begin; one has shape {values.shape}"
        )
    flat = values.reshape(mask.size, *values.shape[mask.ndim :])
    if not flat.size:
        return flat
    kept = mask.reshape(-1, *(1,) * (flat.ndim - 1))
    # Not what is "not a number" either: comparisons with it are false.
    least = np.where(flat <= flat, flat, 0).min()
    return np.where(kept, flat, np.where(kept, flat, least).max())
