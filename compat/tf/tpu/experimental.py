"""`tf.tpu.experimental`: names for scripts that look for a TPU before anything else."""

from typing import Any, NoReturn

__all__ = ["initialize_tpu_system", "shutdown_tpu_system"]


def initialize_tpu_system(cluster_resolver: Any = None) -> NoReturn:
    """There is no TPU to initialize.

    Raises:
        RuntimeError: Always.
    """
    _refuse("initialize_tpu_system")


def shutdown_tpu_system(cluster_resolver: Any = None) -> NoReturn:
    """There is no TPU to shut down.

    Raises:
        RuntimeError: Always.
    """
    _refuse("shutdown_tpu_system")


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"{name}: paceline computes on CPUs and GPUs, and finds no TPU. Look with "
        "tf.config.list_physical_devices('TPU'), which is empty, and choose MirroredStrategy() or "
        "MultiWorkerMirroredStrategy()."
    )
