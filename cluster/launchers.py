"""The table of launchers, and the resolvers of the processes that they start."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from .placing import ALONE_VARIABLE, FIRST_PORT, IncompleteError, Launcher, place_in
from .ranks import (
    expand_nodes,
    hosts_of_ranks,
    number_in,
    rank_and_size,
    roles_from,
    spec_of_ranks,
    tasks_of_ranks,
    tasks_per_node,
)
from .resolver import ClusterResolver, TFConfigClusterResolver
from .spec import ClusterError, ClusterSpec, shown
from .tf_config import lists_a_cluster

# What tells one run of a job from the next; all processes of a run have the same.
_JOB_NAMES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "FLUX_JOB_ID",
    "SKYPILOT_TASK_ID",
    "TRAINING_JOB_NAME",
)


def resolve(environ: Mapping[str, str] = os.environ) -> ClusterResolver:
    """The cluster and the place in it, from the variables of the launcher of this process.

    1. PACELINE_ALONE=1: a job of one process, on purpose.
    2. TF_CONFIG, if it lists a cluster.
    3. The first row of `LAUNCHERS` whose launcher has started this process and tells enough.
    4. A job of one process, if no launcher says that there are others.

    A pure function of `environ`; `describe()` of the result is the line for the log.

    Raises:
        ClusterError: A variable makes no sense; or this process is one of several, and no launcher
            says how they find each other. It does not train alone then, because each of them would,
            in one model_dir.
    """
    if _is_alone(environ):
        return _LauncherResolver(_ALONE, environ, jobs={})
    if lists_a_cluster(environ.get("TF_CONFIG")):
        return TFConfigClusterResolver(environ=environ)
    incomplete: list[IncompleteError] = []
    for launcher in LAUNCHERS:
        if launcher.speaks(environ):
            try:
                return _resolver_of(launcher, environ)
            except IncompleteError as error:
                incomplete.append(error)
    if incomplete:
        raise incomplete[0]
    return TFConfigClusterResolver(environ=environ)


def _resolver_of(launcher: Launcher, environ: Mapping[str, str]) -> ClusterResolver:
    make = _RESOLVERS.get(launcher.name)
    return _LauncherResolver(launcher, environ) if make is None else make(environ)


def _is_alone(environ: Mapping[str, str]) -> bool:
    text = environ.get(ALONE_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ClusterError(
            f"{ALONE_VARIABLE} must be 1 or 0, got {shown(text)}; 1 lets this process train alone"
        )
    return text == "1"


def job_id(cluster_spec: ClusterSpec, environ: Mapping[str, str] = os.environ) -> str:
    """A name of this run of the job that all its tasks agree on.

    PACELINE_JOB_ID, which `paceline launch` sets anew at each start; else one made of the training
    cluster and of what the launcher calls the job.
    """
    if environ.get("PACELINE_JOB_ID"):
        return environ["PACELINE_JOB_ID"]
    # Each task works it out from what all were told alike: before they have met, nobody can ask.
    told = [environ.get(name, "") for name in _JOB_NAMES]
    text = json.dumps([cluster_spec.without_evaluator().as_dict(), told], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def restart_count(environ: Mapping[str, str] = os.environ) -> int:
    """How often this job was started before; 0 where no launcher says so.

    `paceline launch`, torchrun and Slurm (for jobs that it requeues) count.
    """
    names = ("PACELINE_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    counts = [environ.get(name, "") for name in names]
    return max(int(count) if count.isdecimal() else 0 for count in counts)


class _RankResolver(ClusterResolver):
    """The processes that a launcher has numbered: rank 0, 1, …, each listening at its address."""

    def __init__(
        self,
        launcher: str,
        rank: int,
        addresses: Sequence[str],
        jobs: Mapping[str, int] | None,
        environ: Mapping[str, str],
        rpc_layer: str | None,
        num_accelerators: Mapping[str, int] | None,
    ) -> None:
        roles = roles_from(environ) if jobs is None else jobs
        tasks = tasks_of_ranks(len(addresses), roles, launcher)
        spec = spec_of_ranks(tasks, tuple(addresses))
        super().__init__(spec, tasks[rank], rpc_layer=rpc_layer, num_accelerators=num_accelerators)


@final
class MPIClusterResolver(_RankResolver):
    """The processes of one `mpirun`, from the launcher's variables; MPI is not initialised.

    Ranks are workers in rank order, and worker 0 is the chief. PACELINE_ROLES, or `jobs`, makes
    some of them others: "evaluator" the last one the evaluator, "chief,ps=2,evaluator" the first
    the chief, the last the evaluator, and the two before it ps. Addresses are MPI's own business
    and empty here.

    Args:
        jobs: The number of tasks of each role, instead of PACELINE_ROLES.
        rpc_layer: The scheme of addresses.
        num_accelerators: Kind to number, for instance {"GPU": 2}.
        environ: Where the launcher's variables are looked up.

    Raises:
        ClusterError: No MPI launcher started this process, or the roles do not fit its size.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        launcher = next((row for row in _MPI if row.speaks(environ)), None)
        if launcher is None:
            raise ClusterError(
                "OMPI_COMM_WORLD_RANK and PMI_RANK are not set: no mpirun started this process; "
                "start it with 'mpirun -n 2 python -m mpi4py script.py' or "
                "'paceline launch --backend mpi'"
            )
        rank, addresses = place_in(launcher, environ)
        given = jobs, environ, rpc_layer, num_accelerators
        super().__init__(launcher.name, rank, addresses, *given)
        self._variable = launcher.rank

    @property
    def source(self) -> str:
        return f"MPI ({self._variable})"


