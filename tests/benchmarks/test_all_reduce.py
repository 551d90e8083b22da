"""The benchmark of all-reduce runs, and every variant in it gives the right sums."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "all_reduce.py"


def test_every_verb_is_measured():
    command = [sys.executable, SCRIPT, "--verbs", "--rounds", "1", "--sizes", "4096"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    verbs = [line[:15].strip() for line in result.stdout.splitlines() if "µs" in line]
    assert sorted(verbs) == [
        "all_gather",
        "all_reduce",
        "barrier",
        "broadcast",
        "reduce_scatter",
        "send, receive",
    ]


def test_every_link_is_measured_beside_a_yardstick():
    """The script itself checks the sums."""
    wanted = ["shm", "tcp", "bare tcp", "grpc", "bare grpc", "memcpy"]
    command = [sys.executable, SCRIPT, "--rounds", "1", "--sizes", "4096", "--only", *wanted]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    head, *figures = result.stdout.partition("\n\n")[2].splitlines()
    assert head.split() == " ".join(wanted).split()
    assert [line.split()[:3] for line in figures if "µs" in line] == [["4", "KiB", "µs"]]
    assert "tcp/bare tcp" in figures[-1]
    assert "grpc/bare grpc" in figures[-1]
