"""The benchmark of parameter servers runs, and every variant in it brings back what was sent."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "parameter_server.py"


def test_every_link_is_measured_beside_a_yardstick():
    """The script itself checks what comes back."""
    wanted = ["shm", "tcp", "grpc", "bare shm", "bare tcp", "memcpy"]
    command = [sys.executable, SCRIPT, "--rounds", "1", "--sizes", "4096", "--only", *wanted]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    head, *figures = result.stdout.partition("\n\n")[2].splitlines()
    assert head.split() == " ".join(wanted).split()
    assert [line.split()[:3] for line in figures if "µs" in line] == [["4", "KiB", "µs"]]
    assert "shm/bare shm" in figures[-1]
