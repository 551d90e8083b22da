"""`pytest --array-library=strict`: tests that were written for NumPy, on the stand-in for CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from paceline.autodiff import placing
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import Device

from . import strict_cupy, strict_nccl
from .strict_cupy import StrictArray

NUM_DEVICES = 4


@contextmanager
def strict_devices() -> Iterator[None]:
    """Within it every device, the logical CPUs too, is a card that holds `StrictArray`s.

    Operands of tests begin on the first one.
    """
    library = strict_cupy.module(NUM_DEVICES)

    def put(device: Device, array: Any) -> StrictArray:
        with library.cuda.Device(_number(device)):
            return library.array(array)

    def bring(device: Device, array: Any) -> StrictArray:
        is_here = isinstance(array, StrictArray) and array.device.id == _number(device)
        return array if is_here else put(device, array)

    @contextmanager
    def use(device: Device) -> Iterator[None]:
        with library.cuda.Device(_number(device)), placing(device.bring):
            yield

    with (
        patch.object(Device, "put", put),
        patch.object(Device, "bring", bring),
        patch.object(Device, "use", use),
        patch.object(gpu, "_cupy", lambda: library),
        patch.object(gpu, "_nccl", lambda: strict_nccl),
        placing(library.array),
    ):
        yield


def _number(device: Device) -> int:
    """The card behind a device: its own, or the first for all logical CPUs."""
    return device.index if device.kind == "GPU" else 0
