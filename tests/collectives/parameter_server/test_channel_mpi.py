"""Ranks of an MPI job tell each other how to call each other, and end although one is lost."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Not resolved: the mpiexec of the virtual environment, whose MPI mpi4py loads, and no other.
MPIEXEC = Path(sys.executable).parent / "mpiexec"
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py"),
    pytest.mark.skipif(not MPIEXEC.exists(), reason=f"needs {MPIEXEC} (pip install mpich)"),
]


def run_job(size, *command):
    """Run a Python script on ``size`` ranks; return its exit status and output."""
    result = subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, "-m", "mpi4py", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, **OPEN_MPI},
    )
    return result.returncode, result.stdout + result.stderr


def test_ranks_meet_at_addresses_that_mpi_has_brought():
    status, output = run_job(3, HERE / "mpi_tasks.py", "ask")
    assert status == 0, output
    for worker in ("worker 0", "worker 1"):
        assert f"{worker} was answered [0, 1, 2, 3, 4]" in output


def test_a_job_that_has_lost_a_rank_is_ended_by_its_server():
    """MPI would wait for ever for a rank that is stopped."""
    status, output = run_job(3, HERE / "mpi_tasks.py", "lose one")
    assert status != 0
    assert "worker 0 has ended" in output
    assert "ps 0: all tasks have ended but worker 1, lost before" in output