@final
class SlurmClusterResolver(_RankResolver):
    """The tasks of one Slurm step: what `srun` started.

    Task i of a node listens on port `port_base` + i. Roles as under MPI.

    Args:
        port_base: The port of the first task of each node.
        jobs, rpc_layer, num_accelerators, environ: See `MPIClusterResolver`.

    Raises:
        ClusterError: `srun` did not start this process, its variables contradict each other, or
            the roles do not fit its number of tasks.
    """

    source = "Slurm (SLURM_PROCID)"

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = FIRST_PORT,
        rpc_layer: str | None = "grpc",
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        num_tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
        rank, size = rank_and_size(environ, ("SLURM_PROCID", num_tasks), "srun")
        hosts = _slurm_hosts(environ, size)
        _check_own_host(environ, hosts, rank)
        addresses = [f"{host}:{port_base + local}" for host, local in hosts]
        super().__init__("srun", rank, addresses, jobs, environ, rpc_layer, num_accelerators)


def _slurm_hosts(environ: Mapping[str, str], size: int) -> tuple[tuple[str, int], ...]:
    """Host and local index of each rank of the step."""
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    nodes = next((environ[name] for name in lists if environ.get(name)), None)
    if nodes is None:
        raise ClusterError(
            f"none of {', '.join(lists)} is set; start the script with srun inside a Slurm job"
        )
    hosts = expand_nodes(nodes)
    counts = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
    text = next((environ[name] for name in counts if environ.get(name)), None)
    cyclic = environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic")
    return hosts_of_ranks(hosts, tasks_per_node(text, len(hosts), size), cyclic)


def _check_own_host(
    environ: Mapping[str, str], hosts: tuple[tuple[str, int], ...], rank: int
) -> None:
    """Slurm also says on which place of its node this task is: it must be where we think it is."""
    if "SLURM_LOCALID" not in environ:
        return
    local = number_in(environ, "SLURM_LOCALID", "srun")
    if hosts[rank][1] != local:
        raise ClusterError(
            f"SLURM_LOCALID is {local}, but by the node list and the tasks per node, task {rank} "
            f"is number {hosts[rank][1]} on {hosts[rank][0]}; use srun's block or cyclic "
            f"distribution, or set TF_CONFIG"
        )


@final
class TorchrunClusterResolver(_RankResolver):
    """The processes that `torchrun` started.

    Also those of a Kubernetes job, or of anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT. On one node, and where MASTER_ADDR is a loopback address, rank i listens on port
    `first` + i. With several nodes only the address of rank 0 is known: MASTER_ADDR and `first`;
    the others are empty. `first` is MASTER_PORT, or with torchrun, whose own store listens there,
    the next one. Roles as under MPI.

    Args:
        jobs, rpc_layer, num_accelerators, environ: See `MPIClusterResolver`.

    Raises:
        ClusterError: torchrun did not start this process, or the roles do not fit its world size.
    """

    source = "torchrun (RANK)"

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        rpc_layer: str | None = "grpc",
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        launcher = _TORCHRUN if _TORCHRUN.speaks(environ) else _TORCH
        rank, addresses = place_in(launcher, environ)
        given = jobs, environ, rpc_layer, num_accelerators
        super().__init__(launcher.name, rank, addresses, *given)


