"""CL-18: examples/custom_loop.py and residual.py, run as a user runs them: what they learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LAUNCH = ("-m", "paceline", "launch", "--workers", "2")
EACH = pytest.mark.parametrize(
    ("example", "toy_size", "tolerance"),
    [
        ("custom_loop.py", ("--epochs", "2"), 0.02),
        # A rounding of float32 decides on which side of 0 a ReLU is, and the runs part there.
        ("residual.py", ("--steps", "20", "--depth", "4"), 0.2),
    ],
)


def accuracy_of(*arguments, cwd):
    """The accuracy in the last line that the example prints; it is printed by the chief alone."""
    pytest.importorskip("sklearn")
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    found = re.findall(r"test accuracy (\d\.\d+)", result.stdout)
    assert len(found) == len(result.stdout.splitlines())
    return float(found[-1])


@pytest.mark.parametrize("example", ["custom_loop.py", "residual.py"])
def test_an_example_reaches_the_accuracy_that_it_states(example, tmp_path):
    stated = re.search(r"an accuracy of (0\.\d+)", (EXAMPLES / example).read_text())[1]
    assert accuracy_of(EXAMPLES / example, cwd=tmp_path) >= float(stated)


@EACH
@pytest.mark.slow
def test_two_devices_and_two_workers_learn_as_one_device_does(
    example, toy_size, tolerance, tmp_path
):
    command = (EXAMPLES / example, *toy_size)
    folders = [tmp_path / name for name in ("one", "devices", "workers")]
    for folder in folders:
        folder.mkdir()
    one = accuracy_of(*command, cwd=folders[0])
    devices = accuracy_of(*command, "--devices", "CPU:0", "CPU:1", cwd=folders[1])
    workers = accuracy_of(*LAUNCH, *command, cwd=folders[2])
    assert 0.25 < one < 0.9
    assert devices == pytest.approx(one, abs=tolerance)
    assert workers == pytest.approx(one, abs=tolerance)
