"""Variants of a benchmark, each in a process of its own, measured in turns.

A process of its own has its own interpreter (PyTorch and JAX come from another environment, an
older paceline from a third), its own threads and its own peak of memory. In turns, because a noisy
neighbour then troubles all: one variant works while the others wait for their line, and what is
compared are times of the same round.

The script that is benchmarked serves as the child too: a child reads numbers of steps from its
standard input, a line each, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from workloads import Loop, measure

# One thread each, and a malloc that keeps freed arrays: the Estimator sees to that by itself
# (`cluster.tune_malloc`), and no other loop shall be slower for the lack of it.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
}


@dataclass
class Times:
    """What one variant took, a list of the steps' seconds for each round.

    Attributes:
        rounds: Wall-clock seconds of each step.
        cpu: Seconds of processor time a step of each round, all threads.
        peak_mib: The most memory that the process has had.
    """

    rounds: list[list[float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_mib: float = 0.0

    @property
    def medians(self) -> np.ndarray:
        """Of each round."""
        return np.median(self.rounds, axis=1)

    @property
    def median_ms(self) -> float:
        return 1e3 * float(np.median(self.rounds))

    @property
    def min_ms(self) -> float:
        return 1e3 * float(np.min(self.rounds))

    @property
    def cpu_ms(self) -> float:
        return 1e3 * float(np.median(self.cpu))

    def ratio_to(self, other: Times) -> float:
        """The median over the rounds of how many times as long a step took."""
        return float(np.median(self.medians / other.medians))

    def cpu_ratio_to(self, other: Times) -> float:
        """The same of processor time, which neighbours spoil less."""
        return float(np.median(np.divide(self.cpu, other.cpu)))


class Variant:
    """A process that makes steps when it is told to.

    Args:
        command: Interpreter, script and arguments that make the process call `serve`.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self.times = Times()

    def __enter__(self) -> Variant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error:
            self._process.kill()
        self._process.communicate()

    def is_there(self) -> bool:
        """Wait for the process; whether it has what it needs (its library is installed)."""
        return bool(self._answer()["is_there"])

    def make_steps(self, num_steps: int, *, is_counted: bool) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{num_steps}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.times.peak_mib = answer["peak_mib"]
        if is_counted:
            self.times.rounds.append(answer["seconds"])
            self.times.cpu.append(answer["cpu_seconds"])

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended with status {self._process.wait()}")
        return json.loads(line)


def take_turns(
    commands: Mapping[str, Sequence[str | Path]], rounds: int, num_steps: int
) -> dict[str, Times]:
    """Rounds of `num_steps` steps, in turn; the variants that are not there are left out."""
    with ExitStack() as stack:
        started = {name: stack.enter_context(Variant(line)) for name, line in commands.items()}
        variants = {name: variant for name, variant in started.items() if variant.is_there()}
        for round_index in range(rounds + 1):
            for variant in variants.values():
                variant.make_steps(num_steps, is_counted=round_index > 0)  # the first one warms up
    return {name: variant.times for name, variant in variants.items()}


def serve(make_loop: Callable[[], Loop], core: int | None = None) -> None:
    """Be one variant: make its loop, then steps as standard input says.

    Args:
        make_loop: May raise ImportError: then the variant is not there.
        core: The only one on which this process may run; None: any.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints spoils no answer

    def answer(**values: object) -> None:
        print(json.dumps(values), file=answers, flush=True)

    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        loop = make_loop()
    except ImportError as error:
        print(f"left out: {error}", file=sys.stderr)
        answer(is_there=False)
        return
    answer(is_there=True)
    for line in sys.stdin:
        seconds, cpu_seconds = measure(loop, int(line))
        answer(seconds=seconds, cpu_seconds=cpu_seconds, peak_mib=peak_mib())


def peak_mib() -> float:
    """The most memory that this process has had.

    From /proc, because `ru_maxrss` begins with what the parent had when it started this process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")
