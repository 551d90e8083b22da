"""Arrays in memory that the ranks of one host share, and their all-reduce, which moves nothing.

Each rank has an array of its own, as always; the others have mapped it. Then an all-reduce is: all
have come; each rank combines its part of all arrays and writes the result into all of them; all
have done so. The bytes are read and written once, where they are, instead of being copied into a
ring and out of it.

Another rank finds the memory through /proc (`sealed_memory.py`). Where that does not work for all
ranks (they are on several hosts, or do not see each other's processes) all of them use memory of
their own.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from .arrays import UFUNCS, Array, Op, part_bounds
from .backend import RepeatedAllReduce
from .sealed_memory import OfferedMemory, found_memory

Gather: TypeAlias = Callable[[bytes], list[bytes]]
"""Returns the equally long rows of all ranks, who all call it."""

# What is added up is still in the cache when it is written into the arrays of the others.
_CHUNK_BYTES = 256 << 10


@dataclass(frozen=True)
class SharedArray:
    """An array of this rank, and those of all ranks, in order, of the same length.

    Attributes:
        number: Which of the communicator's shared arrays, from 1.
        all_ranks: As this rank sees them; its own is `all_ranks[rank]`.
    """

    number: int
    all_ranks: Sequence[Array]


@final
class SharedArrays:
    """Those of one communicator that are still in use.

    Args:
        rank: This rank, which gets the arrays.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._by_address: dict[int, SharedArray] = {}
        self._num_made = 0

    def make(self, length: int, dtype: np.dtype[Any], gather: Gather) -> Array:
        """Return an array of zeros, shared if that works for all ranks, who all call this."""
        num_bytes = length * dtype.itemsize
        with closing(OfferedMemory("paceline-array", num_bytes)) as own:
            memories = [
                own.memory if rank == self._rank else found_memory(theirs, num_bytes)
                for rank, theirs in enumerate(gather(own.offer))
            ]
            # Nobody closes a descriptor before all have found it.
            is_shared = all(row == b"\1" for row in gather(b"\1" if all(memories) else b"\0"))
        self._num_made += 1
        if not is_shared:
            return np.zeros(length, dtype)
        arrays = [np.frombuffer(memory, dtype, length) for memory in memories if memory]
        # Not one of `arrays`: those must not keep alive what the caller lets go.
        array = np.frombuffer(memories[self._rank] or b"", dtype, length)
        address = _address(array)
        self._by_address[address] = SharedArray(self._num_made, arrays)
        weakref.finalize(array, self._by_address.pop, address, None)
        return array

    def find(self, array: Array) -> SharedArray | None:
        """Return what `make` has made ``array``, or the same elements, from."""
        if not self._by_address:
            return None
        found = self._by_address.get(_address(array))
        if found is None:
            return None
        like = found.all_ranks[self._rank]
        return found if like.size == array.size and like.dtype == array.dtype else None


class Meeting(ABC):
    """Ranks that wait for each other in one call."""

    @abstractmethod
    def run(self) -> None:
        """One more call, with all checks that each call has: return when all ranks have come."""

    @abstractmethod
    def meet(self) -> None:
        """`run`, where the call has its number already."""


@final
class SharedAllReduce(RepeatedAllReduce):
    """An all-reduce of a shared array.

    Args:
        meeting: How the ranks meet.
        fail: Told of an error after which the arrays are undefined.
        shared: The arrays.
        rank: This rank.
        array: Its array, as the caller has it.
        op: How elements are combined.
    """

    def __init__(
        self,
        meeting: Meeting,
        fail: Callable[[BaseException], object],
        shared: SharedArray,
        rank: int,
        array: Array,
        op: Op,
    ) -> None:
        super().__init__(array, op)
        self._meeting = meeting
        self._fail = fail
        self._ufunc = UFUNCS[op]
        start, stop = part_bounds(array.size, len(shared.all_ranks))[rank]
        step = _CHUNK_BYTES // array.itemsize
        bounds = [(first, min(first + step, stop)) for first in range(start, stop, step)]
        self._chunks = [[a[slice(*b)] for a in shared.all_ranks] for b in bounds]

    def run(self, array: Array) -> None:
        self._meeting.run()
        self._combine()

    def begin(self) -> None:
        """`run`, where the call has its number already."""
        self._meeting.meet()
        self._combine()

    def _combine(self) -> None:
        """Combine this rank's part of all arrays, in the order of ranks, and let all have it."""
        ufunc = self._ufunc
        try:
            for first, *others in self._chunks:
                for other in others:
                    ufunc(first, other, out=first)
                for other in others:
                    other[:] = first
        except BaseException as error:
            self._fail(error)
            raise
        self._meeting.run()


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
