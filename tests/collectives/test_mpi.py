"""The MPI communicator: the conformance suite and the faults, as jobs under mpiexec."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Not resolved: the mpiexec of the virtual environment, whose MPI mpi4py loads, and no other.
MPIEXEC = Path(sys.executable).parent / "mpiexec"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py"),
    pytest.mark.skipif(not MPIEXEC.exists(), reason=f"needs {MPIEXEC} (pip install mpich)"),
]
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def run_job(size, *command, runner=("-m", "mpi4py")):
    """Run a Python script on ``size`` ranks; return its exit status, output and duration."""
    started = time.monotonic()
    result = subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, *runner, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, **OPEN_MPI},
    )
    return result.returncode, result.stdout + result.stderr, time.monotonic() - started


@pytest.mark.parametrize("size", [1, 2, 4])
def test_conformance(size):
    status, output, _ = run_job(size, HERE / "mpi_conformance.py")
    assert status == 0, output
    assert "cases passed" in output


@pytest.mark.parametrize(
    ("fault", "timeout_secs", "texts"),
    [
        ("raises_inside_with", 60, ["Traceback", "KeyError: 'no such column'", "rank 1"]),
        (
            "never_comes",
            1,
            ["all_reduce 'bucket 3' (4.0 MB, step 1841) timed out after ", "waiting for rank 1"],
        ),
        (  # D-07
            "prepares_data",
            6,
            [
                "all_reduce 'a' (800 bytes): rank 0 has been waiting for rank 1",
                "rank 0 has been waiting in a call for long. The threads here",
                " in prepares_data\n",
            ],
        ),
        ("skips_a_short_call", 60, ["all_reduce 'a'", "all_reduce 'b'", "as call 21"]),
        ("swaps_two_short_calls", 60, ["all_reduce 'a'", "all_reduce 'b'", "as call 3"]),
        ("skips_a_long_call", 60, ["MismatchError", "all_reduce 'a'", "all_reduce 'b'"]),
        ("leaves_early", 60, ["all_reduce 'a'", "rank 0", "has left"]),
        ("closes_early", 60, ["all_reduce 'a'", "rank 0", "has left"]),
        ("is_stuck_elsewhere", 2, ["rank 1", "called all_reduce 'b'", "barrier 'end'"]),
    ],
)
def test_a_fault_ends_the_job_and_is_named(fault, timeout_secs, texts):
    status, output, elapsed = run_job(2, HERE / "mpi_faults.py", fault, timeout_secs)
    assert status != 0
    assert elapsed < 30
    for text in texts:
        assert text in output


def test_an_exception_ends_the_job_also_where_mpi4py_does_not_run_the_script():
    """Plain `mpirun python script.py`: it ends when the rank that has raised does, and says why."""
    status, output, elapsed = run_job(2, HERE / "mpi_faults.py", "raises", 60, runner=())
    assert status != 0
    assert elapsed < 30
    assert "rank 1" in output
    assert "gives up: KeyError: 'no such column'" in output


def test_a_world_of_another_size_is_an_error():
    """A foreign mpirun gives silent worlds of one rank each."""
    code = "from paceline.collectives.mpi import mpi_communicator as m; m(expected_size=3)"
    status, output, _ = run_job(1, "-c", code)
    assert status != 0
    assert "asked for 3 ranks, but this process is in a world of 1" in output


def test_parts_that_are_closed_make_room_for_others():
    """MPI has about 2000 communicators, and a part takes five of them."""
    code = """
from paceline.collectives.mpi import mpi_communicator
whole = mpi_communicator()
for _ in range(500):
    with whole.split(0, whole.rank) as part:
        part.barrier("x")
print("still at work")
"""
    status, output, _ = run_job(2, "-c", code)
    assert status == 0, output
    assert output.count("still at work") == 2


def test_importing_the_module_does_not_import_mpi():
    code = "import sys, paceline.collectives.mpi; assert 'mpi4py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
