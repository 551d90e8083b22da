"""What becomes of a job when one of its workers dies, fails, stalls or never comes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import paceline as pl
from paceline.cluster import local_cluster

SCRIPT = Path(__file__).with_name("train.py")


def start(configs, indices, *arguments):
    return {
        i: subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, arguments)],
            env={**os.environ, "TF_CONFIG": json.dumps(configs[i]), "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in indices
    }


@pytest.fixture
def job(tmp_path):
    """`job(fault, fault_index, num_workers)`: what is left of a job with a fault."""
    started = []

    def run(fault, fault_index, num_workers=2):
        configs = local_cluster(num_workers)
        workers = start(configs, range(num_workers), tmp_path, fault, fault_index)
        started.extend(workers.values())
        culprit = workers.pop(fault_index)
        assert "AT THE FAULT" in culprit.stdout.readline()
        happened = time.monotonic()
        survivors = {i: (w.communicate(timeout=30)[1], w.returncode) for i, w in workers.items()}
        print(f"{fault}: the others ended {time.monotonic() - happened:.2f} s after it")
        return survivors

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("fault", ["kill", "exit", "raise", "stop"])
@pytest.mark.parametrize("fault_index", [0, 1], ids=["the chief", "a worker"])
def test_the_others_end_and_name_the_culprit(job, tmp_path, fault, fault_index):
    for text, code in job(fault, fault_index).values():
        assert code != 0
        assert f"worker {fault_index}" in text.splitlines()[-1]
    newest = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(tmp_path))
    assert newest.arrays()
    assert newest.step in (10, 20)


def test_all_of_several_survivors_name_the_same_culprit(job):
    for text, code in job("kill", 1, num_workers=3).values():
        assert code != 0
        assert "worker 1" in text.splitlines()[-1]


def test_a_restarted_job_goes_on_from_the_checkpoint(job, tmp_path):
    job("kill", 1)
    workers = start(local_cluster(2), range(2), tmp_path, "none", 0)
    for worker in workers.values():
        text = worker.communicate(timeout=30)[1]
        assert worker.returncode == 0, text
    assert "step = 0" not in text
    assert pl.checkpoint.load(pl.checkpoint.latest_checkpoint(tmp_path)).step == 40


def test_a_worker_that_never_comes_is_named(tmp_path):
    """D-01."""
    (worker,) = start(local_cluster(2), [0], tmp_path, "none", 0).values()
    text = worker.communicate(timeout=30)[1]
    assert worker.returncode not in (0, -signal.SIGKILL)
    assert "worker 1" in text.splitlines()[-1]
