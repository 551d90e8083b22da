"""`TPUStrategy`: a program written for a TPU, on logical cores of the CPU."""

from __future__ import annotations

import logging
from typing import Any

from ..cluster import ClusterResolver, TPUClusterResolver
from ..observe import log_once
from .devices.cross_device_ops import ReductionToOneDevice
from .devices.device import Device
from .extended import StrategyExtended
from .strategy import Strategy


class TPUStrategy(Strategy):
    """One replica for each core of a simulated TPU; variables have a copy on each, kept equal.

    It trains as `MirroredStrategy` does over so many logical CPUs, with the names and arguments
    that TensorFlow's `TPUStrategy` has, so that such a program can be tried without a TPU. On a
    real one nothing here can run.

    Args:
        tpu_cluster_resolver: A `TPUClusterResolver(simulate=N)`; or give `simulate`.
        experimental_device_assignment, experimental_spmd_xla_partitioning: Taken for TensorFlow's
            signature, with a warning: replica i is core i, and each core has all of a variable.
        simulate: The number of logical cores.

    Raises:
        ValueError: Nobody says how many cores to simulate, or two say different numbers.
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: Any = None,
        experimental_spmd_xla_partitioning: bool = False,
        *,
        simulate: int | None = None,
    ) -> None:
        if tpu_cluster_resolver is None:
            tpu_cluster_resolver = TPUClusterResolver(simulate=simulate)
        num_cores = tpu_cluster_resolver.num_accelerators().get("TPU", 0)
        if not num_cores:
            raise ValueError(
                f"TPUStrategy needs a TPUClusterResolver(simulate=N), it was given "
                f"{tpu_cluster_resolver.describe()!r}; for CPUs and GPUs there are "
                f"MirroredStrategy() and MultiWorkerMirroredStrategy()"
            )
        if simulate not in (None, num_cores):
            raise ValueError(
                f"simulate={simulate}, and the resolver simulates {num_cores} cores; say it once"
            )
        if experimental_device_assignment is not None or experimental_spmd_xla_partitioning:
            log_once(
                logging.WARNING,
                "TPUStrategy: a device assignment or partitioning has no effect on simulated "
                "cores: replica i is core i.",
            )
        self._resolver = tpu_cluster_resolver
        cores = [Device("CPU", index) for index in range(num_cores)]
        super().__init__(StrategyExtended(cores, cores, ReductionToOneDevice()))
        logging.getLogger("paceline").info(
            "Using %r: %d logical core(s) of the CPU stand for those of a TPU.", self, num_cores
        )

    @property
    def cluster_resolver(self) -> ClusterResolver:
        return self._resolver
