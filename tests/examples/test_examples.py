"""The examples and the README, run as a user runs them."""

import gzip
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments, cwd):
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": str(cwd)},
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("digits")
    return folder, run(ROOT / "examples" / "digits.py", cwd=folder)


def test_digits_reaches_its_accuracy(first_run):
    _, result = first_run
    accuracy = float(re.search(r"test accuracy (\d\.\d+)", result.stdout)[1])
    assert accuracy >= 0.97


def test_digits_evaluates_as_it_goes(first_run):
    _, result = first_run
    steps = re.findall(r"Saving dict for global step (\d+): accuracy", result.stderr)
    assert steps == ["150", "300", "450", "600"]


def test_digits_draws_eight_digits_and_writes_a_picture(first_run):
    folder, result = first_run
    drawn = re.search(r"on 360 digits\n(.*)\nThe same", result.stdout, re.DOTALL)[1]
    assert len(re.findall(r"\d", drawn)) >= 8
    assert max(map(len, drawn.splitlines())) <= 80
    assert (folder / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_ob_07_digits_prints_no_warning_and_few_lines(first_run):
    _, result = first_run
    assert "WARNING" not in result.stderr
    assert (
        len(result.stderr.splitlines()) <= 56
    )  # two of each of five saves, seven of each of four evaluations


def test_digits_runs_as_two_workers_and_an_evaluator(tmp_path):
    """As `make demo` does: the evaluator evaluates on the way, the chief shows what came of it."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    launch = ["-m", "paceline", "launch", "--workers", "2", "--evaluator"]
    result = run(*launch, ROOT / "examples" / "digits.py", "--replicas", "1", cwd=tmp_path)
    assert "[worker 0] max_steps was reached at step 600: test accuracy 0.9" in result.stdout
    evaluations = re.findall(r"\[(.*?)\] .* Saving dict for global step (\d+)", result.stderr)
    assert ("evaluator 0", "600") in evaluations
    assert {step for task, step in evaluations if task != "evaluator 0"} == {"600"}
    for worker in ("worker 0", "worker 1"):
        assert result.stderr.count(f"[{worker}] ") <= 40
    assert {line.split("]")[0] for line in result.stdout.splitlines()} == {"[worker 0"}
    assert "WARNING" not in result.stderr
    assert (tmp_path / "digits.png").exists()


def test_digits_goes_on_where_it_stopped(first_run):
    folder, _ = first_run
    result = run(ROOT / "examples" / "digits.py", "--steps", "620", cwd=folder)
    assert "step = 600" in result.stderr
    assert "max_steps was reached at step 620" in result.stdout


def test_digits_reads_mnists_files(tmp_path):
    """Two images a class, plain and gzipped, of MNIST's size."""
    pytest.importorskip("matplotlib")
    labels = np.tile(np.arange(10, dtype=np.uint8), 4)
    images = np.zeros((40, 28, 28), np.uint8)
    images[np.arange(40), labels * 2 + 2] = 255
    data = tmp_path / "data"
    data.mkdir()
    packed = struct.pack(">iiii", 0x803, 40, 28, 28) + images.tobytes()
    (data / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(packed))
    (data / "t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">ii", 0x801, 40) + labels.tobytes())
    )
    arguments = ["--data-dir", data, "--steps", "3", "--batch-size", "4", "--replicas", "1"]
    result = run(ROOT / "examples" / "digits.py", *arguments, cwd=tmp_path)
    assert "on 8 digits" in result.stdout


def test_the_readmes_script_learns_digits(tmp_path):
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    found = re.search(r"'accuracy': (0\.\d+)", run("script.py", cwd=tmp_path).stdout)
    assert float(found[1]) >= 0.97


def test_the_readme_begins_with_two_commands():
    first_screen = (ROOT / "README.md").read_text().split("```")[1].strip().splitlines()
    assert [line.split("#")[0].strip() for line in first_screen] == ["make demo", "make test"]


def test_k_means_finds_the_same_groups_with_one_process_and_with_two(tmp_path):
    pytest.importorskip("sklearn")
    example = ROOT / "examples" / "k_means.py"
    stated = re.search(r"from its centre is (\d+\.\d+)\.", example.read_text())[1]
    one = run(example, cwd=tmp_path).stdout
    two = run("-m", "paceline", "launch", "--workers", "2", example, cwd=tmp_path).stdout
    for text, parts in ((one, "1500"), (two, "750, 750")):
        assert f"26 rounds; digits of each process: {parts}\n" in text
        assert f"mean distance {stated}" in text


def test_the_premade_models_tell_wines_apart_alike_on_any_number_of_replicas(tmp_path):
    pytest.importorskip("sklearn")
    example = ROOT / "examples" / "wine.py"
    one, two = (run(example, "--replicas", n, cwd=tmp_path).stdout for n in (1, 2))
    found = re.findall(r"test accuracy .*", one)
    assert found == re.findall(r"test accuracy .*", two)
    accuracies = [float(line.split()[2].rstrip(",")) for line in found]
    linear, wide, deep, both, theirs = accuracies
    assert min(linear, deep, both) >= theirs - 0.02
    assert wide >= 0.8
