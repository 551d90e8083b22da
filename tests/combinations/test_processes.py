"""Scenarios whose workers and parameter servers are processes, which other numbers go on with."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from execution import EXACT, require_checkpoints, saved_in
from reference import Reference
from scenarios import Run, Scenario, Topology

PROGRAM = Path(__file__).parent / "process.py"
LIMIT_SECS = 90
STEPS = (2, 1), (1, 3), (3, 2)


def run(topology, **options):
    return Run(topology, tuple(step[: topology.workers] for step in STEPS), **options)


def servers(workers, partitioner):
    return Topology("servers", workers, partitioner=partitioner)


MODEL = Scenario(
    1,
    (),
    optimizer="adam",
    schedule="warm-up",
    embedding="lazy",
    dropout=True,
    second_optimizer=True,
)
RUNS = {
    "workers, then one, divided among servers, that stops early": (
        run(Topology("workers", 2), saves=True),
        run(servers(1, "thirds"), begins="resumed", ends="early stop"),
    ),
    "servers that stop early, then others, otherwise divided": (
        run(servers(2, "halves"), ends="early stop"),
        run(servers(1, "at most 48 bytes"), begins="resumed", saves=True),
    ),
}


def launch(scenario, index, model_dir):
    """Make a run of a scenario with a process for each of its tasks."""
    top = scenario.runs[index].topology
    num_servers = 2 if top.kind == "servers" else 0
    sizes = "--workers", str(top.workers), "--ps", str(num_servers)
    program = PROGRAM, repr(scenario), str(index), model_dir
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "launch", *sizes, *program],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_checkpoints_of_processes_are_those_of_one(tmp_path, runs):
    scenario = replace(MODEL, runs=runs)
    assert scenario.is_valid
    reference = Reference(scenario)
    for index, made in enumerate(runs):
        launch(scenario, index, tmp_path)
        require_checkpoints(made, saved_in(tmp_path), reference.train(index), EXACT)
