"""`map` in processes: the same elements, errors with their traceback, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

# Not resolved: the mpiexec of the virtual environment, whose MPI mpi4py loads, and no other.
MPIEXEC = Path(sys.executable).parent / "mpiexec"
# As root, and with more ranks than cores.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

SCRIPT = """
import os, signal
import numpy as np
from paceline.inputs import Dataset

def twice(value):
    return {"x": np.full(3, value * 2), "pid": os.getpid()}

def refuse_three(value):
    if value == 3:
        raise KeyError("three")
    return value

def crash(value):
    os.kill(os.getpid(), signal.SIGKILL)

def attempt(function):
    iterator = iter(Dataset.range(6).map(function, 1, in_processes=True))
    try:
        print([int(e) for e in iterator])
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        num_places = sum("At element" in note for note in notes)
        print(type(error).__name__, error, "raise KeyError" in str(notes), num_places)
    iterator.close()

if __name__ == "__main__":
    dataset = Dataset.range(8).map(twice, 2, in_processes=True)
    elements = list(dataset)
    print([int(e["x"][2]) for e in elements])
    pids = {int(e["pid"]) for e in elements}
    print(os.getpid() not in pids, len(pids) in (1, 2))
    dataset = Dataset.range(8).map(twice, 1, in_processes=True)
    iterator = iter(dataset)
    first = [int(next(iterator)["x"][0]) for _ in range(3)]
    state = iterator.get_state()
    iterator.close()
    resumed = iter(dataset)
    resumed.set_state(state)
    print(first, [int(e["x"][0]) for e in resumed])
    attempt(refuse_three)
    attempt(crash)
    attempt(lambda value: value)
    unfinished = iter(dataset)
    next(unfinished)
    print("end", flush=True)
"""


def test_map_in_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == str(list(range(0, 16, 2)))
    assert lines[1] == "True True"
    assert lines[2] == f"[0, 2, 4] {list(range(6, 16, 2))}"
    assert lines[3] == "KeyError 'three' True 1"
    assert lines[4].startswith("RuntimeError A process of map ended with exit code -9 in the midst")
    assert lines[5].startswith("TypeError map_func must be a function that another process can")
    assert lines[5].endswith("False 0")
    assert lines[6] == "end"


ENDLESS_SCRIPT = """
from paceline.inputs import Dataset

def same(value):
    return value

if __name__ == "__main__":
    for element in Dataset.range(10**9).map(same, 2, in_processes=True).prefetch(2):
        print("x", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of process groups")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays_after_ctrl_c_or_a_kill(signal_number: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDLESS_SCRIPT)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal_number
    assert ("KeyboardInterrupt" in errors) == (signal_number == signal.SIGINT)
    _, left = psutil.wait_procs(children, timeout=60)
    assert not left


MPI_SCRIPT = """
import os
from mpi4py import MPI
from paceline.inputs import Dataset

forks = []
os.register_at_fork(before=lambda: forks.append(1))

def twice(value):
    return value * 2

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    shard = Dataset.range(10).shard(comm.size, comm.rank)
    own = [int(e) for e in shard.map(twice, 2, in_processes=True)]
    found = comm.allgather((own, len(forks)))
    if comm.rank == 0:
        print(found)
"""


@pytest.mark.skipif(not MPIEXEC.exists(), reason="needs an MPI of this environment")
def test_d_32_map_in_processes_neither_forks_a_rank_of_mpi_nor_joins_its_job(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(MPI_SCRIPT)
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", script],
        env={**os.environ, **OPEN_MPI},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[([0, 4, 8, 12, 16], 0), ([2, 6, 10, 14, 18], 0)]\n"
