"""Which launcher started this process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from .launchers import (
    MPIClusterResolver,
    SlurmClusterResolver,
    TorchrunClusterResolver,
    mpi_variables,
)
from .resolver import ClusterResolver, TFConfigClusterResolver
from .spec import ClusterSpec
from .tf_config import lists_a_cluster

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
    if "SLURM_PROCID" in environ and _started_by_srun(environ):
        return SlurmClusterResolver(environ=environ)
    if all(environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        return TorchrunClusterResolver(environ=environ)
    return TFConfigClusterResolver(environ=environ)


def _started_by_srun(environ: Mapping[str, str]) -> bool:
    """Whether the process is a task of a Slurm step, and not run by hand within one.

    A batch script that runs Python without srun has SLURM_PROCID too, but is one process however
    many tasks were reserved; only srun sets the variables of a step.
    """
    if environ.get("SLURM_JOB_NAME") in _INTERACTIVE_JOBS:
        return False
    return "SLURM_STEP_NUM_TASKS" in environ


def job_id(cluster_spec: ClusterSpec, environ: Mapping[str, str] = os.environ) -> str:
    """A name of this run of the job that all its tasks agree on.

    PACELINE_JOB_ID, which `paceline launch` sets anew at each start; else one made of the training
    cluster and of what the launcher calls the job.
    """
    if environ.get("PACELINE_JOB_ID"):
        return environ["PACELINE_JOB_ID"]
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
