"""The benchmark of coming together runs, and prints a line for each number of tasks."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "start.py"


def test_each_size_is_measured():
    """The script itself checks the sums."""
    command = [sys.executable, SCRIPT, "--sizes", "2", "3", "--idle-secs", "0.1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    head, *lines = result.stdout.splitlines()
    assert head.split()[:2] == ["tasks", "wall"]
    assert [line.split()[0] for line in lines] == ["2", "3"]
