"""Penalties on weights, under Keras's names. `Layer.losses` lists them; add them to the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..autodiff import Tensor
from .arguments import by_name
from .serialization import Serializable


@dataclass(frozen=True)
class L1L2(Serializable):
    """`l1 · Σ|w| + l2 · Σw²` of a weight, as a scalar tensor."""

    l1: float = 0.0
    l2: float = 0.0

    def __call__(self, weight: Any) -> Tensor:
        penalty: Any = 0.0
        if self.l1:
            penalty = penalty + self.l1 * np.sum(np.abs(weight))
        if self.l2:
            penalty = penalty + self.l2 * np.sum(np.square(weight))
        return penalty if self.l1 or self.l2 else 0.0 * np.sum(weight)


def l1(l1: float = 0.01) -> L1L2:
    """`l1 · Σ|w|`."""
    return L1L2(l1=l1)


def l2(l2: float = 0.01) -> L1L2:
    """`l2 · Σw²`; there is no half in it."""
    return L1L2(l2=l2)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> L1L2:
    """`l1 · Σ|w| + l2 · Σw²`."""
    return L1L2(l1, l2)


L1 = l1
L2 = l2

_BY_NAME: dict[str, Callable[[], L1L2]] = {"l1": l1, "l2": l2, "l1_l2": l1_l2}


def get(identifier: str | Callable[..., Any] | None) -> Callable[[Any], Tensor] | None:
    """The penalty that a layer's argument means: a name, a callable of the weight, or none.

    Raises:
        ValueError: No regularizer has this name.
    """
    if not isinstance(identifier, str):
        return identifier
    return by_name("regularizer", identifier, _BY_NAME)()
