"""Worlds of workers: threads of this process, or processes joined by MPI or by RING."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.cluster import ClusterError, local_cluster
from paceline.cluster.mpirun import find_mpirun, mpirun_options, without_mpi_variables

HERE = Path(__file__).parent
LIMIT_SECS = 110


def why_no_mpi():
    """Why MPI cannot be used here; empty if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    try:
        mpirun = find_mpirun()
    except ClusterError as error:
        return str(error)
    return "" if mpirun.beside_python else f"no mpirun beside {sys.executable}"


def under_mpi(size, *arguments):
    """The command, and the variables it needs, that run Python as `size` ranks."""
    if reason := why_no_mpi():
        pytest.skip(reason)
    mpirun = find_mpirun()
    options, environ = mpirun_options(mpirun, size)
    return [mpirun.path, *options, "-n", str(size), sys.executable, "-m", "mpi4py", *arguments], (
        environ
    )


@dataclass
class Ended:
    """Processes that have ended: the exit code and the output of each."""

    codes: list[int]
    outputs: list[str]

    def require_success(self):
        assert not any(self.codes), "\n".join([f"exit codes {self.codes}", *self.outputs])


def run_together(commands):
    """Run (command, variables) pairs as processes side by side, to their ends."""
    base = without_mpi_variables(os.environ) | {"OPENBLAS_NUM_THREADS": "1"}
    with ExitStack() as stack:
        processes = [
            subprocess.Popen(
                command,
                env=base | environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command, environ in commands
        ]
        for process in processes:
            stack.callback(process.communicate)
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=LIMIT_SECS)[0] for process in processes]
    return Ended([process.returncode for process in processes], outputs)


def start_world(backend, size, *arguments, num_clusters=1):
    """Run Python with `arguments` as the workers of one world, and wait for their ends.

    Args:
        backend: "MPI" or "RING".
        size: How many workers.
        num_clusters: How many clusters RING's workers are told of, one for each strategy that they
            make: the first in TF_CONFIG, all of them in CLUSTERS.
    """
    if backend == "MPI":
        return run_together([under_mpi(size, *arguments)])
    clusters = [local_cluster(size) for _ in range(num_clusters)]
    return run_together(
        [
            (
                [sys.executable, *arguments],
                {
                    "TF_CONFIG": json.dumps(clusters[0][index]),
                    "CLUSTERS": json.dumps([cluster[index] for cluster in clusters]),
                },
            )
            for index in range(size)
        ]
    )


@pytest.fixture(scope="session")
def world():
    """`world(backend, size, *arguments)`: see `start_world`."""
    return start_world
