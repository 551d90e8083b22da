"""The part of `cupy.cuda` that this package uses, for `strict_cupy`: devices, streams, events.

Nothing but NCCL's work runs beside the program here, but who reads has to have waited for who
wrote: an array notes on which stream it was written last, and reading it on another one that has
not been told to wait is an error, where on a GPU it would now and then give old values.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

_thread = threading.local()
_order = itertools.count(1)
_lock = threading.RLock()
"""Of what streams have seen and have to do: several threads put work on one stream."""
FOREVER_SECS = 60.0
"""After so long it is said that a card waits for ever."""


def _stack(name: str) -> list[Any]:
    found = getattr(_thread, name, None)
    if found is None:
        found = []
        setattr(_thread, name, found)
    return found


class Device:
    """A GPU; without a number the one of the calling thread. `with` makes it that."""

    def __init__(self, device: int | None = None) -> None:
        current = _stack("devices")
        self.id = device if device is not None else (current[-1] if current else 0)

    def __enter__(self) -> Device:
        _stack("devices").append(self.id)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _stack("devices").pop()

    def use(self) -> None:
        _stack("devices")[-1:] = [self.id]

    def synchronize(self) -> None:
        """Wait for all that was put on any stream of it."""
        for stream in _alive(_streams):
            stream.synchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Work:
    """Something that ends later, by itself: what NCCL does on a stream."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def wait(self) -> None:
        assert self.ended.wait(FOREVER_SECS), "a card waits for ever for what NCCL does"


def _not_ended(works: list[Work]) -> list[Work]:
    return [work for work in works if not work.ended.is_set()]


