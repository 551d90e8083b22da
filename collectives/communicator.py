"""The interface that strategies, checkpoints and parameter servers see."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from .members import Member

DEFAULT_TIMEOUT_SECS = 1800.0
"""How long a rank that gives signs of life may keep the others waiting."""
DEFAULT_SILENCE_SECS = 20.0
"""How long a rank may give no sign of life before it is taken for lost."""
MIN_SILENCE_SECS = 3.0
"""Less could be two heartbeats that a busy machine has delayed."""

Array = NDArray[Any]


class Op(Enum):
    """How elements of several ranks become one. For bool, SUM and MAX mean "or", the rest "and"."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


class Handle(ABC):
    """An operation under way."""

    @abstractmethod
    def wait(self) -> None:
        """Block until the operation has ended; raise what it raised. May be called again."""


class Communicator(ABC):
    """A fixed group of ranks that move arrays between each other.

    All ranks of a communicator make the same calls in the same order. Every call has a name, which
    usually comes again each step; the first use of a name compares operation, shape, dtype and op
    over all ranks, later uses are compared cheaply, so that a rank that skips a call or makes
    another one is an error and not a hang. Every wait ends at a deadline. After an error the
    communicator is unusable: each further call raises.

    Arrays are contiguous and one-dimensional, of dtype float16, float32, float64, int32, int64 or
    bool, in the memory of the host. Results are equal bit for bit on every rank.

    Unless said otherwise calls block, come from one thread at a time, and raise

    - `TypeError` or `ValueError` for an array that cannot be used (nothing has been sent then),
    - `PeerLostError`, `CollectiveTimeoutError`, `MismatchError` or `ClosedError`.

    Attributes:
        rank: This rank, from 0.
        size: Number of ranks.
        members: All ranks by name, in order of rank.
        timeout_secs: How long a wait without progress may last.
        step: The training step, set by whoever knows it; error texts mention it.
        overlaps: Whether what is started runs at once, behind the caller's back, or when it is
            waited for. The latter is faster where this process has no core to spare; ranks need
            not agree. By default as the number of cores suggests.
    """

    def __init__(self, members: Sequence[Member], rank: int, timeout_secs: float) -> None:
        self.members = tuple(members)
        self.rank = rank
        self.size = len(self.members)
        self.timeout_secs = timeout_secs
        self.step: int | None = None
        self.overlaps = True

    @property
    @abstractmethod
    def failure(self) -> str:
        """Why this communicator is of no use any more; empty while it is."""

    @abstractmethod
    def all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> None:
        """Replace ``array`` on every rank by the elementwise reduction over all ranks, in place.

        Args:
            array: Same length and dtype on all ranks.
            name: What is being reduced.
            op: How.
        """

    @abstractmethod
    def start_all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> Handle:
        """Start `all_reduce` and return at once.

        Operations run in the order in which they were started, behind the caller's back (see
        `overlaps`); calls without ``start`` queue behind them. The array must not be touched before
        `Handle.wait`.
        """

    @abstractmethod
    def reduce_scatter(self, array: Array, name: str, op: Op = Op.SUM) -> Array:
        """Reduce ``array`` over all ranks and return this rank's part of the result.

        Args:
            array: Same length and dtype on all ranks. Its content is undefined afterwards.
            name: What is being reduced.
            op: How.

        Returns:
            A new array: the part `part_bounds(len(array), size)[rank]`.
        """

    @abstractmethod
    def all_gather(self, array: Array, name: str) -> list[Array]:
        """Return the arrays of all ranks, in order of rank.

        Args:
            array: Same dtype on all ranks; lengths may differ.
            name: What is being gathered.
        """

    @abstractmethod
    def broadcast(self, array: Array, name: str, root: int = 0) -> None:
        """Overwrite ``array`` on every rank by that of rank ``root``, in place.

        Args:
            array: Same length and dtype on all ranks.
            name: What is being sent.
            root: The rank that has it.
        """

    @abstractmethod
    def send(self, array: Array, name: str, to: int) -> None:
        """Send ``array`` to rank ``to``, which calls `receive`. Only these two ranks take part.

        It may or may not return before the other rank has called `receive`, so two ranks must not
        both send first. Both calls come between the same two collectives.
        """

    @abstractmethod
    def receive(self, array: Array, name: str, source: int) -> None:
        """Fill ``array`` with what rank ``source`` sends; name, length and dtype are compared."""

    @abstractmethod
    def barrier(self, name: str) -> None:
        """Return when every rank has called it."""

    @abstractmethod
    def split(self, color: int, key: int) -> Communicator:
        """Divide the ranks by ``color``; within a color, ranks are ordered by (``key``, rank).

        All ranks call it. A communicator and the ones split from it count as one as far as order is
        concerned: ranks that share several of them use them in the same order.
        """

    @abstractmethod
    def close(self, reason: str = "") -> None:
        """Leave. Waiting and further calls on this rank raise `ClosedError`.

        Other ranks that wait for this one raise `PeerLostError` with the reason. Never raises; may
        be called again, and from another thread.

        Args:
            reason: Why, if this rank gives up; empty if its work is done.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close("" if exception is None else f"{type(exception).__name__}: {exception}")


def part_bounds(length: int, num_parts: int) -> list[tuple[int, int]]:
    """Divide ``length`` elements evenly; the first parts are longer by one where that must be.

    >>> part_bounds(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    short, num_longer = divmod(length, num_parts)
    starts = [short * i + min(i, num_longer) for i in range(num_parts + 1)]
    return list(itertools.pairwise(starts))
