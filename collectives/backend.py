"""The seam below a communicator: what moves its arrays, over links or by MPI."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import final

import numpy as np

from .arrays import Array, Op
from .calls import Signature
from .executor import Executor
from .members import Member

# Arrays up to this size are never shared: one is as good as another of its shape and dtype.
SMALL_BYTES = 64 << 10


class RepeatedAllReduce(ABC):
    """An all_reduce that is about to come again, with the same array or, if short, one like it.

    Attributes:
        array: The array, which is not kept alive.
        op: How its elements are combined.
    """

    def __init__(self, array: Array, op: Op) -> None:
        self.op = op
        self.remember(array)

    @final
    def remember(self, array: Array) -> None:
        """Note the array as the caller has it."""
        self.array = weakref.ref(array)
        self._shape, self._dtype = array.shape, array.dtype
        self._type = type(array)
        self._is_short = array.nbytes <= SMALL_BYTES

    @final
    def is_for(self, array: Array) -> bool:
        """Whether it may `run` for another array than the last one, which is like that one."""
        return (
            self._is_short
            and array.shape == self._shape
            and array.dtype == self._dtype
            and type(array) is self._type  # not one on the host for one on a GPU
        )

    @abstractmethod
    def run(self, array: Array) -> None:
        """Reduce ``array``, flat, in place: one more call, with all checks that each call has."""


class Backend(ABC):
    """Moves the arrays of one communicator: flat ones, which have been checked, one call at a time.

    Attributes:
        members: All ranks by name, in order of rank.
        executor: Runs what is started, for this communicator and those split from it.
        timeout_secs: How long a wait without progress may last; set before each call.
        step: The training step, for error texts; set before each call.
        takes_gpu_arrays: Whether it knows that it can move arrays in the memory of GPUs; None where
            it never can.
    """

    takes_gpu_arrays: bool | None = None

    def __init__(
        self, members: Sequence[Member], rank: int, timeout_secs: float, executor: Executor
    ) -> None:
        self.members = tuple(members)
        self.rank = rank
        self.executor = executor
        self.size = len(self.members)
        self.timeout_secs = timeout_secs
        self.step: int | None = None

    @property
    @abstractmethod
    def failure(self) -> str:
        """Why it is of no use any more; empty while it is."""

    @abstractmethod
    def guard(self) -> AbstractContextManager[None]:
        """Return what a call is made in: it refuses calls after a failure, and notes failures."""

    @abstractmethod
    def all_reduce(self, array: Array, signature: Signature) -> RepeatedAllReduce | None:
        """Reduce ``array`` in place; return what repeats it, if that is quicker."""

    def empty(self, length: int, signature: Signature) -> Array:
        """Return memory of which `all_reduce` is fastest, with zeros; all ranks call this."""
        return np.zeros(length, signature.dtype)

    @abstractmethod
    def reduce_scatter(self, array: Array, signature: Signature) -> Array:
        """Return this rank's part of the reduced ``array``, whose content may be destroyed."""

    @abstractmethod
    def all_gather(self, array: Array, signature: Signature) -> list[Array]:
        """Return the arrays of all ranks; of two dimensions, of which the first may differ."""

    @abstractmethod
    def broadcast(self, array: Array, signature: Signature) -> None:
        """Overwrite ``array`` by the root's."""

    @abstractmethod
    def barrier(self, signature: Signature) -> None:
        """Return when every rank has called it."""

    @abstractmethod
    def transfer(self, array: Array, name: str, shape: Sequence[int], source: int, to: int) -> None:
        """Bring ``array`` from rank ``source`` to rank ``to``; this rank is one of the two."""

    @abstractmethod
    def split(self, color: int, key: int) -> Backend:
        """Return that of this rank's part."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """Leave; what is under way fails. Never raises; may be called again."""


def part_of(pairs: Sequence[tuple[int, int]], rank: int) -> list[int]:
    """Return which ranks are in the part of ``rank``, in their new order, from colors and keys."""
    color = pairs[rank][0]
    ranks = [other for other, pair in enumerate(pairs) if pair[0] == color]
    return sorted(ranks, key=lambda other: (pairs[other][1], other))
