"""Variables and steps on one explicit device."""

from __future__ import annotations

from .cross_device_ops import ReductionToOneDevice
from .devices import resolve
from .extended import StrategyExtended
from .strategy import Strategy


class OneDeviceStrategy(Strategy):
    """Places all variables and all computation on one device.

    Args:
        device: Its name, such as "GPU:0".
        strict_devices: Whether a GPU that is not there is an error; else a logical CPU stands in
            for it, with a warning.
    """

    def __init__(self, device: str, strict_devices: bool = False) -> None:
        devices = resolve([device], strict_devices)
        super().__init__(StrategyExtended(devices, devices, ReductionToOneDevice()))
