"""Synchronous training on several devices of one machine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

from .devices.cross_device_ops import CrossDeviceOps, NcclAllReduce, ReductionToOneDevice
from .devices.device import Device, default_devices, resolve
from .extended import StrategyExtended
from .strategy import Strategy


class MirroredStrategy(Strategy):
    """One replica per device; every variable has a copy on each, kept equal by equal updates.

    Args:
        devices: Device names, such as ["GPU:0", "GPU:1"] or ["CPU:0", "CPU:1"]; by default all
            visible GPUs, or the visible CPUs where there is none: one, or as many as
            `set_visible_devices` was given. Logical CPUs are replica threads; "GPU:0:1" shares the
            card of "GPU:0" (see docs/gpu.md).
        cross_device_ops: How gradients are added up; by default NCCL on GPUs and
            `ReductionToOneDevice` on the host.
        strict_devices: Whether a GPU that is not there is an error; else a logical CPU stands in
            for it, with a warning. So it is with NCCL, where it is asked for: copies stand in.
        num_gpus, cross_tower_ops: The names of TensorFlow 1.x; deprecated.

    Raises:
        ValueError: A name is no device name, occurs twice, or (strict) is not there; or there is
            none.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        strict_devices: bool = False,
        num_gpus: int | None = None,
        cross_tower_ops: CrossDeviceOps | None = None,
    ) -> None:
        if num_gpus is not None:
            _deprecated("num_gpus", "devices", devices is not None)
            if num_gpus < 1:
                raise ValueError(
                    f"num_gpus must be ≥ 1, it is {num_gpus}; leave it out for the CPU"
                )
            devices = [f"GPU:{i}" for i in range(num_gpus)]
        if cross_tower_ops is not None:
            _deprecated("cross_tower_ops", "cross_device_ops", cross_device_ops is not None)
            cross_device_ops = cross_tower_ops
        asked: Sequence[str | Device] | None = devices
        resolved = resolve(default_devices() if asked is None else asked, strict_devices)
        on_host = all(device.kind == "CPU" for device in resolved)
        if strict_devices and cross_device_ops is not None:
            missing = cross_device_ops.missing_for(resolved)
            if missing:
                raise ValueError(
                    f"{type(cross_device_ops).__name__} cannot work here: {missing} "
                    f"(strict_devices=True)"
                )
        ops = cross_device_ops or (ReductionToOneDevice() if on_host else NcclAllReduce())
        super().__init__(StrategyExtended(resolved, resolved, ops))
        logging.getLogger("paceline").info("Using %r.", self)


def _deprecated(old: str, new: str, both: bool) -> None:
    if both:
        raise ValueError(
            f"{old} and {new} were both given; leave {old} away, {new} is its new name"
        )
    warnings.warn(f"{old} is TensorFlow 1.x's name of {new}", DeprecationWarning, stacklevel=3)
