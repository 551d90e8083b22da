"""CL-18: examples of `fit`, of loops of one's own, of models as Estimators, run as users do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LAUNCH = ("-m", "paceline", "launch", "--workers", "2")


def output_of(*arguments, cwd):
    """What the chief prints; nobody warns of anything."""
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
    return result.stdout


def stated_in(example, what):
    return float(
        re.search(rf"{what} (\d\.\d+|\d+ %)", (EXAMPLES / example).read_text())[1].rstrip(" %")
    )


def test_an_estimator_fit_and_a_loop_find_the_same_line(tmp_path):
    one = output_of(EXAMPLES / "linear_regression.py", cwd=tmp_path)
    found = {line.split()[0]: [*map(float, line.split()[1:])] for line in one.splitlines()}
    assert found["Estimator"] == found["fit"] == found["loop"]
    assert found["fit"] == pytest.approx(found["exactly"], abs=0.02)


@pytest.mark.parametrize("example", ["fit.py", "model_to_estimator.py"])
def test_an_example_reaches_the_accuracy_that_it_states(example, tmp_path):
    text = output_of(EXAMPLES / example, cwd=tmp_path)
    reached = float(re.search(r"test accuracy (\d\.\d+)", text)[1])
    assert reached >= stated_in(example, "an accuracy of")


def test_two_workers_fit_as_two_devices_do(tmp_path):
    """Up to the rounding that a worker's own order of adding up makes."""
    command = (EXAMPLES / "fit.py", "--epochs", "2")
    accuracies = []
    for before, after in ((), ("--devices", "CPU:0", "CPU:1")), (LAUNCH, ()):
        text = output_of(*before, *command, *after, cwd=tmp_path)
        (accuracy,) = re.findall(r"test accuracy (\d\.\d+)", text)
        accuracies.append(float(accuracy))
        assert text.count("Epoch 2/2") == 1
    assert accuracies[1] == pytest.approx(accuracies[0], abs=0.02)


def test_the_generators_points_are_where_the_example_says(tmp_path):
    last = output_of(EXAMPLES / "gan.py", cwd=tmp_path).splitlines()[-1]
    away, least = re.search(r"average (\d\.\d+) away .* quarter (\d+)% or more", last).groups()
    assert float(away) <= stated_in("gan.py", "on average within")
    assert float(least) >= stated_in("gan.py", "at least")


@pytest.mark.parametrize("launch", [(), (*LAUNCH, "--ps", "2")], ids=["alone", "on servers"])
def test_words_of_a_subject_find_each_other(launch, tmp_path):
    example = EXAMPLES / "word_embeddings.py"
    text = output_of(*launch, example, "--model-dir", "words", cwd=tmp_path)
    assert float(re.search(r"of the same subject: (\d\.\d+)", text)[1]) >= 0.9
