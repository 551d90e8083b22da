"""The benchmark of pushes and pulls runs, and what travels is in proportion to the rows touched."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "push_pull.py"


def test_dense_and_sparse_steps_are_measured_beside_the_same_without_a_server():
    options = ["--rounds", "1", "--sizes", "4096", "--rows", "1000", "10000", "--links", "shm"]
    result = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stderr
    head, *lines = result.stdout.partition("\n\n")[2].splitlines()
    assert head.split() == ["shm", "here"]
    units = [
        *("variables", "cpu", "GB/s"),
        *("KiB", "cpu", "GB/s"),
        *("rows", "cpu", "krow/s", "B/row"),
        *("rows", "cpu", "krow/s", "B/row"),
    ]
    assert [line.split()[1 if line.split()[0].isdigit() else 0] for line in lines] == units
    bytes_per_row = [float(line.split()[1]) for line in lines if "B/row" in line]
    assert all(2 * (16 * 4 + 8) * 0.98 < each < 150 for each in bytes_per_row)
