"""Functions with nothing to differentiate: their results are plain arrays, outside any graph.

They do not depend smoothly on their inputs (comparisons, positions, rounding, shapes), so that the
gradient through them is zero or undefined. They take tensors and give NumPy or CuPy arrays; tensors
while their caller is followed (see `following`), so that what he does with them is seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .placement import placed
from .recording import follower
from .refusals import plain_number
from .tensor import lift
from .tensor_like import TensorLike, implements


def plain(value: Any) -> Any:
    """The array inside a tensor; tuples and lists item by item; anything else as it is."""
    if isinstance(value, TensorLike):
        return placed(value.tensor().data)
    if isinstance(value, (tuple, list)):
        return type(value)([plain(item) for item in value])
    return placed(value) if isinstance(value, np.ndarray) else value


def traceable(result: Any) -> Any:
    """The arrays that an operation without gradients returns, by `return traceable(result)`.

    While its caller is followed they are tensors, so that what he does with them is seen.
    """
    following = follower.get()
    # What is called within another operation is part of it, and gives it arrays.
    if following is None or following.frame is not sys._getframe(1):
        return result
    return following.kept(result)


def _constant(function: Callable[..., Any]) -> None:
    def apply(*args: Any, **kwargs: Any) -> Any:
        result = function(
            *(plain(arg) for arg in args), **{name: plain(arg) for name, arg in kwargs.items()}
        )
        return traceable(result)

    apply.__name__ = function.__name__
    implements(function)(apply)


for _function in (
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.isnan, np.isinf, np.isfinite, np.signbit, np.isclose, np.allclose, np.array_equal),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not, np.any, np.all),
    *(np.sign, np.floor, np.ceil, np.trunc, np.rint, np.round, np.around, np.floor_divide),
    *(np.argmax, np.argmin, np.argsort, np.argwhere, np.nonzero, np.flatnonzero),
    *(np.count_nonzero, np.searchsorted, np.digitize),
    *(np.shape, np.ndim, np.size, np.result_type),
    *(np.zeros_like, np.ones_like, np.empty_like),
):
    _constant(_function)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, *args: Any, **kwargs: Any) -> Any:
    if lift(fill_value).requires_grad:  # nobody prints so
        raise plain_number("np.full_like")
    return np.full_like(plain(a), plain(fill_value), *args, **kwargs)
