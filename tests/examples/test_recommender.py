"""examples/recommender.py, run as a user runs it: what it learns, and what it sends."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommender.py"
SMALL = ("--rows", 20_000, "--batch-size", 256)
LAUNCH = ("-m", "paceline", "launch", "--workers", "2")


def run(*arguments, cwd):
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return result


def assert_near_the_optimum(text):
    trained, best = map(float, re.search(r"AUC (0\.\d+), at best (0\.\d+)", text).groups())
    assert 0.75 < best < 0.82
    assert best - 0.03 < trained < best + 0.01


def bytes_per_step(text):
    return 1e3 * float(re.search(r"(\d+\.\d) kB on the wire", text)[1])


@pytest.fixture(scope="module")
def on_two_servers(tmp_path_factory):
    """Two workers and two parameter servers, with tables of 1.4 MB."""
    folder = tmp_path_factory.mktemp("small")
    return folder, run(*LAUNCH, "--ps", "2", EXAMPLE, *SMALL, "--steps", 800, cwd=folder)


def test_one_process_learns_what_can_be_learned(tmp_path):
    result = run(EXAMPLE, *SMALL, "--steps", 600, cwd=tmp_path)
    assert_near_the_optimum(result.stdout)
    assert "on the wire" not in result.stdout


@pytest.mark.slow
def test_two_workers_without_servers_run_the_same_script(tmp_path):
    result = run(*LAUNCH, EXAMPLE, *SMALL, "--steps", 200, cwd=tmp_path)
    assert_near_the_optimum(result.stdout)


def test_two_workers_and_two_servers_learn_what_can_be_learned(on_two_servers):
    """ST-41."""
    _, result = on_two_servers
    assert_near_the_optimum(result.stdout)
    assert {line.split("]")[0] for line in result.stdout.splitlines()} == {"[worker 0"}
    assert "WARNING" not in result.stderr


def test_bytes_on_the_wire_follow_the_batch_and_not_the_table(on_two_servers, tmp_path):
    _, small = on_two_servers
    options = ("--rows", 200_000, "--steps", 60, "--batch-size", 256)
    large = run(*LAUNCH, "--ps", "2", EXAMPLE, *options, cwd=tmp_path)
    assert "the tables have 1.4 MB" in small.stdout
    assert "the tables have 13.6 MB" in large.stdout
    few, many = bytes_per_step(small.stdout), bytes_per_step(large.stdout)
    assert few < many < 1.2 * few


def test_one_process_goes_on_where_two_servers_stopped(on_two_servers):
    folder, _ = on_two_servers
    again = run(EXAMPLE, *SMALL, "--steps", 820, cwd=folder)
    step = int(re.search(r"loss = .*, step = (\d+)", again.stderr)[1])
    assert 800 <= step < 820
    assert_near_the_optimum(again.stdout)
