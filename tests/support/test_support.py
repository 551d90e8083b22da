"""ST-44: each front end under each strategy, started in each way, learns what one process does."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from paceline.cluster import local_cluster

from ..multi_worker.conftest import run_together, under_mpi
from . import program
from .cells import CELLS, LOCAL, NEEDS_SERVERS

PROGRAM = program.__file__

JOBS = [(1, 0, LOCAL), (2, 0, ["MultiWorkerMirrored"]), (2, 1, ["ParameterServer"])]
"""Numbers of workers and of parameter servers, and what is run by them."""


def launched(num_workers, num_servers, arguments):
    tasks = ["--workers", str(num_workers), "--ps", str(num_servers)]
    return [([sys.executable, "-m", "paceline", "launch", *tasks, PROGRAM, *arguments], {})]


def by_mpirun(num_workers, num_servers, arguments):
    command, environ = under_mpi(num_workers + num_servers, PROGRAM, *arguments)
    roles = {"PACELINE_ROLES": f"ps={num_servers}"} if num_servers else {}
    return [(command, environ | roles)]


def by_hand(num_workers, num_servers, arguments):
    return [
        ([sys.executable, PROGRAM, *arguments], {"TF_CONFIG": json.dumps(config)})
        for config in local_cluster(num_workers, num_ps=num_servers)
    ]


LAUNCHERS = {"launch": launched, "mpirun": by_mpirun, "TF_CONFIG": by_hand}


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """`results(cell)`: what the trainers of its job have ended with."""

    @cache
    def directory_of(launcher):
        directory = tmp_path_factory.mktemp(launcher)
        jobs = [LAUNCHERS[launcher](w, ps, [str(directory), *names]) for w, ps, names in JOBS]
        run_together([command for commands in jobs for command in commands]).require_success()
        return directory

    def find(cell):
        if cell.launcher == "alone":
            directory = tmp_path_factory.mktemp("alone")
            return [program.run(cell.strategy, cell.front_end, directory)]
        found = directory_of(cell.launcher).glob(f"{cell.front_end}-{cell.strategy}-worker *.json")
        return [json.loads(Path(path).read_text()) for path in found]

    return find


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_st_44_a_front_end_under_a_strategy_started_somehow(cell, results):
    found = results(cell)
    if cell.expected == NEEDS_SERVERS:
        assert "ParameterServerStrategy keeps its variables on parameter servers" in found[0]
        return
    assert len(found) == cell.num_workers
    for weights in found:
        np.testing.assert_allclose(weights, program.oracle(), rtol=1e-5)
