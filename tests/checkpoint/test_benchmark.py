"""benchmarks/checkpoint.py runs and prints every ratio that is wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoint.py"


def test_the_benchmark_prints_its_ratios(tmp_path: Path) -> None:
    size = ["--megabytes", "1", "--arrays", "10"]
    times = ["--rounds", "1", "--segments", "1", "--segment-secs", "0.05"]
    command = [sys.executable, str(SCRIPT), *size, *times, "--directory", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(wanted ") == 6
    assert list(tmp_path.iterdir()) == []
