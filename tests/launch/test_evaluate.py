"""`paceline evaluate`: the evaluator of a job as a program (D-02)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.__main__ import main
from paceline.cluster.evaluate import evaluator_environment
from paceline.cluster.launchers import resolve

TRAIN = Path(__file__).parents[1] / "faults" / "train.py"
LIMIT_SECS = 120

SCRIPT = """
import logging
import numpy as np
import paceline as pl

def model_fn(features, labels, mode):
    loss = np.mean(np.square(features @ pl.get_variable("w", (1, 1)) - labels))
    train_op = pl.nn.optimizers.SGD(0.1).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

x = np.ones((4, 1), np.float32)
estimator = pl.Estimator(model_fn)
result = pl.train_and_evaluate(
    estimator,
    pl.TrainSpec(lambda: pl.Dataset.from_tensor_slices((x, x)).batch(4)),
    pl.EvalSpec(lambda: pl.Dataset.from_tensor_slices((x, x)).batch(4), start_delay_secs=0),
)
print(estimator.config.task_type, "found step", result.metrics["global_step"])
"""


def start(*arguments, **variables):
    """`paceline evaluate` with these arguments, as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "paceline", "evaluate", *map(str, arguments)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_d_02_it_evaluates_beside_a_job_and_ends_with_it(train, tmp_path):
    """Of the job it knows nothing but the directory, which is an argument of the script."""
    evaluator = start(TRAIN, tmp_path / "model", "--steps", "30")
    trained = train("--steps", "30", num_workers=2)
    assert trained.code == 0, trained.err
    out, err = evaluator.communicate(timeout=LIMIT_SECS)
    assert evaluator.returncode == 0, err
    assert out.startswith("evaluator 0 ended at step 30, loss 0.")
    # The workers, who do not know of it, have found the same.
    of_worker = trained.of("worker 0")[0].split(", ")[1]
    assert out.split(", ")[1].strip() == of_worker


def test_d_02_it_says_where_a_script_that_does_not_saves(tmp_path):
    """It may also begin when the job has ended; a TF_CONFIG of somebody else does not matter."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone = json.dumps({"task": {"type": "worker", "index": 0}, "model_dir": str(tmp_path / "m")})
    training = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TF_CONFIG": alone, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
    )
    assert training.stdout == "worker found step 1\n", training.stderr
    stray = json.dumps({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker"}})
    # A mark of the end that was there before is believed a minute later only: say how it ends.
    script.write_text(SCRIPT.replace(".batch(4)),\n", ".batch(4), max_steps=1),\n"))
    evaluator = start("--model-dir", tmp_path / "m", script, TF_CONFIG=stray)
    out, err = evaluator.communicate(timeout=LIMIT_SECS)
    assert out == "evaluator found step 1\n", err


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})},
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
        {"TORCHELASTIC_RUN_ID": "r", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"},
        {"PACELINE_ALONE": "1"},
    ],
)
def test_whoever_has_started_it_it_is_an_evaluator(others):
    resolver = resolve(evaluator_environment({"HOME": "/h", **others}, "/m"))
    assert (resolver.task_type, resolver.task_id) == ("evaluator", 0)
    assert resolver.settings.model_dir == "/m"


def test_a_script_that_is_not_there_is_named(capsys):
    assert main(["evaluate", "nowhere.py"]) == 2
    assert "'nowhere.py', but there is no such file" in capsys.readouterr().err
