"""The part of `cupy.cuda` that this package uses, for `strict_cupy`: devices, streams, events.

Nothing runs at once here, but who reads has to have waited for who wrote: an array notes on which
stream it was written last, and reading it on another one that has not been told to wait is an
error, where on a GPU it would now and then give old values.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

_thread = threading.local()
_order = itertools.count(1)


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
        _stack("devices")[:] = [self.id]

    def synchronize(self) -> None:
        """Wait for all that was put on any stream of it."""
        for stream in list(_streams):
            stream.synchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream:
    """An order of work: `done` is how far another one (by its number) was waited for."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.number = 0 if null else next(_order)
        if non_blocking:
            _non_blocking.add(self.number)
        self.device = Device()
        self.last = 0
        self.seen: dict[int, int] = {}
        _streams.add(self)

    def __enter__(self) -> Stream:
        _stack("streams").append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _stack("streams").pop()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.seen = {**self.seen, self.number: self.last}
        return event

    def wait_event(self, event: Event) -> None:
        for number, last in event.seen.items():
            self.seen[number] = max(self.seen.get(number, 0), last)

    def synchronize(self) -> None:
        _synchronized[self.number] = self.last


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.seen: dict[int, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        (stream or get_current_stream()).record(self)

    def synchronize(self) -> None:
        for number, last in self.seen.items():
            _synchronized[number] = max(_synchronized.get(number, 0), last)


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()
_non_blocking: set[int] = set()
_synchronized: dict[int, int] = {}
"""How far the host has waited for each stream."""

NULL = Stream(null=True)


def get_current_stream() -> Stream:
    current = _stack("streams")
    return current[-1] if current else NULL


@dataclass
class Written:
    """On which stream memory was written last, and as which of the writes."""

    stream: int = 0
    order: int = 0

    def write(self, device: Device) -> None:
        stream = get_current_stream()
        self.stream, self.order = stream.number, next(_order)
        stream.last = self.order

    def check_read(self, device: Device, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        if not self.order or stream.number == self.stream:
            return
        pair = {stream.number, self.stream}
        if 0 in pair and not pair & _non_blocking:
            return  # CUDA's default stream waits for all of these, and they for it
        known = max(stream.seen.get(self.stream, 0), _synchronized.get(self.stream, 0))
        if known < self.order:
            raise RuntimeError(
                f"stream {stream.number} reads what stream {self.stream} writes, without waiting "
                f"for it by an event"
            )


class Cuda:
    """`cupy.cuda` on a machine with so many GPUs."""

    def __init__(self, num_devices: int) -> None:
        self.runtime = SimpleNamespace(getDeviceCount=lambda: num_devices)
        self.Device, self.Stream, self.Event = Device, Stream, Event
        self.get_current_stream = get_current_stream
