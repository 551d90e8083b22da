"""`paceline launch --backend mpi`: the ranks of one mpirun (CL-14, D-21, D-22)."""

import importlib.util
import os
import subprocess
import sys

import pytest

from paceline.cluster import ClusterError
from paceline.cluster.launch import LaunchOptions, launch
from paceline.cluster.mpirun import (
    Mpirun,
    find_mpirun,
    mpirun_options,
    read_version,
    without_mpi_variables,
)

from .processes import left_of

needs_mpi = pytest.mark.usefixtures("mpi")

ROLES = """
from paceline.cluster import MPIClusterResolver
from mpi4py import MPI
resolver = MPIClusterResolver()
print(resolver.task, "is rank", MPI.COMM_WORLD.rank, "of", MPI.COMM_WORLD.size, sys.argv[1:])
"""


@needs_mpi
def test_cl14_ranks_get_their_roles_without_tf_config(run):
    environ = os.environ | {"TF_CONFIG": "not even JSON", "PACELINE_ROLES": "ps=9"}
    result = run(ROLES, "x", num_workers=2, evaluator=True, backend="mpi", environ=environ)
    assert result.code == 0, result.err
    assert sorted(result.out) == [
        "[evaluator 0] evaluator 0 is rank 2 of 3 ['x']",
        "[worker 0] worker 0 is rank 0 of 3 ['x']",
        "[worker 1] worker 1 is rank 1 of 3 ['x']",
    ]


@needs_mpi
@pytest.mark.parametrize(
    ("when", "how", "code", "told"),
    [
        ("before MPI_Init", "raise ValueError('boom')", 1, "exit code 1"),
        ("after MPI_Init", "raise ValueError('boom')", 1, "exit code 1"),
        ("after MPI_Init", "os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
        ("after MPI_Init", "os._exit(5)", 5, "exit code 5"),
    ],
)
def test_d_21_a_rank_that_fails_ends_the_job_with_its_traceback_last(run, when, how, code, told):
    fail = f"if RANK == '1':\n    {how}\n"
    init = "from mpi4py import MPI\n"
    text = fail + init if when.startswith("before") else init + fail
    result = run(text + "MPI.COMM_WORLD.Barrier()\n", num_workers=2, backend="mpi")
    assert result.code == code
    assert result.notes()[-1] == f"worker 1 failed ({told})"
    if how.startswith("raise"):
        assert result.err[-1] == "[worker 1] ValueError: boom"


@needs_mpi
def test_d_21_no_rank_is_left_when_the_launcher_is_killed(script):
    path = script("print(os.getpid(), flush=True)\nwait_for_ever()")
    command = [sys.executable, "-m", "paceline", "launch", "--backend", "mpi", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        words = [launcher.stdout.readline().split()[-1] for _ in range(4)]
        launcher.kill()
    pids = [int(word) for word in words if word.isdecimal()]
    assert len(pids) == 2
    assert not left_of(pids)


@needs_mpi
def test_nothing_stays_open(run):
    before = set(os.listdir("/proc/self/fd"))
    run("sys.exit(1)", num_workers=2, backend="mpi")
    assert set(os.listdir("/proc/self/fd")) == before


@needs_mpi
def test_ctrl_c_ends_all_ranks(run):
    text = f"if RANK == '1':\n    os.kill({os.getpid()}, signal.SIGINT)\nwait_for_ever()"
    result = run(text, num_workers=2, backend="mpi")
    assert result.code == 130


def test_without_mpi4py_the_launcher_says_how_to_install_it(script, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"needs mpi4py.*paceline\[mpich\]"):
        launch(LaunchOptions(program=(script(""),), backend="mpi"))


OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/"
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN_MPI_4, ("Open MPI", (4, 1, 4))),
        (OPEN_MPI_5, ("Open MPI", (5, 0, 11))),
        (HYDRA, ("MPICH", (5, 0, 2))),
        (INTEL, ("MPICH", (2021, 11))),
        ("mpirun: command line tool of something else", ("", ())),
    ],
)
def test_d_22_the_mpi_of_an_mpirun_is_recognised(text, expected):
    assert read_version(text) == expected


