"""Who started this process, and the resolvers for mpirun, srun and torchrun."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import final

from .addresses import is_loopback
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

# Rank and size as Open MPI, IBM's jsrun, and MPICH and Intel MPI (Hydra) tell them.
_MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
# Slurm gives these names to shells, in which a script is started by hand and alone.
_INTERACTIVE_JOBS = ("bash", "interactive")


def resolve(environ: Mapping[str, str] = os.environ) -> ClusterResolver:
    """The cluster and the place in it, from whoever started this process.

    The first of these that speaks is believed; they are in the order in which launchers start
    each other, the innermost first:

    1. TF_CONFIG, if it lists a cluster;
    2. torchrun (TORCHELASTIC_RUN_ID), which Slurm or MPI may have started;
    3. mpirun (OMPI_COMM_WORLD_RANK, JSM_NAMESPACE_RANK, PMI_RANK), which Slurm may have started;
    4. srun (SLURM_PROCID and SLURM_STEP_NUM_TASKS), but not a shell that it started;
    5. RANK, WORLD_SIZE and MASTER_ADDR, as Kubernetes jobs for PyTorch set them;
    6. TF_CONFIG again: none, or one without a cluster, means a job of one process.

    A pure function of `environ`; `describe()` of the result is the line for the log.

    Raises:
        ClusterError: The one that speaks makes no sense.
    """
    if lists_a_cluster(environ.get("TF_CONFIG")):
        return TFConfigClusterResolver(environ=environ)
    if "TORCHELASTIC_RUN_ID" in environ:
        return TorchrunClusterResolver(environ=environ)
    if mpi_variables(environ):
        return MPIClusterResolver(environ=environ)
    # A batch script that runs Python without srun has SLURM_PROCID too, but is one process however
    # many tasks were reserved; only srun sets the variables of a step.
    by_srun = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} <= environ.keys()
    if by_srun and environ.get("SLURM_JOB_NAME") not in _INTERACTIVE_JOBS:
        return SlurmClusterResolver(environ=environ)
    if all(environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        return TorchrunClusterResolver(environ=environ)
    return TFConfigClusterResolver(environ=environ)


def job_id(cluster_spec: ClusterSpec, environ: Mapping[str, str] = os.environ) -> str:
    """A name of this run of the job that all its tasks agree on.

    PACELINE_JOB_ID, which `paceline launch` sets anew at each start; else one made of the training
    cluster and of what the launcher calls the job.
    """
    if environ.get("PACELINE_JOB_ID"):
        return environ["PACELINE_JOB_ID"]
    # Each task works it out from what all were told alike: before they have met, nobody can ask.
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    told = [environ.get(name, "") for name in names]
    text = json.dumps([cluster_spec.without_evaluator().as_dict(), told], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def restart_count(environ: Mapping[str, str] = os.environ) -> int:
    """How often this job was started before; 0 where no launcher says so.

    `paceline launch`, torchrun and Slurm (for jobs that it requeues) count.
    """
    names = ("PACELINE_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    counts = [environ.get(name, "") for name in names]
    return max(int(count) if count.isdecimal() else 0 for count in counts)


def mpi_variables(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The names of the variables in which an MPI launcher gave rank and size, None if none did."""
    return next((names for names in _MPI_VARIABLES if all(n in environ for n in names)), None)


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
        names = mpi_variables(environ)
        if names is None:
            raise ClusterError(
                "OMPI_COMM_WORLD_RANK and PMI_RANK are not set: no mpirun started this process; "
                "start it with 'mpirun -n 2 python -m mpi4py script.py' or "
                "'paceline launch --backend mpi'"
            )
        rank, size = rank_and_size(environ, names, "mpirun")
        given = jobs, environ, rpc_layer, num_accelerators
        super().__init__("mpirun", rank, ("",) * size, *given)
        self._variables = names

    @property
    def source(self) -> str:
        return f"MPI ({self._variables[0]})"


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
        port_base: int = 8888,
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
        rank, size = rank_and_size(environ, ("RANK", "WORLD_SIZE"), "torchrun")
        addresses = _torchrun_addresses(environ, size)
        super().__init__("torchrun", rank, addresses, jobs, environ, rpc_layer, num_accelerators)


def _torchrun_addresses(environ: Mapping[str, str], size: int) -> tuple[str, ...]:
    host = environ.get("MASTER_ADDR", "")
    if size > 1 and not host:
        raise ClusterError(
            f"MASTER_ADDR is {shown(environ.get('MASTER_ADDR'))}, but torchrun sets it to the "
            f"first node's name; start the script with torchrun, or set TF_CONFIG"
        )
    if size == 1:
        return ("",)
    host = f"[{host}]" if ":" in host else host
    has_store = "TORCHELASTIC_RUN_ID" in environ  # which listens on MASTER_PORT
    first = number_in(environ, "MASTER_PORT", "torchrun") + has_store
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == str(size) or is_loopback(host.strip("[]"))
    known = size if is_one_node else 1
    return (*(f"{host}:{first + i}" for i in range(known)), *("",) * (size - known))
