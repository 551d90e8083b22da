"""`tf.config`: which devices there are, to choose a strategy by."""

import logging
from typing import Any

from ...strategies import Device, list_devices

__all__ = ["experimental_connect_to_cluster", "list_logical_devices", "list_physical_devices"]

_logger = logging.getLogger("paceline")


def list_physical_devices(device_type: str | None = None) -> tuple[Device, ...]:
    """The devices of this process.

    Args:
        device_type: "CPU" or "GPU"; None stands for all. Of another type there are none.
    """
    if device_type is None:
        return (*list_devices("CPU"), *list_devices("GPU"))
    return list_devices(device_type)


list_logical_devices = list_physical_devices


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
