"""`pytest --array-library=…`: tests that were written for NumPy, on the stand-in for CuPy.

`strict`: all operands are arrays of a card, and so is what lies on logical CPUs. It is for what
computes: autodiff, layers, losses, metrics.

`cards`: as on a machine with GPUs. What a strategy is told to keep on `CPU:i` it keeps on `GPU:i`,
each with its own stream; the rest of a script, and the host that parameter servers and counters
are kept on, are as they were. It is for strategies and all that trains by them.

`shared-card`: the same, but two replicas share a card: `CPU:i` is a logical device of `GPU:(i/2)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from paceline.autodiff import placing
from paceline.strategies import central_storage, mirrored, multi_worker
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import Device
from paceline.strategies.parameter_server import strategy as servers

from . import strict_cuda, strict_cupy, strict_nccl
from .strict_cupy import StrictArray

NUM_DEVICES = 4
NUM_CARDS = 8


@contextmanager
def strict_devices() -> Iterator[None]:
    """Within it every device, the logical CPUs too, is a card that holds `StrictArray`s.

    Operands of tests begin on the first one.
    """
    library = strict_cupy.module(NUM_DEVICES)

    def put(device: Device, array: Any) -> StrictArray:
        with library.cuda.Device(_number(device)):
            return library.array(array, order="C")

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


@contextmanager
def cards(num_on_card: int = 1) -> Iterator[None]:
    """Within it devices that are asked for by name are cards; without a name it is the first.

    No memory goes back to a stream that another one may still read.
    """
    library, parse = strict_cupy.module(NUM_CARDS), Device.parse

    def parse_card(name: str | Device) -> Device:
        device = parse(name)
        if isinstance(name, Device) or device.kind == "GPU":
            return device
        index, part = divmod(device.index, num_on_card)
        return replace(device, kind="GPU", index=index, part=part)

    strict_cuda.HAZARDS.clear()
    with ExitStack() as patches:
        patches.enter_context(patch.object(gpu, "_cupy", lambda: library))
        patches.enter_context(patch.object(Device, "parse", parse_card))
        for module in (mirrored, multi_worker, central_storage, servers):
            first = patch.object(module, "default_devices", lambda *_: (Device("GPU", 0),))
            patches.enter_context(first)
        yield
    assert not strict_cuda.HAZARDS, strict_cuda.HAZARDS


MODES = {"strict": strict_devices, "cards": cards, "shared-card": partial(cards, 2)}
