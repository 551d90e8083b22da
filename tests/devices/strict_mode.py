"""`pytest --array-library=…`: tests that were written for NumPy, on the stand-in for CuPy.

`cards`: as on a machine with GPUs. What a strategy is told to keep on `CPU:i` it keeps on `GPU:i`,
each with its own stream; the rest of a script, and the host that parameter servers and counters
are kept on, are as they were. It is for strategies and all that trains by them.

`shared-card`: the same, but two replicas share a card: `CPU:i` is a logical device of `GPU:(i/2)`.

`strict`: `cards`, and what a script computes without a strategy is on the first one, operands of a
test included. It is for what computes: autodiff, layers, losses, metrics, an Estimator alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from paceline.strategies import (
    DEFAULT_STRATEGY,
    ReductionToOneDevice,
    StrategyExtended,
    central_storage,
    mirrored,
    multi_worker,
)
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import Device
from paceline.strategies.parameter_server import strategy as servers
from paceline.strategies.replicas.frame import default_frame

from . import strict_cuda, strict_cupy

NUM_CARDS = 8


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


@contextmanager
def all_on_cards() -> Iterator[None]:
    """Within it there are cards, and what is computed without a strategy is on the first."""
    card = Device("GPU", 0)
    extended = StrategyExtended([card], [card], ReductionToOneDevice())
    with (
        cards(),
        patch.object(DEFAULT_STRATEGY, "_extended", extended),
        patch.object(default_frame().replica, "device", card),
        card.use(),
    ):
        yield


MODES = {"strict": all_on_cards, "cards": cards, "shared-card": partial(cards, 2)}
