"""Jobs of tiny scripts, launched within this process or by the command."""

import importlib.util
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.cluster import ClusterError
from paceline.cluster.launch import LaunchOptions, launch
from paceline.cluster.mpirun import find_mpirun

TRAIN = Path(__file__).parents[1] / "faults" / "train.py"


@dataclass
class Result:
    """What a job returned and printed, line by line."""

    code: int
    out: list[str]
    err: list[str]

    def of(self, name):
        """What a task wrote to stdout, without its name."""
        return [line.partition("] ")[2] for line in self.out if line.startswith(f"[{name}] ")]

    def notes(self):
        """What the launcher itself said."""
        return [line.partition("] ")[2] for line in self.err if line.startswith("[launch] ")]


@pytest.fixture
def script(tmp_path):
    """Writes a script: every task runs it."""

    def write(text, name="script.py"):
        path = tmp_path / name
        path.write_text(PREAMBLE + text)
        return str(path)

    return write


PREAMBLE = """
import json, os, signal, sys, time
if "TF_CONFIG" in os.environ:
    TASK = "{type} {index}".format(**json.loads(os.environ["TF_CONFIG"])["task"])
RANK = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")

def wait_for_ever():
    print("waiting", flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def run(script):
    """Launches a job of one script and waits for its end."""

    def run_script(text, *arguments, environ=None, **options):
        program = (script(text), *arguments)
        return run_job(LaunchOptions(program=program, **options), environ)

    return run_script


@pytest.fixture
def train(tmp_path):
    """Launches a job that trains a small model, and waits for its end."""

    def run_training(*arguments, **options):
        program = (str(TRAIN), str(tmp_path / "model"), *arguments)
        return run_job(LaunchOptions(program=program, **options))

    return run_training


def run_job(options, environ=None):
    out, err = io.BytesIO(), io.BytesIO()
    code = launch(options, dict(os.environ) if environ is None else environ, out, err)
    printed = [stream.getvalue().decode().splitlines() for stream in (out, err)]
    for line in [] if options.log_json else printed[0] + printed[1]:
        assert re.match(r"\[(launch|mpirun|(chief|worker|ps|evaluator) \d+)\] ", line), line
    return Result(code, *printed)


@pytest.fixture
def mpi():
    """Skips the test where pip has not installed an MPI."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    try:
        mpirun = find_mpirun()
    except ClusterError as error:
        pytest.skip(str(error))
    if not mpirun.beside_python:
        pytest.skip("no mpirun beside this Python")
    return mpirun