@pytest.mark.parametrize(
    ("version", "num_ranks", "root", "options", "yields"),
    [
        ((5, 0, 11), 2, False, "--bind-to none", False),
        ((5, 0, 11), 2, True, "--bind-to none --allow-run-as-root", False),
        ((5, 0, 11), 3, False, "--bind-to none --map-by :OVERSUBSCRIBE", True),
        ((4, 1, 4), 3, True, "--bind-to none --allow-run-as-root --oversubscribe", True),
    ],
)
def test_d_22_open_mpi_gets_the_options_of_its_version(version, num_ranks, root, options, yields):
    mpirun = Mpirun("/bin/mpirun", "Open MPI", version, True)
    found, environ = mpirun_options(mpirun, num_ranks, cores=2, root=root)
    assert " ".join(found) == options
    assert environ == ({"OMPI_MCA_mpi_yield_when_idle": "1"} if yields else {})


def test_d_22_mpich_is_kept_off_the_network():
    mpirun = Mpirun("/bin/mpirun", "MPICH", (5,), True)
    assert mpirun_options(mpirun, 9, 2, True) == ([], {"UCX_TLS": "^tcp"})


@needs_mpi
def test_ranks_on_one_machine_open_no_port(run, mpi):
    """They inherit the one that their mpirun listens on."""
    if mpi.implementation != "MPICH":
        pytest.skip("Open MPI has options of its own")
    text = """
from mpi4py import MPI
import psutil
MPI.COMM_WORLD.Barrier()
ports = [c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"]
print(*ports)
MPI.COMM_WORLD.Barrier()
"""
    environ = {name: value for name, value in os.environ.items() if name != "UCX_TLS"}
    result = run(text, num_workers=2, backend="mpi", environ=environ)
    assert result.code == 0, result.err
    assert result.of("worker 0") == result.of("worker 1")
    assert len(result.of("worker 0")[0].split()) == 1


@needs_mpi
def test_a_choice_of_the_user_for_mpi_stays(run):
    environ = os.environ | {"UCX_TLS": "self,sm,tcp"}
    result = run("print(os.environ['UCX_TLS'])", backend="mpi", environ=environ)
    assert result.of("worker 1") == ["self,sm,tcp"]


def test_what_an_outer_launcher_says_is_not_passed_on():
    outer = {"PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "SLURM_PROCID": "0", "PMIX_RANK": "1"}
    kept = {"OMPI_MCA_btl": "self", "PATH": "/bin"}
    assert without_mpi_variables(outer | kept) == kept


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_d_22_the_mpirun_beside_the_interpreter_is_preferred(tmp_path):
    for name in ("venv", "system"):
        (tmp_path / name).mkdir()
        program(tmp_path / name / "mpirun", f"echo 'mpirun (Open MPI) 5.0.{len(name)}'")
    system = str(tmp_path / "system")

    found = find_mpirun(str(tmp_path / "venv" / "python"), search_path=system)
    assert (found.version, found.beside_python) == ((5, 0, 4), True)

    found = find_mpirun(str(tmp_path / "elsewhere" / "python"), search_path=system)
    assert (found.version, found.beside_python) == ((5, 0, 6), False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no mpirun"),
        ("echo something else", "no known MPI: it says 'something else'"),
        ("exit 1", "no known MPI"),
    ],
)
def test_d_22_without_a_usable_mpirun_the_error_says_how_to_install_one(tmp_path, text, told):
    if text:
        program(tmp_path / "mpirun", text)
    with pytest.raises(ClusterError, match=r"pip install 'paceline\[mpich\]'") as caught:
        find_mpirun(str(tmp_path / "python"), search_path="")
    assert told in str(caught.value)
