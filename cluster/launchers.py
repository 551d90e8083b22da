"""Resolvers for the launchers that number the processes: mpirun, srun, torchrun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import final

from .errors import ClusterError, shown
from .ports import is_loopback
from .ranks import number_in, rank_of, roles_from, spec_of_ranks, tasks_of_ranks
from .resolver import ClusterResolver
from .slurm import expand_nodes, hosts_of_ranks, tasks_per_node

# Rank and size as Open MPI, IBM's jsrun, and MPICH and Intel MPI (Hydra) tell them.
_MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)


def mpi_variables(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The names of the variables in which an MPI launcher gave rank and size, None if none did."""
    return next((names for names in _MPI_VARIABLES if all(n in environ for n in names)), None)


@final
class MPIClusterResolver(ClusterResolver):
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
        size = number_in(environ, names[1], "mpirun")
        rank = rank_of(size, number_in(environ, names[0], "mpirun"), "mpirun")
        tasks = tasks_of_ranks(size, roles_from(environ) if jobs is None else jobs, "mpirun")
        super().__init__(
            spec_of_ranks(tasks, ("",) * size),
            tasks[rank],
            rpc_layer=rpc_layer,
            num_accelerators=num_accelerators,
        )
        self._variables = names

    @property
    def source(self) -> str:
        return f"MPI ({self._variables[0]})"


@final
class SlurmClusterResolver(ClusterResolver):
    """The tasks of one Slurm step: what `srun` started.

    Task i of a node listens on port `port_base` + i. Roles as under MPI.

    Args:
        jobs: The number of tasks of each role, instead of PACELINE_ROLES.
        port_base: The port of the first task of each node.
        rpc_layer: The scheme of addresses.
        num_accelerators: Kind to number, for instance {"GPU": 2}.
        environ: Where Slurm's variables are looked up.

    Raises:
        ClusterError: `srun` did not start this process, its variables contradict each other, or
            the roles do not fit its number of tasks.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        rpc_layer: str | None = "grpc",
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        step = "SLURM_STEP_NUM_TASKS" in environ
        size = number_in(environ, "SLURM_STEP_NUM_TASKS" if step else "SLURM_NTASKS", "srun")
        rank = rank_of(size, number_in(environ, "SLURM_PROCID", "srun"), "srun")
        tasks = tasks_of_ranks(size, roles_from(environ) if jobs is None else jobs, "srun")
        hosts = _slurm_hosts(environ, size)
        _check_own_host(environ, hosts, rank)
        addresses = tuple(f"{host}:{port_base + local}" for host, local in hosts)
        super().__init__(
            spec_of_ranks(tasks, addresses),
            tasks[rank],
            rpc_layer=rpc_layer,
            num_accelerators=num_accelerators,
        )

    @property
    def source(self) -> str:
        return "Slurm (SLURM_PROCID)"


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
class TorchrunClusterResolver(ClusterResolver):
    """The processes that `torchrun` started.

    On one node, rank i listens on MASTER_PORT + 1 + i (torchrun itself uses MASTER_PORT), as
    also where MASTER_ADDR is a loopback address. With several nodes only the address of rank 0 is
    known and the others are empty: RING refuses to begin. Roles as under MPI.

    Args:
        jobs: The number of tasks of each role, instead of PACELINE_ROLES.
        rpc_layer: The scheme of addresses.
        num_accelerators: Kind to number, for instance {"GPU": 2}.
        environ: Where torchrun's variables are looked up.

    Raises:
        ClusterError: torchrun did not start this process, or the roles do not fit its world size.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        rpc_layer: str | None = "grpc",
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        size = number_in(environ, "WORLD_SIZE", "torchrun")
        rank = rank_of(size, number_in(environ, "RANK", "torchrun"), "torchrun")
        tasks = tasks_of_ranks(size, roles_from(environ) if jobs is None else jobs, "torchrun")
        super().__init__(
            spec_of_ranks(tasks, _torchrun_addresses(environ, size)),
            tasks[rank],
            rpc_layer=rpc_layer,
            num_accelerators=num_accelerators,
        )

    @property
    def source(self) -> str:
        return "torchrun (RANK)"


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
    first = number_in(environ, "MASTER_PORT", "torchrun") + 1
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == str(size) or is_loopback(host.strip("[]"))
    known = size if is_one_node else 1
    return (*(f"{host}:{first + i}" for i in range(known)), *("",) * (size - known))
