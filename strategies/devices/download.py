"""Values on their way from cards to host memory, while the cards compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, final

import numpy as np

from ...autodiff import Array
from . import gpu
from .upload import fillings

ROOM_BYTES: Final = 32 << 20
"""How much pinned memory a download takes at most. A copy of so much takes a millisecond or two."""


@final
class Download:
    """Copies in host memory of arrays on cards, as they are when this object is made.

    One thread makes them (`finish`), through pinned memory: it queues as many copies as that has
    room for on the cards' streams for downloads, waits for them once, takes what has come, and goes
    on. The thread that trains waits for nothing. Before it overwrites an array that is not here so
    far (`before_change`) it queues a copy of it on the card, and the rest is downloaded from there.
    Where the card has no room for another copy it downloads the array itself, and waits.

    Why every byte that arrives is of the moment at which this began:

    - Streams for downloads wait for what the cards had been given by then, and for copies on them.
    - Who is about to overwrite an array lets the stream of its home wait for the downloads of it
      that are queued. Later ones read the copy: one lock is around the choice and the queueing.
    - CuPy's pool gives memory back to the stream that took it. What is downloaded is held here
      until the host has waited for its last byte.

    Args:
        pairs: Arrays of one length in bytes each, by the names of what they are of: targets, which
            are contiguous and of host memory, and sources.

    Attributes:
        before_change: By name, what is to be called before the sources of this name change.
    """

    def __init__(self, pairs: Mapping[str, Sequence[tuple[np.ndarray, Array]]]) -> None:
        homes = {gpu.home(array) for of_name in pairs.values() for _, array in of_name}
        written = {home: _computed_at(*home) for home in homes}
        self._sources = {
            name: [_Source(_bytes_of(target), a, written[gpu.home(a)]) for target, a in of_name]
            for name, of_name in pairs.items()
        }
        self._lock = threading.Lock()
        self._queued: dict[int, Any] = {}
        """By card, the end of the downloads that were queued last."""
        self._spare_bytes: dict[int, int] = {}
        self.before_change: Mapping[str, Callable[[], None]] = {
            name: partial(self._keep, sources) for name, sources in self._sources.items()
        }

    def finish(self) -> None:
        """Return when all copies are made. To be called once, by any thread."""
        sources = [source for of_name in self._sources.values() for source in of_name]
        num_bytes = sum(len(source.target) for source in sources)
        if not num_bytes:
            return
        room = gpu.pinned(min(num_bytes, ROOM_BYTES))
        try:
            for filling in fillings([len(source.target) for source in sources], len(room)):
                self._fetch(
                    [_Part(sources[n], chosen, place) for n, chosen, place in filling], room
                )
        except BaseException:
            # What is on its way must have come before others get the pinned memory.
            with suppress(Exception):  # else the card is lost, and that is the error already
                for end in self._queued.values():
                    end.synchronize()
            raise
        finally:
            with self._lock:
                for source in sources:
                    source.array = None

    def _fetch(self, filling: Sequence[_Part], room: np.ndarray) -> None:
        with self._lock:
            parts = [part for part in filling if part.source.array is not None]
            cards = {part.source.array.device.id for part in parts}
            for card in sorted(cards):
                here = [part for part in parts if part.source.array.device.id == card]
                self._queued[card] = gpu.start_downloads(
                    card,
                    [(p.source.array, p.bytes, room[p.place]) for p in here],
                    {id(p.source.written): p.source.written for p in here}.values(),
                )
        for card in cards:
            self._queued[card].synchronize()
        for source, chosen, place in parts:
            source.target[chosen] = room[place]
        with self._lock:  # a step may be about to copy one of them
            for source, chosen, _ in parts:
                if chosen.stop == len(source.target):
                    source.array = None

    def _keep(self, sources: Sequence[_Source]) -> None:
        with self._lock:
            for source in sources:
                if source.array is not None and not source.is_own:
                    self._keep_one(source)

    def _keep_one(self, source: _Source) -> None:
        array = source.array
        home = card, _ = gpu.home(array)
        if card not in self._spare_bytes:
            self._spare_bytes[card] = gpu.spare_bytes(card)
        if array.nbytes <= self._spare_bytes[card]:
            self._spare_bytes[card] -= array.nbytes
            source.array, source.written = gpu.copy_at_home(array)
            source.is_own = True
        else:
            source.target[...] = _bytes_of(gpu.get(array))
            source.array = None
        if card in self._queued:
            gpu.wait_for(self._queued[card], *home)


def to_host_together(arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Arrays in host memory, by name; those that are there already as they are."""
    pairs = {
        name: [(np.empty(array.shape, array.dtype), array)]
        for name, array in arrays.items()
        if not isinstance(array, np.ndarray)
    }
    Download(pairs).finish()
    return {name: pairs[name][0][0] if name in pairs else arrays[name] for name in arrays}


@dataclass(slots=True)
class _Source:
    """What is downloaded from.

    Attributes:
        target: The bytes of host memory that it goes to.
        array: It; None as soon as all of it has come.
        written: An event of the card, behind what gives it its values.
        is_own: Whether it is a copy, which nobody else knows.
    """

    target: np.ndarray
    array: Any
    written: Any
    is_own: bool = False


class _Part(NamedTuple):
    """Some bytes of a source, and their place in pinned memory."""

    source: _Source
    bytes: slice
    place: slice


def _computed_at(index: int, part: int) -> Any:
    with gpu.use(index, part):
        return gpu.recorded(index)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
