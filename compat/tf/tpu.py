"""`tf.tpu.experimental`: for scripts that look for a TPU before anything else."""

from typing import Any

from ..names import register

_PREFIX = "compat.tf.tpu."


def initialize_tpu_system(cluster_resolver: Any = None) -> Any:
    """Nothing for simulated TPU cores, and there are no others.

    Raises:
        RuntimeError: No resolver that simulates them is given.
    """
    return _require_simulated("initialize_tpu_system", cluster_resolver)


def shutdown_tpu_system(cluster_resolver: Any = None) -> Any:
    """Nothing for simulated TPU cores, and there are no others.

    Raises:
        RuntimeError: No resolver that simulates them is given.
    """
    return _require_simulated("shutdown_tpu_system", cluster_resolver)


def _require_simulated(name: str, cluster_resolver: Any) -> None:
    from ...cluster import TPUClusterResolver

    if not isinstance(cluster_resolver, TPUClusterResolver):
        raise RuntimeError(
            f"{name}: paceline computes on CPUs and GPUs, and finds no TPU. Look with "
            "tf.config.list_physical_devices('TPU'), which is empty, and choose "
            "MirroredStrategy() or MultiWorkerMirroredStrategy(); or let "
            "TPUClusterResolver(simulate=8) simulate eight cores."
        )


register(
    __name__,
    {
        "experimental": (
            (),
            {
                "initialize_tpu_system": _PREFIX + "initialize_tpu_system",
                "shutdown_tpu_system": _PREFIX + "shutdown_tpu_system",
            },
        )
    },
)
