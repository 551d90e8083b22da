"""A TPU as TensorFlow's scripts ask for it: there is none here, but a simulated one."""

from __future__ import annotations

from typing import Any, final

from .resolver import ClusterResolver
from .spec import ClusterSpec, Task


@final
class TPUClusterResolver(ClusterResolver):
    """Where TensorFlow finds a TPU; here it finds logical cores of the CPU, if it is told to.

    With `simulate` a `TPUStrategy` runs on so many logical cores of this process, to try a program
    that was written for a TPU. Without, there is nothing to find, which is an error: scripts that
    look for a TPU and take another strategy where there is none (`except ValueError:`) do so.

    Args:
        tpu, zone, project, job_name, coordinator_name, coordinator_address, credentials, service,
            discovery_url: Taken for TensorFlow's signature; of no effect.
        simulate: The number of logical cores, at least 1.

    Raises:
        ValueError: `simulate` is not given, or is less than 1.
    """

    def __init__(
        self,
        tpu: str | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: Any = "default",
        service: Any = None,
        discovery_url: str | None = None,
        *,
        simulate: int | None = None,
    ) -> None:
        if simulate is None:
            raise ValueError(
                f"no TPU can be used (tpu={tpu!r}): paceline computes on CPUs and GPUs. Take "
                f"MirroredStrategy() or MultiWorkerMirroredStrategy(), or try the program on "
                f"logical cores of the CPU: TPUClusterResolver(simulate=8)"
            )
        if simulate < 1:
            raise ValueError(f"simulate must be a number of cores ≥ 1, it is {simulate}")
        super().__init__(ClusterSpec({}), Task("worker", 0), num_accelerators={"TPU": simulate})

    @staticmethod
    def connect(
        tpu: str | None = None, zone: str | None = None, project: str | None = None
    ) -> TPUClusterResolver:
        """The resolver of a TPU; there is none.

        Raises:
            ValueError: Always, as the constructor.
        """
        return TPUClusterResolver(tpu, zone, project)

    @property
    def source(self) -> str:
        return f"TPUClusterResolver(simulate={self.num_accelerators()['TPU']})"
