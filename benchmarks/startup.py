"""What it costs to begin: seconds and megabytes of `import paceline`, seconds to the first step.

    python benchmarks/startup.py [--runs 7]

Each figure is the median over fresh processes, which take turns. A ratio is to `import numpy`.
`import paceline` loads nothing else; a package, and what it needs, is loaded with the first use of
one of its names.
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
{statement}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


IMPORTS = (
    "import numpy",
    "import paceline",
    "from paceline import Dataset",
    "from paceline import MirroredStrategy",
    "from paceline import Estimator",
    "from paceline import *",
)


def seconds_to_import(runs: int) -> dict[str, float]:
    """Statement → seconds from the start of the interpreter to its end, less an empty one's."""
    taken: dict[str, list[float]] = {code: [] for code in ("pass", *IMPORTS)}
    for _ in range(runs):
        for code, seconds in taken.items():
            seconds.append(_seconds(code))
    medians = {code: statistics.median(seconds) for code, seconds in taken.items()}
    return {code: medians[code] - medians["pass"] for code in IMPORTS}


def _seconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    return time.perf_counter() - begin


def resident_mb(statement: str) -> float:
    """Megabytes that are resident after the import."""
    code = RESIDENT.format(statement=statement)
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
    runs = parser.parse_args().runs
    imports = seconds_to_import(runs)
    for statement, seconds in imports.items():
        ratio = seconds / imports["import numpy"]
        print(f"{statement}: {seconds:.2f} s, {ratio:.1f} ×, {resident_mb(statement):.0f} MB")
    first_step = statistics.median(seconds_to_first_step() for _ in range(runs))
    print(f"digits example, start to first step: {first_step:.2f} s")


if __name__ == "__main__":
    main()
