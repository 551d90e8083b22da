"""Synchronous training on several workers, each with one or more devices."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..cluster import (
    ClusterError,
    ClusterResolver,
    ClusterSpec,
    SimpleClusterResolver,
    resolve,
)
from ..observe import ensure_handler
from .devices.cross_device_ops import CrossDeviceOps, NcclAllReduce, ReductionToOneDevice
from .devices.device import Device, default_devices
from .devices.device import resolve as resolve_devices
from .extended import StrategyExtended
from .strategy import Strategy, get_strategy
from .workers.joining import (
    BYTES_PER_PACK,
    CommunicationImplementation,
    CommunicationOptions,
    join_cards,
    join_workers,
)
from .workers.own_cards import own_share
from .workers.workers import Workers

_logger = logging.getLogger("paceline")


class MultiWorkerMirroredStrategy(Strategy):
    """One replica per device of every worker; every variable has a copy on each, kept equal.

    Every worker runs the same program. Making the strategy joins the workers and waits for all of
    them. A process that is alone, or that evaluates beside the workers, trains with its own
    replicas only.

    Args:
        communication: Short for `CommunicationOptions(implementation=communication)`.
        cluster_resolver: Who the workers are; by default what the launcher says (TF_CONFIG,
            mpirun, Slurm, torchrun).
        communication_options: How they talk to each other.
        devices: This worker's devices; by default as many GPUs as the resolver's
            `num_accelerators` says, or its share of those that it and other workers of its machine
            see, or the host. All workers have equally many.
        cross_device_ops: How the arrays of one worker's devices are added up; by default NCCL on
            GPUs and `ReductionToOneDevice` on the host.
        strict_devices: Whether a GPU, NCCL, or an MPI for GPUs that is asked for and is not to be
            had is an error; else the host stands in for it, with a warning.

    Raises:
        ValueError: Both ways of saying how workers communicate are used, or a name is unknown.
        ClusterError: The cluster has parameter servers, or a description that makes no sense.
        CollectiveError: Not all workers came in time, or they do not fit together.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str | None = None,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        strict_devices: bool = False,
    ) -> None:
        if communication is not None and communication_options is not None:
            raise ValueError(
                "communication and communication_options are both given; "
                "put the first into the second: CommunicationOptions(implementation=...)"
            )
        ensure_handler()  # waiting for others is worth a line
        wish = CommunicationImplementation.AUTO if communication is None else communication
        options = communication_options or CommunicationOptions(implementation=wish)
        self._devices: Sequence[str | Device] | None = devices
        self._ops = cross_device_ops
        self._strict_devices = strict_devices
        self._options = options
        self._join(cluster_resolver or resolve(os.environ))

    def _join(self, resolver: ClusterResolver) -> None:
        """Become one of the workers that `resolver` names."""
        asked, accelerators = self._devices, resolver.num_accelerators()
        are_chosen = asked is not None or "GPU" in map(str.upper, accelerators)
        if asked is None:
            asked = default_devices(accelerators)
        options, seen = self._options, resolve_devices(asked, self._strict_devices)
        communicator = join_workers(resolver, options)
        devices = own_share(seen, Workers(communicator), are_chosen)
        cards = join_cards(communicator, options, devices[0], self._strict_devices)
        workers = Workers(communicator, options.compressed_dtype, cards)
        on_host = all(device.kind == "CPU" for device in devices)
        ops = self._ops or (ReductionToOneDevice() if on_host else NcclAllReduce())
        bytes_per_pack = options.bytes_per_pack or BYTES_PER_PACK
        self._resolver = resolver
        super().__init__(StrategyExtended(devices, devices, ops, workers, bytes_per_pack))
        self._check_device_counts()
        _logger.info(
            "Using %r: worker %d of %d, %d replicas in all.",
            self,
            self.extended.worker_index,
            self.extended.num_workers,
            self.num_replicas_in_sync,
        )

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: ClusterSpec | Mapping[str, list[str]] | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Turn a strategy that was made alone into that of a worker, and wait for the others.

        For programs that learn of their cluster when the strategy, or an Estimator with it, is
        there already. All workers call it, before anything has made a variable.

        Args:
            session_config: Of no effect.
            cluster_spec: All tasks; without it nothing happens.
            task_type, task_id: This process.

        Raises:
            RuntimeError: The strategy has joined other workers before.
            ClusterError, CollectiveError: As when a strategy is made.
        """
        if cluster_spec is None:
            return
        if self.extended.num_workers > 1:
            raise RuntimeError(
                f"{self!r} is worker {self.extended.worker_index} of {self.extended.num_workers} "
                f"already and cannot be configured anew; make another strategy"
            )
        resolver = SimpleClusterResolver(cluster_spec, task_type=task_type, task_id=task_id)
        self._join(resolver)

    @property
    def cluster_resolver(self) -> ClusterResolver:
        return self._resolver

    def _check_device_counts(self) -> None:
        counts = self.extended.workers.gather_numbers(
            self.extended.num_local_replicas, "number of devices"
        )
        if len(set(counts)) > 1:
            self.extended.workers.communicator.close()
            named = ", ".join(f"worker {i} has {n}" for i, n in enumerate(counts))
            raise ClusterError(f"all workers need equally many devices, but {named}")


@contextmanager
def chief_first(strategy: Strategy | None = None) -> Iterator[None]:
    """The chief runs the block first; the others begin it when the chief has ended it.

    For what one worker does and the others then find: unpacking files, building a cache or a
    vocabulary on a disk that they share. All workers call it. While they wait they are alive, so
    that nobody takes them for lost; if the chief fails in the block, they end with its name.

    Args:
        strategy: Whose workers; by default the current strategy. It goes on at once where there is
            only one.

    Raises:
        CollectiveError: The chief has gone, or took longer than the strategy's `timeout_seconds`.
    """
    job = (strategy or get_strategy()).extended.job
    # One text, which the chief sends when its block has ended: who waits for it is alive all the
    # while, and learns of the chief's death as in any other call.
    if not job.is_chief:
        job.text_from_chief("", "what the chief does first")
    yield
    if job.is_chief:
        job.text_from_chief("done", "what the chief does first")
