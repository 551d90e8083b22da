"""mpirun: where it is, which MPI it belongs to, its options here, and the ranks that it starts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from .machine import mpich_leftovers, num_cores, remove_leftovers
from .output import Tail
from .processes import (
    Pipe,
    Process,
    Processes,
    Show,
    die_with_parent,
    has_lost_peer,
    output_pipes,
    start,
)
from .spec import ClusterError, Task, shown

_INSTALL = "pip install 'paceline[mpich]' installs one"


@dataclass(frozen=True)
class Mpirun:
    """An mpirun: MPICH's stands for all that share it (Intel MPI); no version if it tells none."""

    path: str
    implementation: str
    version: tuple[int, ...]
    beside_python: bool

    def __str__(self) -> str:
        return f"{self.implementation} {'.'.join(map(str, self.version))} ({self.path})"


def find_mpirun(python: str = sys.executable, search_path: str | None = None) -> Mpirun:
    """The mpirun beside an interpreter, else the first of `search_path` or PATH.

    Raises:
        ClusterError: There is none, or it is of no known MPI.
    """
    beside = Path(python).parent / "mpirun"
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun", path=search_path)
    if path is None:
        raise ClusterError(f"there is no mpirun, neither beside {python} nor on PATH; {_INSTALL}")
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{path} --version does not work: {error}; {_INSTALL}") from None
    implementation, version = read_version(told.stdout + told.stderr)
    if not implementation:
        text = (told.stdout + told.stderr).strip()
        raise ClusterError(f"{path} is of no known MPI: it says {shown(text)}; {_INSTALL}")
    return Mpirun(path, implementation, version, path == str(beside))


def read_version(text: str) -> tuple[str, tuple[int, ...]]:
    """Implementation and version from what `mpirun --version` prints; ("", ()) if unknown."""
    if "Open MPI" in text or "OpenRTE" in text:
        implementation, numbers = "Open MPI", re.search(r"(\d+(?:\.\d+)+)", text)
    elif "HYDRA" in text or "MPICH" in text or "Intel(R) MPI" in text:
        implementation = "MPICH"
        numbers = re.search(r"Version[: ]*\s*(\d+(?:\.\d+)*)", text)
    else:
        return "", ()
    return implementation, tuple(map(int, numbers[1].split("."))) if numbers else ()


def mpirun_options(
    mpirun: Mpirun, num_ranks: int, cores: int | None = None, root: bool | None = None
) -> tuple[list[str], dict[str, str]]:
    """Options and environment variables with which mpirun starts `num_ranks` here.

    Open MPI refuses to run as root and to start more ranks than cores unless told, ties each rank
    to one core, and its ranks spin while they wait; the names of the options changed in 5.0. MPICH
    yields the core by itself, but its ranks listen on all addresses of the machine, unless UCX is
    told to do without TCP; within one machine they use shared memory anyway.
    """
    if mpirun.implementation != "Open MPI":
        return [], {"UCX_TLS": "^tcp"}
    cores = num_cores() if cores is None else cores
    root = os.geteuid() == 0 if root is None else root
    options = ["--bind-to", "none"]
    environ = {}
    if root:
        options.append("--allow-run-as-root")
    if num_ranks > cores:
        new = mpirun.version >= (5,)
        options += ["--map-by", ":OVERSUBSCRIBE"] if new else ["--oversubscribe"]
        environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return options, environ


