"""How values are combined over replicas."""

from __future__ import annotations

import enum

import numpy as np

from ..autodiff import Array


class ReduceOp(enum.Enum):
    """How to combine values over replicas."""

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def parse(cls, value: ReduceOp | str) -> ReduceOp:
        """A `ReduceOp` from itself or from its name in any case.

        Raises:
            ValueError: `value` is neither SUM nor MEAN.
        """
        if isinstance(value, ReduceOp):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(f"reduce_op must be 'SUM' or 'MEAN' (or a ReduceOp), not {value!r}")


def mean_of(total: Array, count: float) -> Array:
    """`total / count`, in the dtype of `total` where that is a float, else in float64."""
    dtype = total.dtype if np.issubdtype(total.dtype, np.inexact) else np.float64
    mean = np.divide(total, count, dtype=dtype)
    return np.asarray(mean) if isinstance(mean, np.generic) else mean
