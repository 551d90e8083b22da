"""Values on their way from host memory to cards, many at a time: the way back of `download`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ...autodiff import Array
from . import gpu
from .device import Device

ROOM_BYTES: Final = 16 << 20
"""How much pinned memory, and memory of the card, each of the two rooms of an upload takes at most.
One is filled while the other one is copied."""


def put_together(pairs: Sequence[tuple[Array, Device]]) -> list[Array]:
    """What `device.put(array)` gives for each pair, of a few copies from the host to each card.

    Values are written behind each other into pinned memory, of which one copy goes to the card, on
    its copy stream; the card then copies each of them to where it stays. A `Staging` says why all
    of it is in order. The caller waits for the copies from pinned memory, and for nothing that
    cards compute.
    """
    found: list[Array] = [None] * len(pairs)
    uploaded: dict[Device, list[int]] = {}
    for index, (array, device) in enumerate(pairs):
        if device.kind == "GPU" and isinstance(array, np.ndarray):
            uploaded.setdefault(device, []).append(index)
        else:
            found[index] = device.put(array)
    for device, indices in uploaded.items():
        arrays = _put_on_card([pairs[index][0] for index in indices], device)
        for index, array in zip(indices, arrays, strict=True):
            found[index] = array
    return found


def _put_on_card(values: Sequence[np.ndarray], device: Device) -> list[Array]:
    home = device.index, device.part
    with device.use():
        arrays = [gpu._cupy().empty(value.shape, value.dtype) for value in values]
    sources = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
    room_bytes = min(sum(map(len, sources)), ROOM_BYTES)
    rooms: list[gpu.Staging] = []
    for turn, filling in enumerate(fillings([len(source) for source in sources], room_bytes)):
        if turn < 2:
            rooms.append(gpu.Staging(room_bytes, *home))
        places = [part.place for part in filling]
        room = rooms[turn % 2]
        room.send([sources[part.number][part.bytes] for part in filling], places)
        room.deliver([(arrays[part.number], part.bytes) for part in filling], places)
    for room in rooms:
        room.wait()
    return arrays


class Part(NamedTuple):
    """Some bytes of one of several values, and their place in a room."""

    number: int
    bytes: slice
    place: slice


def fillings(lengths: Sequence[int], room_bytes: int) -> Iterator[list[Part]]:
    """All bytes of values of these lengths, divided into what has room at a time."""
    filling: list[Part] = []
    used = 0
    for number, stop in enumerate(lengths):
        start = 0
        while start < stop:
            num = min(stop - start, room_bytes - used)
            filling.append(Part(number, slice(start, start + num), slice(used, used + num)))
            start, used = start + num, used + num
            if used == room_bytes:
                yield filling
                filling, used = [], 0
    if filling:
        yield filling
