"""Training with variables on parameter servers."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Literal

from ...cluster import ClusterError, ClusterResolver, Task, resolve
from ...observe import ensure_handler
from ..devices.cross_device_ops import CrossDeviceOps, ReductionToOneDevice
from ..devices.device import HOST, Device, default_devices
from ..devices.device import resolve as resolve_devices
from ..extended import StrategyExtended
from ..strategy import Strategy
from ..variables.local import LocalStorage
from ..workers.joining import CommunicationOptions
from ..workers.workers import Workers
from .channel import channel_of
from .job import LazyServers, ServerTask, TrainerJob
from .placement import Partitioner, Place, VariablePlacer, placement_of
from .servers import JobTerms
from .storage import ServerStorage

_logger = logging.getLogger("paceline")


class ParameterServerStrategy(Strategy):
    """Variables live on parameter servers (ps); each worker computes on all of its devices.

    A worker's replicas make a step together. Between workers there is no step in common: each hands
    its gradients to the servers when it has them, and gets the variables as they are then. The
    optimizer runs on the servers. `global_step` counts the steps of all workers. How far workers
    may drift apart is bounded by `max_staleness`; with 0 they make each step together.

    Every task of the cluster runs the same program, and calls `train_and_evaluate`. Workers may
    come late, leave and come back. Variables that each replica has for itself (`ON_READ`, as
    metrics have) stay with the worker.

    Args:
        cluster_resolver: Who is in the job; by default what the launcher says (TF_CONFIG, mpirun,
            Slurm). It lists at least one ps.
        variable_partitioner: Into how many pieces a variable is cut, each of which goes to a server
            of its own choice; None cuts none.
        placement: "round_robin", "by_size" (where the fewest bytes are so far), or a function (see
            `Place`).
        max_staleness: How many steps a worker may be ahead of the slowest one; None for any number.
            With 0 a step is made when all workers have handed in their gradients, with their mean,
            weighted by the numbers of examples.
        replicas_to_aggregate: With `max_staleness=0`: a step is made when so many workers have
            handed in their gradients; those of the others are dropped when they come.
        devices: This worker's devices; by default all GPUs, or the host.
        cross_device_ops: How the arrays of one worker's devices are added up.
        communication_options: How tasks talk to each other (timeouts, kinds of links, token). With
            `overlap=True` a step computes while the exchange of the one before is under way: it
            does not see that one's changes yet.
        absence_secs: How long a task that has died is waited for: a ps by those who train, the
            chief by the other trainers, any trainer by the servers.

    Raises:
        ValueError: An option is out of range.
        ClusterError: The cluster has no ps, or a description that makes no sense.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Partitioner | None = None,
        *,
        placement: Literal["round_robin", "by_size"] | Place = "round_robin",
        max_staleness: int | None = None,
        replicas_to_aggregate: int | None = None,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        communication_options: CommunicationOptions | None = None,
        absence_secs: float = 300.0,
    ) -> None:
        options = communication_options or CommunicationOptions()
        _check(max_staleness, replicas_to_aggregate, absence_secs, options)
        ensure_handler()  # waiting for others is worth a line
        self._resolver = cluster_resolver or resolve(os.environ)
        asked: Sequence[str | Device] | None = devices
        if asked is None:
            asked = default_devices(self._resolver.num_accelerators())
        replicas = resolve_devices(asked)
        ops = cross_device_ops or ReductionToOneDevice()
        task = _require_servers(self._resolver)
        num_trainers = len(self._resolver.cluster_spec().training_tasks())
        if not 1 <= (replicas_to_aggregate or num_trainers) <= num_trainers:
            raise ValueError(
                f"replicas_to_aggregate must be from 1 to {num_trainers}, the number of workers "
                f"with the chief; it is {replicas_to_aggregate}"
            )
        channel = channel_of(self._resolver, options)
        if task.type == "evaluator":  # beside the job, with variables of its own
            super().__init__(StrategyExtended(replicas, replicas, ops))
            return
        terms = JobTerms(
            is_chief=task == self._resolver.cluster_spec().chief(),
            is_synchronous=max_staleness == 0,
            start_timeout_secs=options.start_timeout_secs,
            absence_secs=absence_secs,
        )
        if task.type == "ps":
            server = ServerTask(channel, terms, replicas_to_aggregate)
            super().__init__(StrategyExtended(replicas, [HOST], ops, server=server))
        else:
            servers = LazyServers(channel, terms)
            placer = None
            if terms.is_chief:
                place = placement_of(placement)
                placer = VariablePlacer(len(channel.servers), place, variable_partitioner)
            local = LocalStorage([HOST], Workers())
            storage = ServerStorage(servers, placer, local, max_staleness, bool(options.overlap))
            job = TrainerJob(servers, storage)
            super().__init__(
                StrategyExtended(replicas, [HOST], ops, remote_storage=storage, job=job)
            )
        _logger.info(
            "Using %r as %s: %d parameter servers, %d trainers, %s.",
            *(self, task, len(channel.servers), num_trainers, _described(max_staleness)),
        )

    @property
    def cluster_resolver(self) -> ClusterResolver:
        return self._resolver


def _require_servers(resolver: ClusterResolver) -> Task:
    """This task, of a cluster that has parameter servers.

    Raises:
        ClusterError: It has none, or it is not said which task this is.
    """
    task = resolver.task
    if not resolver.cluster_spec().num_tasks("ps") and (task is None or task.type != "evaluator"):
        raise ClusterError(
            f"the cluster has no ps ({resolver.source}), and ParameterServerStrategy keeps its "
            f"variables on parameter servers; list some under 'ps' (`paceline launch --ps 1` "
            f"does), or use MultiWorkerMirroredStrategy"
        )
    if task is None:
        raise ClusterError(
            f"it is not said which task of the cluster this process is ({resolver.source}); give "
            f"it its type and index"
        )
    return task


def _check(
    max_staleness: int | None,
    replicas_to_aggregate: int | None,
    absence_secs: float,
    options: CommunicationOptions,
) -> None:
    if max_staleness is not None and max_staleness < 0:
        raise ValueError(f"max_staleness must be ≥ 0, or None for no bound; it is {max_staleness}")
    if replicas_to_aggregate is not None:
        if max_staleness != 0:
            raise ValueError(
                f"replicas_to_aggregate={replicas_to_aggregate} is for steps that workers make "
                f"together; pass max_staleness=0 with it"
            )
        if replicas_to_aggregate < 1:
            raise ValueError(f"replicas_to_aggregate must be ≥ 1, it is {replicas_to_aggregate}")
    if options.overlap and max_staleness == 0:
        raise ValueError(
            "overlap=True lets a step begin before the changes of the last one are there, and "
            "max_staleness=0 forbids that; leave one of them out"
        )
    if not absence_secs > 0:
        raise ValueError(f"absence_secs must be > 0, it is {absence_secs}")


def _described(max_staleness: int | None) -> str:
    if max_staleness == 0:
        return "all make each step together"
    bound = "any number of" if max_staleness is None else f"at most {max_staleness}"
    return f"each makes its own steps, {bound} steps ahead of the slowest"