def without_mpi_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer launcher says of this very process."""
    outer = (
        *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "HYDI_", "MPI_LOCAL", "JSM_NAMESPACE_", "PALS_"),
        *("TORCHELASTIC_", "SLURM_"),
    )
    return {name: value for name, value in environ.items() if not name.startswith(outer)}


@final
class MpirunProcesses(Processes):
    """Tasks as the ranks of one mpirun; `mpirun` is its command line, `program` what each runs."""

    def __init__(
        self,
        mpirun: Sequence[str],
        tasks: Sequence[Task],
        program: Sequence[str],
        environ: Mapping[str, str],
        show: Show,
    ) -> None:
        super().__init__()
        self._failures: list[Process] = []
        self._show = show
        self._own_output = Tail()
        self._asked_to_end = False
        self._is_ending = False
        self._left_before = mpich_leftovers()
        self._directory = tempfile.mkdtemp(prefix="paceline-launch-")
        # Open for reading before any rank opens them for writing, which else would wait in `open`.
        for rank, task in enumerate(tasks):
            self._listen_to(rank, task)
        how = ("exec", str(int(signal.SIGTERM)), str(os.getpid()))
        ranks = (*die_with_parent(), "rank", self._directory, *program)
        self._mpirun, out, err = start((*how, *mpirun, "-n", str(len(tasks)), *ranks), environ)
        self.pipes += [Pipe(out, self._own_output.add), Pipe(err, self._own_output.add)]

    def _listen_to(self, rank: int, task: Task) -> None:
        out, err, status = (self._named_pipe(f"{rank}.{kind}") for kind in ("out", "err", "status"))
        process = Process(task, leads_group=False)
        self.processes.append(process)
        self.pipes += output_pipes(process, out, err, self._show)
        self.pipes.append(Pipe(status, lambda lines: self._take_report(process, lines)))

    def _named_pipe(self, name: str) -> int:
        path = Path(self._directory, name)
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def _take_report(self, process: Process, lines: list[bytes]) -> None:
        for line in lines:
            kind, _, number = line.partition(b" ")
            if kind == b"pid":
                process.pid = int(number)
            else:
                process.status = int(number)
            if process.status:
                self._failures.append(process)
        if self._is_ending and not self._is_training():
            for other in self.processes:
                if other.task.type == "evaluator":
                    other.signal(signal.SIGTERM)
        if self._have_begun():  # all have opened their pipes
            shutil.rmtree(self._directory, ignore_errors=True)

    def _is_training(self) -> bool:
        trainers = (p for p in self.processes if p.task.type in ("chief", "worker"))
        return any(process.status is None for process in trainers)

    def _have_begun(self) -> bool:
        return all(process.pid is not None for process in self.processes)

    def poll(self) -> bool:
        return self._mpirun.poll() is not None

    def signal(self, number: int) -> None:
        """mpirun ends when its ranks have; it is asked only if some have not begun, or will not.

        An evaluator that is asked to end does so at once, with an exit code for which mpirun would
        kill the others before they have saved. So its turn comes when they have ended.
        """
        self._is_ending = number == signal.SIGTERM
        for process in self.processes:
            if process.task.type != "evaluator" or not (self._is_ending and self._is_training()):
                process.signal(number)
        if number == signal.SIGKILL or not self._have_begun():
            number = signal.SIGKILL if self._asked_to_end else signal.SIGTERM
            self._asked_to_end = True
            with suppress(ProcessLookupError):
                os.killpg(self._mpirun.pid, number)

    def first_failure(self) -> tuple[Process | None, int] | None:
        """MPICH ends a rank that aborts before it can report: its traceback tells on it then.

        Another rank, which left with an exit code because of that, may have reported already.
        """
        if not self._failures and not self._mpirun.poll():
            return None
        raised = [p for p in self.processes if p.status != 0 and p.tail.has_traceback()]
        first = min(raised, key=lambda p: (has_lost_peer(p), p.tail.raised_at), default=None)
        failed = min(self._failures, key=has_lost_peer, default=None)
        if failed is not None and (first is None or (failed.status or 0) < 0):
            first = failed  # a rank that was killed has no traceback
        return first, (first and first.status) or self._mpirun.poll() or 1

    def close(self) -> None:
        if self._mpirun.wait() and self.first_failure() == (None, self._mpirun.returncode):
            self._show("mpirun", self._own_output.traceback(), True)
        shutil.rmtree(self._directory, ignore_errors=True)
        remove_leftovers(self._left_before)
