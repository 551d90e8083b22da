"""Synchronous training on several devices of one machine, with the variables in one place."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .devices.cross_device_ops import CrossDeviceOps, ReductionToOneDevice
from .devices.device import HOST, Device, default_devices, resolve
from .extended import StrategyExtended
from .strategy import Strategy


class CentralStorageStrategy(Strategy):
    """One replica per device; every variable exists once, in the memory of one device.

    In each step the gradients of all replicas are added up where the variable is, and applied once.
    A replica on another device than the variable's reads it from there: memory is saved, and paid
    for with a transfer at each use.

    Args:
        compute_devices: Names of the devices that run the step, one replica each; by default all
            visible GPUs, or CPUs where there is none.
        parameter_device: The name of the device that holds the variables; by default the GPU that
            computes if it is the only one, else the host.
        cross_device_ops: How gradients are added up; by default `ReductionToOneDevice`.
        strict_devices: Whether a GPU that is not there is an error; else a logical CPU stands in
            for it, with a warning.

    Raises:
        ValueError: A name is no device name, occurs twice, or (strict) is not there; or there is
            none.
    """

    def __init__(
        self,
        compute_devices: Sequence[str] | None = None,
        parameter_device: str | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        strict_devices: bool = False,
    ) -> None:
        asked: Sequence[str | Device] | None = compute_devices
        replicas = resolve(default_devices() if asked is None else asked, strict_devices)
        if parameter_device is not None:
            storage = resolve([parameter_device], strict_devices)
        else:
            storage = replicas if len(replicas) == 1 else (HOST,)
        ops = cross_device_ops or ReductionToOneDevice()
        super().__init__(StrategyExtended(replicas, storage, ops))
        logging.getLogger("paceline").info("Using %r, variables on %s.", self, storage[0])
