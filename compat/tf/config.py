"""`tf.config`: which devices there are, and which of them strategies take."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...strategies import Device, list_devices, set_visible_devices
from ..names import NameTable, register, serve
from .advice import advice

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))

LogicalDevice = PhysicalDevice = Device
_logger = logging.getLogger("paceline")
_configurations: dict[str, list[Any]] = {}
"""By the name of a device, what its logical devices were asked to be."""


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One logical device; its memory is not limited."""

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


def list_physical_devices(device_type: str | None = None) -> tuple[Device, ...]:
    """The devices of this machine.

    Args:
        device_type: "CPU" or "GPU"; None stands for all. Of another type there are none.
    """
    return _of_kinds(device_type, hidden=True)


def list_logical_devices(device_type: str | None = None) -> tuple[Device, ...]:
    """The devices that strategies take: visible ones, and logical ones that were made."""
    return _of_kinds(device_type, hidden=False)


def _of_kinds(device_type: str | None, hidden: bool) -> tuple[Device, ...]:
    kinds = ("CPU", "GPU") if device_type is None else (device_type,)
    return tuple(device for kind in kinds for device in list_devices(kind, hidden))


class LocalDevice(NamedTuple):
    """A device as `list_local_devices` describes it."""

    name: str
    device_type: str


def list_local_devices(session_config: Any = None) -> list[LocalDevice]:
    """TensorFlow 1's `device_lib.list_local_devices`: the names and kinds of all devices."""
    devices = list_physical_devices()
    return [LocalDevice(f"/device:{device.short_name}", device.kind) for device in devices]


def get_visible_devices(device_type: str | None = None) -> tuple[Device, ...]:
    """The devices that strategies take."""
    return list_logical_devices(device_type)


def set_logical_device_configuration(
    device: Device, logical_devices: Sequence[LogicalDeviceConfiguration]
) -> None:
    """Give this process several devices for one: as many replicas as there are configurations.

    Those of the CPU are CPU:0, CPU:1 and so on. Those of GPU:1 are GPU:1, GPU:1:1, GPU:1:2 and so
    on, and the other GPUs keep their names, where TensorFlow numbers all of them anew: take them
    from `list_logical_devices`.

    Raises:
        ValueError: There is no configuration, or the GPU is not here.
    """
    if not logical_devices:
        raise ValueError(f"logical_devices is empty; give one for each logical device of {device}")
    numbers = range(len(logical_devices))
    if device.kind == "CPU":
        chosen = [Device("CPU", number) for number in numbers]
    else:
        parts = [replace(device, part=number) for number in numbers]
        others = [d for d in list_devices("GPU") if d.index != device.index]
        chosen = sorted([*parts, *others], key=lambda d: (d.index, d.part))
    _set_visible(chosen, device.kind)
    _configurations[str(device)] = list(logical_devices)


def get_logical_device_configuration(device: Device) -> list[Any] | None:
    """What `set_logical_device_configuration` was given."""
    return _configurations.get(str(device))


_set_visible = set_visible_devices


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:  # type: ignore
    """Choose which devices strategies take; none of a kind hides them.

    Args:
        devices: One or several, as `list_physical_devices` gives them.
        device_type: Their kind; needed where there are none.
    """
    chosen = [devices] if isinstance(devices, Device) else list(devices)
    kinds = {Device.parse(d).kind for d in chosen}
    for kind in [device_type] if device_type else kinds:
        _set_visible([d for d in chosen if Device.parse(d).kind == kind], kind)


def experimental_connect_to_cluster(
    cluster_spec_or_resolver: Any,
    job_name: str = "localhost",
    task_index: int = 0,
    protocol: str | None = None,
    make_master_device_default: bool = True,
    cluster_device_filters: Any = None,
) -> None:
    """Does nothing but say so: a strategy joins the workers of its resolver when it is made."""
    _logger.info(
        "experimental_connect_to_cluster has nothing to do: a strategy joins its workers when it "
        "is made."
    )


def _no_effect(name: str, instead: str) -> Any:
    def say(*args: Any, **kwargs: Any) -> None:
        _logger.info("tf.config.%s has nothing to do: %s.", name, instead)

    return say


def experimental_connect_to_host(remote_host: str | None = None, job_name: str = "worker") -> None:
    """Does nothing but say so; see `experimental_connect_to_cluster`."""
    experimental_connect_to_cluster(remote_host, job_name)


run_functions_eagerly = experimental_run_functions_eagerly = _no_effect(
    "run_functions_eagerly", "functions run as they are written"
)
set_soft_device_placement = _no_effect(
    "set_soft_device_placement", "logical CPUs stand in for GPUs that are not here"
)


def functions_run_eagerly() -> bool:
    """Always."""
    return True


def get_soft_device_placement() -> bool:
    """Always: logical CPUs stand in for GPUs that are not here."""
    return True


def set_memory_growth(device: Any, enable: bool) -> None:
    """Nothing: CuPy takes memory as it is needed."""


def get_memory_growth(device: Any) -> bool:
    """Always: CuPy takes memory as it is needed."""
    return True


def enable_op_determinism() -> None:
    """Nothing: with a seed (`tf.random.set_seed`) runs repeat."""


_PREFIX = "compat.tf.config."
_EXPERIMENTAL = {
    **{
        name: _PREFIX + name
        for name in (
            "enable_op_determinism",
            "get_memory_growth",
            "get_visible_devices",
            "list_logical_devices",
            "list_physical_devices",
            "set_memory_growth",
            "set_visible_devices",
        )
    },
    "VirtualDeviceConfiguration": _PREFIX + "LogicalDeviceConfiguration",
    "get_virtual_device_configuration": _PREFIX + "get_logical_device_configuration",
    "set_virtual_device_configuration": _PREFIX + "set_logical_device_configuration",
}
_THREADING = {
    "set_inter_op_parallelism_threads": _PREFIX + "_set_threads",
    "set_intra_op_parallelism_threads": _PREFIX + "_set_threads",
}
_set_threads = _no_effect("threading", "OPENBLAS_NUM_THREADS limits NumPy's threads")
register(__name__, {"experimental": ((), _EXPERIMENTAL), "threading": ((), _THREADING)}, advice)