class Stream:
    """An order of work: `seen` is how far it has waited for others, by their numbers."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.number = 0 if null else next(_order)
        if non_blocking:
            _non_blocking.add(self.number)
        self.device = Device()
        self.last = 0
        self.seen: dict[int, int] = {}
        self.copies: list[tuple[int, Memory, np.ndarray, bytes]] = []
        """Copies from pinned memory that the host has not waited for: as which of its works each
        is made, where to, and from what, with what was there."""
        self.works: list[Work] = []
        self.graph: Any = None
        self.downloads: list[tuple[int, np.ndarray, np.ndarray]] = []
        _streams[self.number] = self

    @property
    def ptr(self) -> int:
        return self.number

    @property
    def done(self) -> bool:
        return not _not_ended(self.works)

    def __enter__(self) -> Stream:
        if self.number and Device() != self.device:
            raise RuntimeError(
                f"The device that the stream is created on ({self.device.id}) does not match with "
                f"the current device ({Device().id})"
            )
        _streams_of(Device()).append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _streams_of(self.device if self.number else Device()).pop()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        if self.number and event.device != self.device:
            raise RuntimeError("cudaErrorInvalidResourceHandle: an event of another device")
        with _lock:
            event.seen = {**self.seen, self.number: self.last}
            event.works = self.works = _not_ended(self.works)
        return event

    def wait_event(self, event: Event) -> None:
        with _lock:
            for number, last in event.seen.items():
                self.seen[number] = max(self.seen.get(number, 0), last)
            self.works = [*self.works, *_not_ended(event.works)]

    def advance(self, work: Work | None = None) -> int:
        """Something more is put on it, which may end by itself; the number of this work."""
        with _lock:
            self.last = next(_order)
            self.works = [*self.works, *filter(None, [work])]
            return self.last

    def begin_capture(self, mode: int | None = None) -> None:
        if not self.number:
            raise RuntimeError("cudaErrorStreamCaptureImplicit: the default stream")
        self.graph = new_graph()

    def end_capture(self) -> Any:
        graph, self.graph = self.graph, None
        graph.end()
        return graph

    def synchronize(self) -> None:
        for work in self.works:
            work.wait()
        _wait_for(self.number, self.last)

    def download_later(self, source: np.ndarray, target: np.ndarray) -> None:
        """A copy to pinned memory, which is made when the host waits for it, and not before."""
        with _lock:
            for other in _alive(_streams):
                for order, memory, pinned, _ in list(other.copies):
                    if np.may_share_memory(pinned, target) and _has_waited(
                        self.number, other.number, order
                    ):
                        memory.make_copies()
                        other.copies = [copy for copy in other.copies if copy[1] is not memory]
            values = source.copy()
            target.view(np.uint8)[...] = 0xCD
            self.downloads.append((self.advance(), target, values))

    def require_pinned_memory_as_it_was(self) -> None:
        for order, _, source, before in self.copies:
            if order > _synchronized.get(self.number, 0) and source.tobytes() != before:
                HAZARDS.append("pinned memory is overwritten that may still be copied from")


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.device = Device()
        self.seen: dict[int, int] = {}
        self.time = 0.0
        self.works: list[Work] = []

    @property
    def done(self) -> bool:
        """Whether the device has come so far. The host then knows it."""
        if _not_ended(self.works):
            return False
        for number, last in self.seen.items():
            _wait_for(number, last)
        return True

    def record(self, stream: Stream | None = None) -> None:
        self.time = time.perf_counter()
        (stream or get_current_stream()).record(self)

    def synchronize(self) -> None:
        for work in self.works:
            work.wait()
        on_event_wait()
        for number, last in self.seen.items():
            _wait_for(number, last)


def _wait_for(number: int, last: int) -> None:
    """Let the host wait for what a stream was given: what may be late has been done then."""
    stream = _streams.get(number)
    with _lock:  # another thread that waits for the same finds it done
        if stream is not None:
            stream.require_pinned_memory_as_it_was()
        _synchronized[number] = max(_synchronized.get(number, 0), last)
        if stream is not None:
            due = [copy for copy in stream.copies if copy[0] <= last]
            stream.copies = [copy for copy in stream.copies if copy[0] > last]
            for _, memory, *_ in due:
                memory.make_copies()
            arrived = [d for d in stream.downloads if d[0] <= last]
            stream.downloads = [d for d in stream.downloads if d[0] > last]
            for _, target, values in arrived:
                target[...] = values


_streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
_non_blocking: set[int] = set()
_synchronized: dict[int, int] = {}
"""How far the host has waited for each stream."""

new_graph: Callable[[], Any] = lambda: None  # noqa: E731
"""Begins a graph; see `strict_graphs`."""

on_event_wait: Callable[[], None] = lambda: None  # noqa: E731
"""Told of each wait of the host for an event."""

HAZARDS: list[str] = []
"""Memory that went back to its stream while another one, not waited for, might still read it."""

NULL = Stream(null=True)


def _streams_of(device: Device) -> list[Any]:
    """The streams that the thread has entered; each card has its own current one."""
    return _stack(f"streams of {device.id}")


def get_current_stream(device_id: int = -1) -> Stream:
    current = _streams_of(Device() if device_id < 0 else Device(device_id))
    return current[-1] if current else NULL


def _has_waited(stream: int, other: int, order: int) -> bool:
    """Whether a stream (by number) goes on after another one has come so far."""
    if stream == other or order <= _synchronized.get(other, 0):
        return True
    pair = {stream, other}
    if 0 in pair and not pair & _non_blocking:
        return True  # CUDA's default stream waits for all of these, and they for it
    found = _streams.get(stream)
    return found is None or found.seen.get(other, 0) >= order


class UnownedMemory:
    """Memory as CuPy's arrays show it (`array.data.mem`), that another object owns."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        assert device_id >= 0, "without a GPU nobody knows whose an address is"
        self.ptr, self.size, self.device_id, self._owner = ptr, size, device_id, owner


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


def allocate(size: int) -> MemoryPointer:
    """What CuPy's pool gives."""
    return MemoryPointer(SimpleNamespace(ptr=0, size=size, device_id=Device().id), 0)


def get_allocator() -> Callable[[int], Any]:
    allocators = _stack("allocators")
    return allocators[-1] if allocators else allocate


@contextmanager
def using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
    """Within it the calling thread's new arrays are in memory that this one gives."""
    _stack("allocators").append(allocator)
    try:
        yield
    finally:
        _stack("allocators").pop()


