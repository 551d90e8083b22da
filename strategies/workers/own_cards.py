"""Which cards a worker takes, of those that several workers of one machine see."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from pathlib import Path

from ..devices import gpu
from ..devices.device import Device
from .workers import Workers

_logger = logging.getLogger("paceline")


def card_of(device: Device) -> str:
    """A card, by what tells it from all others of all machines."""
    return f"{gpu.bus_id(device.index)} of {_machine()}"


def own_share(devices: Sequence[Device], workers: Workers, are_chosen: bool) -> Sequence[Device]:
    """The devices of this worker; all workers call this.

    Workers that see the same cards, and were told nothing else, divide them in the order of
    workers, each as many. Where there are more workers than cards each takes all that it sees.

    Args:
        devices: Those that this worker sees, or was told to take.
        workers: All of them.
        are_chosen: Whether it was told.
    """
    shares = not are_chosen and all(device.kind == "GPU" for device in devices)
    seen = "; ".join(map(card_of, devices)) if shares else ""
    texts = workers.texts(seen, "the cards that workers see")
    sharing = [rank for rank, text in enumerate(texts) if text == seen]
    num_own = len(devices) // len(sharing)
    if not shares or len(sharing) == 1 or not num_own:
        return devices
    first = sharing.index(workers.rank) * num_own
    own = devices[first : first + num_own]
    _logger.info(
        "%d workers see the same %d GPUs; this one takes %s (devices=... chooses others).",
        len(sharing),
        len(devices),
        ", ".join(f"GPU:{device.index}" for device in own),
    )
    return own


def _machine() -> str:
    """What tells this machine from others; containers of one machine have the same."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else platform.node()
