"""NCCL: arrays of several cards are added up by the cards themselves, while they compute.

NVIDIA's library starts its work on a stream and returns at once; it ends when all ranks have made
the same call. Each card's calls are put on its stream for communication (`gpu.communicating`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from ...autodiff import Array
from ...collectives import Handle
from . import gpu
from .once import made_once

INSTALL = "pip install 'paceline[nccl]'; beside CUDA 12 'paceline[nccl12]'"
"""What brings the library."""

_TYPES = {
    "float16": "NCCL_FLOAT16",
    "bfloat16": "NCCL_BFLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "int32": "NCCL_INT32",
    "int64": "NCCL_INT64",
}


def missing_for(cards: Sequence[int]) -> str:
    """Why NCCL cannot join these cards of this process, in words; empty if it can."""
    if gpu.nccl() is None:
        return f"CuPy finds no NCCL ({INSTALL})"
    twice = sorted({card for card in cards if cards.count(card) > 1})
    if twice:
        return f"GPU:{twice[0]} has several of the arrays, and NCCL takes one for each card"
    return ""


def knows(dtype: Any) -> bool:
    """Whether NCCL adds up arrays of this dtype."""
    return dtype.name in _TYPES


@final
class UnderWay(Handle):
    """What goes on beside what cards compute: `wait` lets their own streams wait, not the caller.

    Args:
        arrays: What nobody may touch before. Their memory does not go back before either, also
            where nobody waits any more, since a step has failed.
        events: For each of them, the end of it.
    """

    def __init__(self, arrays: Sequence[Array], events: Sequence[Any]) -> None:
        self.events = tuple(events)
        self._arrays = tuple(arrays)
        for other in list(_not_waited_for):
            if all(event.done for event in other.events):
                _not_waited_for.discard(other)
        _not_waited_for.add(self)

    def wait(self) -> None:
        for array, event in zip(self._arrays, self.events, strict=True):
            gpu.wait_for(event, *gpu.home(array))
        _not_waited_for.discard(self)


_not_waited_for: set[UnderWay] = set()
"""It keeps them, and so their arrays. (Not `__del__`, in which Python drops an interrupt.)"""


@final
class NcclRanks:
    """Ranks of an NCCL communicator that this process drives, one for each of its cards.

    Calls are given one array for each of the cards, contiguous and of one length and dtype. All
    ranks, those of other processes too, make the same calls in the same order.

    Args:
        communicators: CuPy's.
        cards: Their cards, each once.
    """

    def __init__(self, communicators: Sequence[Any], cards: Sequence[int]) -> None:
        self.cards = tuple(cards)
        self._communicators = tuple(communicators)
        self._nccl = gpu.nccl()
        # Several threads reduce buckets. All cards must have the calls in one order: a card whose
        # stream begins with another bucket's waits for the first card, which waits for it.
        self._lock = threading.Lock()

    def all_reduce(self, arrays: Sequence[Array]) -> UnderWay:
        """Replace each array by the sum of all."""
        with self._one_call(arrays) as streams:
            for one, array, stream in zip(self._communicators, arrays, streams, strict=True):
                at, kind = array.data.ptr, self._type_of(array)
                one.allReduce(at, at, array.size, kind, self._nccl.NCCL_SUM, stream.ptr)
        return self._under_way(arrays, streams)

    def reduce(self, arrays: Sequence[Array], root: int, total: Array) -> UnderWay:
        """Make `total`, on the card of number `root`, the sum; the other arrays stay as they are.

        `total` may be the array of that card.
        """
        with self._one_call(arrays) as streams:
            for rank, one in enumerate(self._communicators):
                array, kind = arrays[rank], self._type_of(arrays[rank])
                to = total if rank == root else array  # elsewhere nothing is written
                op, stream = self._nccl.NCCL_SUM, streams[rank].ptr
                one.reduce(array.data.ptr, to.data.ptr, array.size, kind, op, root, stream)
        return self._under_way(arrays, streams)

    def broadcast(self, arrays: Sequence[Array], root: int) -> UnderWay:
        """Overwrite all arrays by that of the card of number `root`."""
        with self._one_call(arrays) as streams:
            for one, array, stream in zip(self._communicators, arrays, streams, strict=True):
                at = array.data.ptr
                one.broadcast(at, at, array.size, self._type_of(array), root, stream.ptr)
        return self._under_way(arrays, streams)

    def gather(self, array: Array, parts: Sequence[Array], own: int) -> UnderWay:
        """Overwrite `parts`, one for each rank, by the arrays of all ranks, of which this has one.

        NCCL's own gather takes arrays of one length. These may differ: all ranks know all lengths,
        and leave out what is empty.

        Args:
            array: That of this rank.
            parts: Of the lengths of all ranks' arrays.
            own: The number of this rank.
        """
        (one,) = self._communicators
        with self._one_call([array]) as streams:
            for root, part in enumerate(parts):
                if part.size:
                    sent = array if root == own else part  # elsewhere nothing is read
                    at, kind = part.data.ptr, self._type_of(part)
                    one.broadcast(sent.data.ptr, at, part.size, kind, root, streams[0].ptr)
        return self._under_way([array], streams)

    def error(self) -> str:
        """What NCCL has found out beside all calls, in words; empty if nothing."""
        try:
            for one in self._communicators:
                one.check_async_error()
        except RuntimeError as error:
            return str(error)
        return ""

    def abort(self) -> None:
        """End what is under way, whatever others do; what it was to give is undefined."""
        for one in self._communicators:
            one.abort()

    @contextmanager
    def _one_call(self, arrays: Sequence[Array]) -> Iterator[Sequence[Any]]:
        """What is called in it, with a stream for each array, is one call, made at its end."""
        with self._lock:
            streams = [_stream_for(array) for array in arrays]
            self._nccl.groupStart()
            try:
                yield streams
            finally:
                self._nccl.groupEnd()

    def _under_way(self, arrays: Sequence[Array], streams: Sequence[Any]) -> UnderWay:
        events = []
        for array, stream in zip(arrays, streams, strict=True):
            with gpu.use(*gpu.home(array)):  # an event is of the card where it is made
                events.append(stream.record())
        return UnderWay(arrays, events)

    def _type_of(self, array: Array) -> int:
        return getattr(self._nccl, _TYPES[array.dtype.name])


def _stream_for(array: Array) -> Any:
    """The stream for communication of an array's home, behind what was computed there so far."""
    with gpu.communicating(*gpu.home(array)) as stream:
        return stream


def ranks_of(cards: Sequence[int]) -> NcclRanks:
    """The ranks of all of these cards, which no other process shares; made once."""
    return _ranks_of(gpu.nccl(), tuple(cards))


@made_once
def _ranks_of(nccl: Any, cards: tuple[int, ...]) -> NcclRanks:
    return NcclRanks(nccl.NcclCommunicator.initAll(list(cards)), cards)