@final
class _LauncherResolver(_RankResolver):
    """The processes that the launcher of a row of `LAUNCHERS` started. Roles as under MPI."""

    def __init__(
        self,
        launcher: Launcher,
        environ: Mapping[str, str],
        jobs: Mapping[str, int] | None = None,
    ) -> None:
        rank, addresses = place_in(launcher, environ)
        super().__init__(launcher.name, rank, addresses, jobs, environ, "grpc", None)
        self._source = launcher.source

    @property
    def source(self) -> str:
        return self._source


_ALONE = Launcher(name="alone on purpose", rank=ALONE_VARIABLE, size=ALONE_VARIABLE)
_MPI = tuple(
    Launcher(name="mpirun", rank=rank, size=size, marks=marks, knows_addresses=False)
    for rank, size, marks in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ()),  # Open MPI
        ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", ()),  # IBM's jsrun
        ("PMI_RANK", "PMI_SIZE", ()),  # MPICH, Intel MPI, Flux, Cray PALS
        ("PALS_RANKID", "PMI_SIZE", ("PALS_RANKID",)),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", ("PMIX_RANK",)),  # srun --mpi=pmix
    )
)
_TORCHRUN = Launcher(
    name="torchrun",
    rank="RANK",
    size="WORLD_SIZE",
    marks=("TORCHELASTIC_RUN_ID",),
    local_size="LOCAL_WORLD_SIZE",
    is_port_taken=True,  # by torchrun's own store
)
_TORCH = replace(_TORCHRUN, marks=("WORLD_SIZE",), is_port_taken=False)
"""Launchers that set the same variables without torchrun: Kubernetes jobs for PyTorch, a user."""

_VOLCANO = Launcher(name="Volcano", rank="VC_TASK_INDEX", hosts="VC_*_HOSTS", port=2222)

LAUNCHERS: Final = (
    _TORCHRUN,  # which Slurm or MPI may have started
    *_MPI,
    Launcher(
        name="Flux",
        rank="FLUX_TASK_RANK",
        size="FLUX_JOB_SIZE",
        num_machines="FLUX_JOB_NNODES",
    ),
    Launcher(
        name="Horovod",
        rank="HOROVOD_RANK",
        size="HOROVOD_SIZE",
        local_size="HOROVOD_LOCAL_SIZE",
    ),
    Launcher(
        name="srun",
        rank="SLURM_PROCID",
        size="SLURM_STEP_NUM_TASKS",
        # A batch script has SLURM_PROCID too, but is one process however many tasks were reserved;
        # only srun sets the variables of a step.
        marks=("SLURM_STEP_NUM_TASKS",),
        # Slurm gives these names to shells, in which a script is started by hand and alone.
        shells=("SLURM_JOB_NAME", ("bash", "interactive")),
    ),
    _TORCH,
    Launcher(
        name="JAX",
        rank="JAX_PROCESS_ID",
        size="JAX_NUM_PROCESSES",
        coordinator=("JAX_COORDINATOR_ADDRESS",),
    ),
    Launcher(
        name="Kubeflow",
        rank="PET_NODE_RANK",
        size="PET_NNODES",
        num_per_machine="PET_NPROC_PER_NODE",
        coordinator=("PET_MASTER_ADDR", "PET_MASTER_PORT"),
    ),
    _VOLCANO,
    replace(_VOLCANO, rank="VK_TASK_INDEX"),
    Launcher(
        name="SageMaker",
        rank="SM_CURRENT_HOST",
        rank_is_host=True,
        hosts="SM_HOSTS",
        port=2223,
    ),
    Launcher(
        name="SkyPilot",
        rank="SKYPILOT_NODE_RANK",
        size="SKYPILOT_NUM_NODES",
        hosts="SKYPILOT_NODE_IPS",
        port=2222,
    ),
)
"""Every launcher that is understood, the innermost first, as some of them start others."""

_RESOLVERS: Final[Mapping[str, Callable[[Mapping[str, str]], ClusterResolver]]] = {
    "mpirun": lambda environ: MPIClusterResolver(environ=environ),
    "srun": lambda environ: SlurmClusterResolver(environ=environ),
    "torchrun": lambda environ: TorchrunClusterResolver(environ=environ),
}
"""The launchers with a resolver of their own; its options are for who makes one by hand."""
