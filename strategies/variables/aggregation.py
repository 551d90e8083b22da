"""How a variable's copies are kept together: the policies, and the arithmetic behind them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...autodiff import Array
from ..devices.cross_device_ops import mean_of
from ..devices.device import to_host


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are brought together."""

    AUTO = "AUTO"
    """At each assignment (the same as `ON_WRITE`)."""
    NONE = "NONE"
    """Never: only for a variable that a single replica uses; refused where there may be several."""
    ON_WRITE = "ON_WRITE"
    """At each assignment: the replicas' values are aggregated and all copies get the result."""
    ON_READ = "ON_READ"
    """When it is read outside replicas (and so when it is saved): replicas write for themselves."""


class VariableAggregation(enum.Enum):
    """How the replicas' values become one."""

    NONE = "NONE"
    """Not at all: to assign different values, or to read `ON_READ` copies as one, is an error."""
    SUM = "SUM"
    """Their sum; not for truth values."""
    MEAN = "MEAN"
    """Their mean; only for floats."""
    ONLY_FIRST_REPLICA = "ONLY_FIRST_REPLICA"
    """The first replica's."""


class VariableSpec(NamedTuple):
    """What is said of a variable when it is created; see `Variable`.

    `is_on_host` is said of a number that the host asks for in each step: it is kept there, wherever
    the replicas compute.
    """

    name: str
    trainable: bool = True
    synchronization: VariableSynchronization = VariableSynchronization.AUTO
    aggregation: VariableAggregation = VariableAggregation.NONE
    saved: bool = True
    constraint: Callable[[Array], Array] | None = None
    is_on_host: bool = False

    def is_trained(self, dtype: np.dtype) -> bool:
        """Whether optimizers change it."""
        is_float = np.issubdtype(dtype, np.floating)
        return self.trainable and not self.keeps_own_values and is_float

    @property
    def keeps_own_values(self) -> bool:
        """Whether each replica may have a value of its own."""
        return self.synchronization is VariableSynchronization.ON_READ

    @property
    def is_read_as_sum(self) -> bool:
        """Whether its value as a whole is the sum of its copies."""
        return self.keeps_own_values and self.aggregation is VariableAggregation.SUM

    def require_policies(self, is_shared: bool) -> None:
        """Refuse what is no policy, such as the name of one, and what cannot hold for replicas.

        Args:
            is_shared: Whether several replicas may use the variable.

        Raises:
            ValueError: It is not a `VariableSynchronization`, or not a `VariableAggregation`; or
                several replicas are not to be synchronized.
        """
        given = self.synchronization, self.aggregation
        for policy, kind in zip(given, (VariableSynchronization, VariableAggregation), strict=True):
            if not isinstance(policy, kind):
                names = ", ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
                raise ValueError(
                    f"variable {self.name!r} was given {policy!r}; it takes one of {names}"
                )
        if self.synchronization is VariableSynchronization.NONE and is_shared:
            raise ValueError(
                f"variable {self.name!r} has synchronization NONE, which is for a variable of one "
                f"replica, and the strategy may have several; use ON_READ with an aggregation: "
                f"ONLY_FIRST_REPLICA keeps a value per replica and reads the first one's outside"
            )

    def require_one_value(self) -> None:
        """Refuse to take copies that may differ for one value.

        Raises:
            ValueError: They are not to be aggregated.
        """
        if self.aggregation is VariableAggregation.NONE:
            raise ValueError(
                f"variable {self.name!r} has a value per replica (synchronization ON_READ) and "
                f"aggregation NONE, so it has no value outside replicas: it can be neither read "
                f"nor saved as a whole; create it with aggregation=VariableAggregation.SUM, MEAN "
                f"or ONLY_FIRST_REPLICA, or with saved=False and read it with "
                f"strategy.experimental_local_results"
            )

    def require_one_difference(self, verb: str) -> None:
        """Refuse a change by a difference outside replicas that could be meant in two ways.

        Args:
            verb: "assign_add" or "assign_sub".

        Raises:
            ValueError: The copies are read as their sum, or not as one value.
        """
        self.require_one_value()
        if self.is_read_as_sum:
            raise ValueError(
                f"variable {self.name!r} is read as the sum of its replicas' copies "
                f"(synchronization ON_READ, aggregation SUM), so that {verb} outside replicas "
                f"could mean one copy or each; assign the new total, v.assign(v + delta), or call "
                f"it in strategy.run, where each replica changes its own copy (as update_state of "
                f"a metric does)"
            )

    def require_dtype(self, dtype: np.dtype) -> None:
        """Refuse an aggregation whose result the variable could not hold.

        Raises:
            ValueError: It is a mean of whole numbers, or a sum of truth values.
        """
        kinds_refused = {VariableAggregation.MEAN: "biu", VariableAggregation.SUM: "b"}
        if dtype.kind in kinds_refused.get(self.aggregation, ""):
            raise ValueError(
                f"variable {self.name!r} has dtype {dtype}, which cannot hold the "
                f"{self.aggregation.value} of the replicas' values; give it another dtype, or "
                f"aggregation ONLY_FIRST_REPLICA"
            )


def may_convert(source: np.dtype, target: np.dtype) -> bool:
    """Whether values are converted without being asked to: never a fraction to a whole number."""
    both_whole = source.kind in "biu" and target.kind in "biu"
    return both_whole or np.can_cast(source, target, "same_kind")


def all_equal(values: Sequence[Array]) -> bool:
    """Whether all arrays have the same elements; NaN equals NaN."""
    first, *others = (to_host(value) for value in values)
    return all(np.array_equal(first, other, equal_nan=True) for other in others)


def aggregate(values: Sequence[Array], aggregation: VariableAggregation) -> np.ndarray:
    """One value for those of all replicas, as a new array on the host.

    The mean of equal values is that value to the bit, so that saving and restoring changes nothing.
    """
    total = to_host(values[0]).copy()
    if aggregation in (VariableAggregation.ONLY_FIRST_REPLICA, VariableAggregation.NONE):
        return total
    is_mean = aggregation is VariableAggregation.MEAN
    if is_mean and all_equal(values):
        return total
    for value in values[1:]:
        total += to_host(value)
    return mean_of(total, len(values)) if is_mean else total


def agreed(values: Sequence[Array], spec: VariableSpec) -> Array:
    """The one value that the values which replicas have assigned stand for.

    Raises:
        ValueError: They differ, and are not to be aggregated.
    """
    if spec.aggregation is not VariableAggregation.NONE:
        return aggregate(values, spec.aggregation)
    if not all_equal(values):
        raise ValueError(
            f"variable {spec.name!r} was assigned different values in different replicas, and "
            f"its aggregation is NONE; create it with aggregation=VariableAggregation.MEAN, "
            f"SUM or ONLY_FIRST_REPLICA, or with synchronization=ON_READ to keep a value per "
            f"replica"
        )
    return values[0]


def spread_over_copies(
    value: Array, num_copies: int, spec: VariableSpec, is_first_worker: bool
) -> list[Array]:
    """What each copy of a worker gets when the variable as a whole is set to `value`.

    A value that is read as the sum of its copies is given to the very first one, the others get
    zeros: the total is kept to the bit, for whole numbers too.
    """
    rest = np.zeros_like(value) if spec.is_read_as_sum else value
    return [value if is_first_worker else rest] + [rest] * (num_copies - 1)