class Memory:
    """What all views of an array share: which stream wrote it last, and which ones have read it.

    As CuPy's pool does, it gives memory back to the stream that took it.
    """

    def __init__(self) -> None:
        self.home = get_current_stream().number
        self.writer = self.order = 0
        self.readers: dict[int, int] = {}
        self.mem = get_allocator()(0).mem
        self.copies: list[Callable[[], None]] = []
        self.written_by: Work | None = None
        self.read_by: list[Work] = []

    def write(self, stream: Stream | None = None, work: Work | None = None) -> None:
        """Note a write on a stream: now, or by `work`, which is on it."""
        stream = stream or get_current_stream()
        self._require_after("overwrites what", stream, "writes", {self.writer: self.order})
        self._require_after("overwrites what", stream, "reads", self.readers)
        self.make_copies()
        if work is None:  # on a GPU it is the stream that waits
            for other in (*self.read_by, *filter(None, [self.written_by])):
                other.wait()
        self.written_by, self.read_by = work, []
        self.readers = {}
        self.writer, self.order = stream.number, stream.advance()

    def read(self, stream: Stream | None = None, work: Work | None = None) -> None:
        """Note a read on a stream: now, or by `work`, which is on it."""
        stream = stream or get_current_stream()
        self._require_after("reads what", stream, "writes", {self.writer: self.order})
        self.make_copies()
        if work is not None:
            self.read_by = [*_not_ended(self.read_by), work]
        elif self.written_by is not None:
            self.written_by.wait()
        self.readers[stream.number] = stream.advance()

    def _require_after(self, does: str, stream: Stream, what: str, others: dict[int, int]) -> None:
        for other, order in list(others.items()):
            if not _has_waited(stream.number, other, order):
                raise RuntimeError(
                    f"stream {stream.number} {does} stream {other} {what}, without waiting for it "
                    f"by an event"
                )

    def hand_over(self, is_written: bool) -> None:
        """Let others read it at once, or also write: MPI, which knows no stream, and is done with
        it when it returns."""
        others = {self.writer: self.order}
        if is_written:
            others = {
                s: max(self.readers.get(s, 0), others.get(s, 0)) for s in {*self.readers, *others}
            }
        late = [s for s, order in others.items() if order > _synchronized.get(s, 0)]
        works = [*(self.read_by if is_written else []), *filter(None, [self.written_by])]
        if late or _not_ended(works):
            raise RuntimeError(f"MPI touches what stream {late} may still be at")
        self.make_copies()
        if is_written:
            self.writer, self.order, self.readers = 0, 0, {}
            self.written_by, self.read_by = None, []

    def copy_later(self, target: np.ndarray, source: np.ndarray, stream: Stream) -> None:
        """A copy from pinned memory, which is made as late as it may be."""
        stream.require_pinned_memory_as_it_was()
        self.write(stream)
        with _lock:
            self.copies.append(lambda: np.copyto(target, source))
            stream.copies.append((self.order, self, source, source.tobytes()))

    def make_copies(self) -> None:
        with _lock:  # or another thread would find none to make, and read what is not there yet
            copies, self.copies = self.copies, []
            for copy in copies:
                copy()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return
        for reader, order in list(self.readers.items()):
            if not _has_waited(self.home, reader, order):
                HAZARDS.append(f"stream {reader} may still read what stream {self.home} gets back")


_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _alive(values: weakref.WeakValueDictionary[int, Any]) -> list[Any]:
    """Those that are there, while other threads add some: `values()` would stumble over these."""
    return [value for ref in values.valuerefs() if (value := ref()) is not None]


def alloc_pinned_memory(size: int) -> Any:
    """Memory from which copies are made behind the host's back."""
    memory = np.full(size, 0xCD, np.uint8)
    _pinned[_address(memory)] = memory
    return memory


def is_pinned(array: np.ndarray) -> bool:
    address = _address(array)
    return any(0 <= address - _address(memory) < len(memory) for memory in _alive(_pinned))


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


_arrays: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def address_of(array: Any) -> int:
    """Where an array's memory begins; `array_at` finds it again."""
    address = _address(array.flat_memory())
    _arrays[address] = array
    return address


def array_at(address: int) -> Any:
    return _arrays[address]


def stream_at(number: int) -> Stream:
    return _streams[number]


class Cuda:
    """`cupy.cuda` on a machine with so many GPUs."""

    free_bytes = 40 << 30
    """What no process has taken of the memory of a card."""

    def __init__(self, num_devices: int) -> None:
        self.runtime = SimpleNamespace(
            getDeviceCount=lambda: num_devices,
            deviceGetPCIBusId=lambda device: f"0000:{device:02x}:00.0",
            getDeviceProperties=lambda index: {"name": b"a stand-in"},
            runtimeGetVersion=lambda: 0,
            memGetInfo=lambda: (self.free_bytes, 80 << 30),
        )
        self.get_elapsed_time = lambda begin, end: 1e3 * (end.time - begin.time)
        self.Device, self.Stream, self.Event = Device, Stream, Event
        self.get_current_stream = get_current_stream
        self.alloc_pinned_memory = alloc_pinned_memory
        self.get_allocator, self.using_allocator = get_allocator, using_allocator
        self.UnownedMemory, self.MemoryPointer = UnownedMemory, MemoryPointer
