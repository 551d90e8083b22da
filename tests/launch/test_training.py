"""Whole jobs that train: who evaluates, also without TF_CONFIG, and how much they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.__main__ import main
from paceline.cluster.mpirun import mpirun_options

TRAIN = Path(__file__).parents[1] / "faults" / "train.py"


@pytest.fixture
def backend(request):
    """Skips where there is no MPI and one is asked for."""
    if request.param == "mpi":
        request.getfixturevalue("mpi")
    return request.param


both_backends = pytest.mark.parametrize("backend", ["grpc", "mpi"], indirect=True)


@both_backends
def test_beside_an_evaluator_the_others_evaluate_at_the_end_only(train, backend):
    """Ruling 7: all of them return the final metrics."""
    result = train("--steps", "40", num_workers=1, chief=True, evaluator=True, backend=backend)
    assert result.code == 0, result.err
    [chief], [worker], [evaluator] = (result.of(f"{t} 0") for t in ("chief", "worker", "evaluator"))
    end, how_often = chief.rsplit(", ", 1)
    assert re.fullmatch(r"chief 0 ended at step 40, loss \d\.\d+", end)
    assert how_often == "evaluated once"
    assert worker == chief.replace("chief", "worker")
    assert evaluator.startswith(end.replace("chief", "evaluator"))


@both_backends
def test_without_an_evaluator_the_workers_evaluate_together(train, backend):
    result = train("--steps", "20", backend=backend)
    assert result.code == 0, result.err
    lines = [result.of(f"worker {i}")[0].split(", ") for i in range(2)]
    assert lines[0][1:] == lines[1][1:]
    assert re.fullmatch(r"evaluated \d times", lines[0][-1])


def test_cl14_plain_mpirun_makes_the_last_rank_the_evaluator(mpi, tmp_path):
    """No TF_CONFIG and no launcher: PACELINE_ROLES is the switch."""
    flags, environ = mpirun_options(mpi, 3)
    program = [sys.executable, "-m", "mpi4py", TRAIN, tmp_path, "--steps", "40"]
    environ |= {"PACELINE_ROLES": "evaluator", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [mpi.path, *flags, "-n", "3", *program],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # One rank's line may begin where another one's has not ended.
    assert ran.stdout.count("evaluator 0 ended at step 40, loss") == 1
    workers = re.findall(r"(worker \d) ended at step 40, loss [\d.]+, evaluated once", ran.stdout)
    assert sorted(workers) == ["worker 0", "worker 1"]


def test_cl14_the_switch_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["launch", "--help"])
    assert "PACELINE_ROLES=evaluator" in capsys.readouterr().out


def test_d_06_600_steps_print_few_lines_and_no_warning(train):
    """TensorFlow prints 147 to 174 lines here."""
    result = train("--steps", "600", "--save-every", "0")
    assert result.code == 0, result.err
    for worker in ("worker 0", "worker 1"):
        lines = [line for line in result.out + result.err if line.startswith(f"[{worker}] ")]
        assert 0 < len(lines) <= 40, lines
        assert not [line for line in lines if "warn" in line.lower()]
