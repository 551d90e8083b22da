"""A stand-in for `cupy.cuda.nccl`, for `strict_cuda`: ranks are threads, or cards of one thread.

It has CuPy's names, arguments and constants (by `cupy_api.json`), and NCCL's manners. A call
returns at once; its work is done, in an order of adding that is not NumPy's, when all ranks have
made it, and until then the stream that it is on goes no further. Ranks that make different calls,
or of which one does not come, wait for ever, without a word, until they `abort`; what they were to
get is no number then. What a GPU would only now and then do wrong is an error: memory that another
stream still writes, an array of another card, or one that is too short.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from . import strict_cuda as cuda

available = True
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
NCCL_INT32, NCCL_INT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = 2, 4, 6, 7, 8, 9
NUM_ID_BYTES = 128

_DTYPES = {
    NCCL_INT32: "int32",
    NCCL_INT64: "int64",
    NCCL_FLOAT16: "float16",
    NCCL_FLOAT32: "float32",
    NCCL_FLOAT64: "float64",
    NCCL_BFLOAT16: "bfloat16",
}
_UFUNCS = {NCCL_SUM: np.add, NCCL_PROD: np.multiply, NCCL_MAX: np.maximum, NCCL_MIN: np.minimum}


class NcclError(RuntimeError):
    """What NCCL refuses."""


@dataclass
class _Call:
    """What one rank asks for."""

    operation: str
    sent: np.ndarray
    received: Any
    type: int
    op: int = 0
    root: int = 0
    work: cuda.Work = field(default_factory=cuda.Work)

    @property
    def signature(self) -> tuple[Any, ...]:
        return self.operation, self.sent.size, self.type, self.op, self.root

    def spoil(self) -> None:
        if self.received.dtype.kind != "i":
            self.received[:] = np.nan


class _World:
    """The ranks that have one id."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.cards: dict[int, int] = {}
        self.calls: list[dict[int, _Call]] = []
        self.failure = ""

    def join(self, rank: int, card: int) -> None:
        with self.changed:
            if card in self.cards.values():
                self.failure = "invalid usage: Duplicate GPU detected"
            self.cards[rank] = card
            self.changed.notify_all()

    def wait_for_all(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: len(self.cards) == self.size or self.failure)
            if self.failure:
                raise NcclError(self.failure)

    def make(self, rank: int, number: int, call: _Call) -> None:
        with self.changed:
            while len(self.calls) <= number:
                self.calls.append({})
            calls = self.calls[number]
            calls[rank] = call
            if len(calls) == self.size and len({c.signature for c in calls.values()}) == 1:
                _do([calls[i] for i in range(self.size)])


def _do(calls: list[_Call]) -> None:
    """What all ranks have asked for, added up from the second rank on round to the first."""
    first = calls[0]
    if first.operation == "broadcast":
        total = calls[first.root].sent.copy()
    else:
        total = reduce(_UFUNCS[first.op], [c.sent.copy() for c in (*calls[1:], first)])
    for rank, call in enumerate(calls):
        if first.operation != "reduce" or rank == first.root:
            call.received[:] = total
    for call in calls:
        call.work.ended.set()


_worlds: dict[bytes, _World] = {}
_lock = threading.Lock()
_thread = threading.local()


def get_version() -> int:
    return 22707


def get_unique_id() -> bytes:
    return os.urandom(NUM_ID_BYTES)


def groupStart() -> None:  # noqa: N802
    _thread.depth = getattr(_thread, "depth", 0) + 1


def groupEnd() -> None:  # noqa: N802
    _thread.depth -= 1
    if not _thread.depth:
        put_off, _thread.put_off = getattr(_thread, "put_off", []), []
        for action in put_off:
            action()


def _in_group(action: Callable[[], None]) -> None:
    if getattr(_thread, "depth", 0):
        _thread.put_off = [*getattr(_thread, "put_off", []), action]
    else:
        action()


