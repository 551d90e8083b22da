"""`pytest --array-library=…`: tests that were written for NumPy, on the stand-in for CuPy.

`cards`: as on a machine with GPUs. What a strategy is told to keep on `CPU:i` it keeps on `GPU:i`,
each with its own stream; the rest of a script, and the host that parameter servers and counters
are kept on, are as they were. It is for strategies and all that trains by them.

`shared-card`: the same, but two replicas share a card: `CPU:i` is a logical device of `GPU:(i/2)`.

`strict`: `cards`, and what a script computes without a strategy is on the first one, operands of a
test included. It is for what computes: autodiff, layers, losses, metrics, an Estimator alone.

`gpu` and `gpu-cards`: `strict` and `cards` on the GPUs of this machine, with CuPy itself. Where
there are fewer GPUs than replicas they share them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest

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
from .looking import visible_to_tests

NUM_CARDS = 8


@contextmanager
def cards(num_on_card: int = 1) -> Iterator[None]:
    """Within it there are eight cards.

    No memory goes back to a stream that another one may still read.
    """
    library = strict_cupy.module(NUM_CARDS)
    strict_cuda.HAZARDS.clear()
    with (
        patch.object(gpu, "_cupy", lambda: library),
        named(lambda number: divmod(number, num_on_card)),
    ):
        yield
    assert not strict_cuda.HAZARDS, strict_cuda.HAZARDS


@contextmanager
def gpus() -> Iterator[None]:
    """Within it there are the GPUs of this machine, at whose arrays tests may look."""
    num_gpus = gpu.count()
    if not num_gpus:
        pytest.skip("CuPy sees no GPU")
    with (
        visible_to_tests(importlib.import_module("cupy")),
        named(lambda number: (number % num_gpus, number // num_gpus)),
    ):
        yield


@contextmanager
def named(place: Callable[[int], tuple[int, int]]) -> Iterator[None]:
    """Within it devices that are asked for by name are cards; without a name it is the first.

    Args:
        place: The card, and the part of it, that `CPU:i` is, by i.
    """
    parse = Device.parse

    def parse_card(name: str | Device) -> Device:
        device = parse(name)
        if isinstance(name, Device) or device.kind == "GPU":
            return device
        index, part = place(device.index)
        return replace(device, kind="GPU", index=index, part=part)

    with ExitStack() as patches:
        patches.enter_context(patch.object(Device, "parse", parse_card))
        for module in (mirrored, multi_worker, central_storage, servers):
            first = patch.object(module, "default_devices", lambda *_: (Device("GPU", 0),))
            patches.enter_context(first)
        yield


@contextmanager
def all_on(devices: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Within it there are these cards, and what has no strategy is computed on the first."""
    card = Device("GPU", 0)
    extended = StrategyExtended([card], [card], ReductionToOneDevice())
    with (
        devices(),
        patch.object(DEFAULT_STRATEGY, "_extended", extended),
        patch.object(default_frame().replica, "device", card),
        card.use(),
    ):
        yield


MODES = {
    "strict": partial(all_on, cards),
    "cards": cards,
    "shared-card": partial(cards, 2),
    "gpu": partial(all_on, gpus),
    "gpu-cards": gpus,
}
