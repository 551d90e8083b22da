"""What it costs to begin: seconds and megabytes of `import paceline`, seconds to the first step.

    python benchmarks/startup.py [--runs 7]

Each figure is the median over fresh processes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"
RESIDENT = """
import {module}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


def seconds_to_import(module: str) -> float:
    """Seconds from the start of the interpreter to its end, less those of an empty one."""
    return _seconds(f"import {module}") - _seconds("pass")


def _seconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    return time.perf_counter() - begin


def resident_mb(module: str) -> float:
    """Megabytes that are resident after the import."""
    code = RESIDENT.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd="/")
    return int(done.stdout) / 1024


def seconds_to_first_step() -> float:
    """Seconds from the start of the digits example to the log line of its first step."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(DIGITS), "--steps", "1", "--model-dir", directory + "/m"]
        begin = time.perf_counter()
        with subprocess.Popen(
            [*command, "--png", directory + "/digits.png"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "step = 0" in line:
                    seconds = time.perf_counter() - begin
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    runs = range(parser.parse_args().runs)
    for module in ("numpy", "paceline"):
        seconds = statistics.median(seconds_to_import(module) for _ in runs)
        print(f"import {module}: {seconds:.2f} s, {resident_mb(module):.0f} MB resident")
    first_step = statistics.median(seconds_to_first_step() for _ in runs)
    print(f"digits example, start to first step: {first_step:.2f} s")


if __name__ == "__main__":
    main()
