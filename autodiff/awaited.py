"""Tensors whose arrays are on their way.

Rows of a table that lies in another process take as long to ask for as to send. Who looks up rows
of several tables, one after the other, waits once: an array is fetched when somebody first looks at
it, and all that were looked up until then come with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from .tensor import Array, Tensor, Vjp, record


@final
class Awaited:
    """An array of which only shape and dtype are known so far.

    Args:
        shape, dtype: Its own.
        fetch: Gives it, or raises why not; called until it has given it.
        distinct: What `distinct_rows` says of the numbers of its rows, all from 0 and in one
            dimension, where that was found out anyway.
    """

    __slots__ = ("distinct", "fetch", "like")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        fetch: Callable[[], Array],
        distinct: tuple[Array, Array] | None = None,
    ) -> None:
        self.like = np.broadcast_to(np.zeros((), dtype), shape)  # it takes no memory
        self.fetch = fetch
        self.distinct = distinct


@final
class AwaitedTensor(Tensor):
    """The result of an operation whose array comes when `data` is first asked for.

    It is recorded when the operation is made: its place in the graph does not depend on who looks.
    """

    __slots__ = ("_awaited",)

    _awaited: Awaited

    def __getattr__(self, name: str) -> Any:
        # Python asks here for what is not set: `data`, until it is here.
        if name != "data":
            raise AttributeError(name)
        self.data = self._awaited.fetch()
        return self.data

    def like(self) -> Array:
        return self._awaited.like

    @property
    def shape(self) -> tuple[int, ...]:  # known without the array
        return self._awaited.like.shape


def record_awaited(awaited: Awaited, inputs: tuple[Tensor, ...], vjp: Vjp) -> Tensor:
    """The same as `record` for an array that is on its way."""
    recorded = record(awaited.like, inputs, vjp)
    result = AwaitedTensor.__new__(AwaitedTensor)
    result._awaited = awaited
    result.owner = None
    result.requires_grad = recorded.requires_grad
    result.inputs, result.vjp = recorded.inputs, recorded.vjp
    if recorded.requires_grad:
        result.order = recorded.order
    return result
