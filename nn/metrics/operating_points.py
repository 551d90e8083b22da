"""The best of one figure at any threshold at which another one is good enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..arguments import check_fraction, count
from .classification import AtThresholds
from .confusion import Confusion, evenly_spaced, precision, sensitivity, specificity


class _OperatingPoint(AtThresholds):
    """The best of one figure over the thresholds at which another one reaches a value.

    Args:
        argument: What the value is called.
        value: In [0, 1].
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        class_id: Count only this place of the predictions' last axis.
    """

    reached: ClassVar[Callable[..., np.ndarray]]
    best: ClassVar[Callable[..., np.ndarray]]

    def __init__(
        self,
        argument: str,
        value: float,
        num_thresholds: int,
        class_id: int | None,
        name: str | None,
        dtype: Any,
    ) -> None:
        check_fraction(argument, value)
        one = count("num_thresholds", num_thresholds) == 1
        thresholds = 0.5 if one else [0.0, *evenly_spaced(num_thresholds)[1:-1], 1.0]
        super().__init__(thresholds, name, dtype, class_id=class_id)
        self._value = value
        self._is_scalar = True

    def figure(self, counts: Confusion) -> np.ndarray:
        cls = type(self)
        allowed = cls.best(counts)[cls.reached(counts) >= self._value]
        return np.atleast_1d(allowed.max(initial=0.0))


class SensitivityAtSpecificity(_OperatingPoint):
    """The best sensitivity (recall) at any threshold with at least this specificity.

    Args:
        specificity: The share of negative examples that are not to be predicted positive, [0, 1].
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        class_id: Count only this place of the predictions' last axis.
    """

    reached, best = staticmethod(specificity), staticmethod(sensitivity)

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__("specificity", specificity, num_thresholds, class_id, name, dtype)


class SpecificityAtSensitivity(_OperatingPoint):
    """The best specificity at any threshold with at least this sensitivity.

    Args:
        sensitivity: The share of positive examples that are to be predicted positive, [0, 1].
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        class_id: Count only this place of the predictions' last axis.
    """

    reached, best = staticmethod(sensitivity), staticmethod(specificity)

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__("sensitivity", sensitivity, num_thresholds, class_id, name, dtype)


class PrecisionAtRecall(_OperatingPoint):
    """The best precision at any threshold with at least this recall.

    Args:
        recall: The share of positive examples that are to be predicted positive, [0, 1].
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        class_id: Count only this place of the predictions' last axis.
    """

    reached, best = staticmethod(sensitivity), staticmethod(precision)

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__("recall", recall, num_thresholds, class_id, name, dtype)


class RecallAtPrecision(_OperatingPoint):
    """The best recall at any threshold with at least this precision.

    Args:
        precision: The share of true ones that is wanted among those predicted positive, [0, 1].
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        class_id: Count only this place of the predictions' last axis.
    """

    reached, best = staticmethod(precision), staticmethod(sensitivity)

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__("precision", precision, num_thresholds, class_id, name, dtype)