class NcclCommunicator:
    """One rank, on the card that is the calling thread's."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:  # noqa: N803
        assert type(commId) is bytes, type(commId)
        assert len(commId) == NUM_ID_BYTES, len(commId)
        with _lock:
            world = _worlds.setdefault(commId, _World(ndev))
        self._begin(world, rank, cuda.Device().id)
        _in_group(world.wait_for_all)

    def _begin(self, world: _World, rank: int, card: int) -> None:
        self._world: _World | None = world
        self._rank, self._card = rank, card
        self._number = 0
        self._under_way: list[_Call] = []
        world.join(rank, card)

    @staticmethod
    def initAll(devices: list[int] | int) -> list[NcclCommunicator]:  # noqa: N802
        cards = list(range(devices)) if isinstance(devices, int) else devices
        world = _World(len(cards))
        found = [NcclCommunicator.__new__(NcclCommunicator) for _ in cards]
        for rank, (communicator, card) in enumerate(zip(found, cards, strict=True)):
            communicator._begin(world, rank, card)
        world.wait_for_all()
        return found

    def allReduce(  # noqa: N802
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        self._call("allReduce", sendbuf, recvbuf, count, datatype, stream, op=op)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        self._call("reduce", sendbuf, recvbuf, count, datatype, stream, op=op, root=root)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        self._call("broadcast", sendbuff, recvbuff, count, datatype, stream, root=root)

    def check_async_error(self) -> None:
        if _broken:
            raise NcclError(_broken[-1])

    def abort(self) -> None:
        world, self._world = self._world, None
        if world is None:
            return
        with world.changed:
            world.changed.notify_all()
            for call in self._under_way:
                if not call.work.ended.is_set():
                    call.spoil()
                    call.work.ended.set()

    def destroy(self) -> None:
        self._world = None

    def size(self) -> int:
        return self._existing().size

    def rank_id(self) -> int:
        self._existing()
        return self._rank

    def device_id(self) -> int:
        self._existing()
        return self._card

    def _existing(self) -> _World:
        if self._world is None:
            raise NcclError("invalid argument")
        return self._world

    def _call(
        self,
        operation: str,
        sent: int,
        received: int,
        count: int,
        type: int,
        stream: int,
        **how: Any,
    ) -> None:
        from .strict_cupy import _launch  # which imports this

        world = self._existing()
        _launch(operation)
        assert all(isinstance(x, int) for x in (sent, received, count, type, stream, *how.values()))
        on = cuda.stream_at(stream)
        assert on.device.id == self._card, f"stream of card {on.device.id} on card {self._card}"
        source, target = (self._memory(at, count, type) for at in (sent, received))
        call = _Call(
            operation, source.flat_memory()[:count], target.flat_memory()[:count], type, **how
        )
        on.advance(call.work)
        source._memory.read(on, call.work)
        if operation != "reduce" or self._rank == call.root:
            target._memory.write(on, call.work)
        self._under_way = [*(c for c in self._under_way if not c.work.ended.is_set()), call]
        number, self._number = self._number, self._number + 1
        _in_group(lambda: world.make(self._rank, number, call))

    def _memory(self, address: int, count: int, type: int) -> Any:
        array = cuda.array_at(address)
        assert array.device.id == self._card, f"array of {array.device} for card {self._card}"
        assert array.dtype.name == _DTYPES[type], f"{array.dtype} as {_DTYPES[type]}"
        assert array.flags.c_contiguous, "memory that is not contiguous"
        assert array.size >= count, f"{array.size} elements, not {count}"
        return array


_broken: list[str] = []


@contextmanager
def broken(reason: str) -> Iterator[None]:
    """Within it NCCL has found out that something is wrong, and says so to who asks."""
    _broken.append(reason)
    yield
    _broken.pop()


@contextmanager
def nobody_waits_any_more() -> Iterator[None]:
    """At its end whoever waits for ranks that never came to a communicator is told to go."""
    try:
        yield
    finally:
        for world in list(_worlds.values()):
            with world.changed:
                world.failure = world.failure or "the test is over"
                world.changed.notify_all()
        _worlds.clear()
