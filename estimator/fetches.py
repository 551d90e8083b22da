"""What a hook may ask for, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autodiff import Tensor
from ..strategies import Variable, VariableStore


def name_of_fetch(fetch: Any, loss: Tensor | None) -> str:
    """The name by which a session knows what a hook asks for.

    Args:
        fetch: A name, a variable, or the loss of the first batch, whose hooks are those that run.
        loss: That loss.

    Raises:
        TypeError: It is something else. Most likely a tensor, which belongs to one batch: the next
            call of `model_fn` makes another one, and nothing says which that would be.
    """
    if isinstance(fetch, str):
        return fetch
    if isinstance(fetch, Variable):
        return fetch.name
    if fetch is loss and loss is not None:
        return "loss"
    raise TypeError(
        f"a hook asks for {type(fetch).__name__} {fetch!r}, which belongs to one call of model_fn; "
        f"ask for a name ('loss', 'global_step', or that of a variable), for a variable, or for "
        f"the loss of the EstimatorSpec. Other values can be logged in model_fn itself"
    )


def variable_value(store: VariableStore, name: str, others: Sequence[str]) -> np.ndarray:
    """The value of a variable that a hook asks for. Call it in cross-replica context.

    Args:
        others: What hooks can ask for besides variables, for the error.

    Raises:
        ValueError: There is no such variable.
    """
    if name not in store.variables:
        there_are = ", ".join([*others, *sorted(store.variables)])
        raise ValueError(f"a hook asks for {name!r}; there are {there_are}")
    return store.variables[name].numpy()
