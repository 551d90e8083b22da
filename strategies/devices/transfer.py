"""Batches on their way to the devices of replicas: copied while the replicas compute."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from ...autodiff import NO_NUMBERS
from ...inputs import Transfer, nest
from .device import Device
from .gpu import Staging

_ALIGNMENT = 64


def has_numbers(leaf: Any) -> bool:
    """Whether a device can hold it: not text, no date, and not None."""
    return leaf is not None and getattr(leaf, "dtype", np.dtype(float)).kind not in NO_NUMBERS


def transfer_to(devices: Sequence[Device]) -> Transfer | None:
    """How batches get to devices ahead of time; None where all of these are the host."""
    return _ToCards(devices) if any(d.kind == "GPU" for d in devices) else None


@final
class _ToCards(Transfer):
    """Batches of NumPy's arrays become such of CuPy's; text, and what lies on a card, stays."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._lanes = [_Lane(device) for device in devices]

    def start(self, batches: tuple[Any, ...]) -> list[_Sent]:
        return [lane.send(batch) for lane, batch in zip(self._lanes, batches, strict=True)]

    def finish(self, started: list[_Sent]) -> tuple[Any, ...]:
        return tuple([lane.receive(sent) for lane, sent in zip(self._lanes, started, strict=True)])


class _Sent(NamedTuple):
    """A batch on its way: its leaves, which of them travel, and in which places of which room."""

    batch: Any
    arrays: Sequence[np.ndarray]
    places: Sequence[slice]
    staging: Staging | None


class _Lane:
    """The way to one device. Several threads may use it: each takes a room for itself."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: deque[Staging] = deque()

    def send(self, batch: Any) -> _Sent:
        arrays = [leaf for leaf in nest.flatten(batch) if self._travels(leaf)]
        if not arrays:
            return _Sent(batch, (), (), None)
        sizes = [-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
        starts = itertools.accumulate(sizes, initial=0)
        places = [slice(i, i + a.nbytes) for i, a in zip(starts, arrays, strict=False)]
        staging = self._room(sum(sizes))
        staging.send(arrays, places)
        return _Sent(batch, arrays, places, staging)

    def receive(self, sent: _Sent) -> Any:
        if sent.staging is None:
            return sent.batch
        found = iter(sent.staging.receive(sent.arrays, sent.places))
        self._free.append(sent.staging)
        return nest.map_structure(
            lambda leaf: next(found) if self._travels(leaf) else leaf, sent.batch
        )

    def _travels(self, leaf: Any) -> bool:
        return self._device.kind == "GPU" and isinstance(leaf, np.ndarray) and has_numbers(leaf)

    def _room(self, num_bytes: int) -> Staging:
        """One that nobody uses; those that have become too small go."""
        while self._free:
            staging = self._free.popleft()
            if staging.num_bytes >= num_bytes:
                return staging
        return Staging(num_bytes, self._device.index, self._device.part)
