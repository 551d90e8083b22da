"""`paceline launch`: all tasks of a job on this machine, watched over as one."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from .addresses import release_port
from .exit_codes import LOST_PEER, TERMINATED
from .machine import counted, explain_signal, num_cores
from .mpirun import MpirunProcesses, find_mpirun, mpirun_options, without_mpi_variables
from .output import CommonLines, Prefixer, console, drop_unwritten, wants_colour
from .placing import ALONE_VARIABLE
from .processes import Command, LocalProcesses, Processes
from .ranks import ROLES_VARIABLE
from .spec import TASK_TYPES, ClusterError, Task, split_address
from .supervise import Outcome, Signals, supervise
from .tf_config import local_cluster
from .token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, token_file

PROGRESS_VARIABLE = "PACELINE_PROGRESS"
"""Tells tasks to tell their progress in lines; see `observe.progress`."""

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_LONGEST_DELAY_SECS = 60.0

_DESCRIPTION = """
Start all tasks of a job on this machine. Each line of output begins with its task; a line of the
log that several workers write alike is shown once, and one bar for all of them. When a task
fails the others are ended, its traceback is printed last, and its exit code (128 + n after signal
n) is returned. It is not that of a task which has only lost another one (138), unless no other has
failed. Ctrl-C ends all.
"""
_EPILOGUE = """
Each task gets OPENBLAS_NUM_THREADS and OMP_NUM_THREADS so that all of them share the cores, unless
they are set. With --backend grpc the cluster comes in TF_CONFIG; with --backend mpi the tasks are
the ranks of one mpirun: chief, workers, ps, evaluator. The same by hand is 'mpirun -n 3 python -m
mpi4py script.py'; all ranks are workers then, and with PACELINE_ROLES=evaluator in the environment
the last one is the evaluator (PACELINE_ROLES=chief,ps=2,evaluator names all roles).
"""


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """What to launch: `program` begins with a script, or with a module's name if it `is_module`."""

    program: tuple[str, ...]
    is_module: bool = False
    num_workers: int = 2
    chief: bool = False
    num_ps: int = 0
    evaluator: bool = False
    backend: str = "grpc"
    max_restarts: int = 0
    grace_secs: float = 10.0
    all_lines: bool = False
    log_json: bool = False


_OPTIONS = {field.name for field in fields(LaunchOptions)}


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EPILOGUE
    add = parser.add_argument
    number: dict[str, Any] = {"type": _count, "metavar": "N"}
    add("--workers", **number, dest="num_workers", default=2, help="workers (2)")
    add("--chief", action="store_true", help="a chief beside the workers (else worker 0 is it)")
    add("--ps", **number, dest="num_ps", default=0, help="parameter servers (0)")
    add("--evaluator", action="store_true", help="an evaluator beside the training")
    add("--backend", choices=("grpc", "mpi"), default="grpc", help="how tasks find each other")
    restarts = (
        "restart a failed job (0), at once, and after 1, 2, 4, … 60 s where it fails again within "
        "60 s; one that SIGTERM has ended is not restarted"
    )
    add("--max-restarts", **number, default=0, help=restarts)
    add("--grace-secs", type=_secs, default=10.0, metavar="S", help="SIGTERM to SIGKILL (10)")
    every = "show what several workers log alike for each of them"
    add("--all-lines", action="store_true", help=every)
    as_json = "print each line as an object of JSON, with the task that wrote it"
    add("--log-json", action="store_true", help=as_json)
    add("-m", dest="is_module", action="store_true", help="the script is a module, as python -m")
    add("script", help="what each task runs")
    rest = add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    rest.required = False  # argparse would ask for them, too, where the script is missing


class TaskProgress(Protocol):
    """Draws the progress that tasks tell in lines (`observe.RemoteProgress`)."""

    def take(self, line: bytes, is_shown: bool = True) -> bool:
        """Whether a line tells of progress; if it `is_shown`, draw it."""

    def close(self) -> None:
        """Take away what was drawn."""


def run_launch(
    arguments: argparse.Namespace, draw_progress: Callable[[], TaskProgress] | None = None
) -> int:
    """Carry out `paceline launch`; its exit code. `draw_progress` makes the bar of a terminal."""
    given = {name: value for name, value in vars(arguments).items() if name in _OPTIONS}
    options = LaunchOptions(program=(arguments.script, *arguments.arguments), **given)
    with ExitStack() as at_end:
        at_end.callback(drop_unwritten)
        if draw_progress is None or not sys.stderr.isatty():
            return launch(options)
        progress = at_end.enter_context(closing(draw_progress()))
        return launch(options, os.environ, console("stdout"), console("stderr"), progress)


def launch(
    options: LaunchOptions,
    environ: Mapping[str, str] = os.environ,
    out: BinaryIO | None = None,
    err: BinaryIO | None = None,
    progress: TaskProgress | None = None,
) -> int:
    """Run a job to its end, restarting it as often as allowed. Call it from the main thread.

    Args:
        options: What to launch.
        environ: What the tasks' environment is made of.
        out, err: Where the tasks' stdout and stderr go; by default to those of this process.
        progress: Draws the progress of the first task, for all.

    Returns:
        0, or the exit code of the task whose failure ended the job (128 + n after signal n).
    """
    if not options.is_module and not Path(options.program[0]).is_file():
        raise ClusterError(
            f"script is {options.program[0]!r}, but there is no such file in {Path.cwd()}; "
            f"name a Python file, or a module after -m"
        )
    with token_file(environ) as path, Signals() as signals:
        mine = {**environ, TOKEN_FILE_VARIABLE: path}
        if progress is not None:
            mine = {**mine, PROGRESS_VARIABLE: "lines"}
        launcher = _Launcher(
            options, mine, out or sys.stdout.buffer, err or sys.stderr.buffer, progress
        )
        num_short_runs = 0
        for attempt in range(options.max_restarts + 1):
            began = time.monotonic()
            outcome = launcher.run(attempt, signals)
            if outcome.exit_code in (0, TERMINATED) or outcome.interrupted:
                break
            is_short = time.monotonic() - began < _LONGEST_DELAY_SECS
            num_short_runs = num_short_runs + 1 if is_short else 1
            delay_secs = restart_delay_secs(num_short_runs)
            launcher.tell_failure(outcome, attempt, delay_secs)
            if attempt < options.max_restarts and (numbers := signals.wait(delay_secs)):
                return 128 + numbers[0]
    return outcome.exit_code


def restart_delay_secs(num_short_runs: int) -> float:
    """The delay before a restart, after so many runs in a row that failed soon.

    What fails at once will fail again: started over and over it would only burn the machine, and
    fill the log.
    """
    return (
        0.0 if num_short_runs < 2 else min(2.0 ** min(num_short_runs - 2, 99), _LONGEST_DELAY_SECS)
    )


class _Launcher:
    """One `paceline launch`, over all of its restarts."""

    def __init__(
        self,
        options: LaunchOptions,
        environ: Mapping[str, str],
        out: BinaryIO,
        err: BinaryIO,
        progress: TaskProgress | None,
    ) -> None:
        self._options = options
        self._tasks = tasks_of(options)
        self._progress = progress
        # Workers are compared with workers: what an evaluator finds, say, is news of its own.
        self._common: defaultdict[str, CommonLines] = defaultdict(CommonLines)
        names = [str(task) for task in self._tasks]
        colours = (not options.log_json and wants_colour(stream, environ) for stream in (out, err))
        streams = zip((out, err), colours, strict=True)
        as_json = options.log_json
        self._out, self._err = [Prefixer(s, names, colour, as_json) for s, colour in streams]
        self._environ = {**shared_environ(environ, len(self._tasks))}
        if as_json:
            self._environ["PACELINE_LOG"] = "json"
        self._mpirun: list[str] = []
        how = "gRPC"
        if options.backend == "mpi":
            how = self._prepare_mpi()
        self._say_what_starts(how, environ)

    def _note(self, text: str) -> None:
        self._err.write("launch", [text.encode(errors="backslashreplace")])

    def _show(self, name: str, lines: list[bytes], is_error: bool) -> None:
        if is_error and self._progress is not None:
            is_first = name == str(self._tasks[0])
            lines = [line for line in lines if not self._progress.take(line, is_first)]
        if not self._options.all_lines:
            lines = self._common[name.partition(" ")[0]].new_in(name, lines)
        if lines:
            (self._err if is_error else self._out).write(name, lines)

    def _say_what_starts(self, how: str, environ: Mapping[str, str]) -> None:
        ours = [name for name in _THREADS if name not in environ]
        threads = ""
        if ours:
            setting = " ".join(f"{name}={self._environ[name]}" for name in ours)
            cores, count = num_cores(), len(self._tasks)
            share = f"{counted(cores, 'core')} for {counted(count, 'task')}"
            shares = f"({share}; set them to change this)"
            threads = f", each with {setting} {shares}"
        self._note(f"starting {', '.join(map(str, self._tasks))} over {how}{threads}")
        if environ.get("TF_CONFIG"):
            self._note("TF_CONFIG is set here; the tasks do not see it, they get their own cluster")

    def _prepare_mpi(self) -> str:
        """Find the mpirun and its options, and tell the ranks their roles."""
        if importlib.util.find_spec("mpi4py") is None:
            raise ClusterError(
                f"--backend mpi needs mpi4py, which {sys.executable} does not have; "
                f"pip install 'paceline[mpich]' installs it with an MPI"
            )
        mpirun = find_mpirun(search_path=self._environ.get("PATH"))
        if not mpirun.beside_python:
            self._note(
                f"warning: no mpirun beside {sys.executable}, using {mpirun.path}; if it is of "
                f"another MPI than mpi4py's, each rank will be alone"
            )
        flags, extra = mpirun_options(mpirun, len(self._tasks))
        self._mpirun = [mpirun.path, *flags]
        counts = Counter(task.type for task in self._tasks if task.type != "worker")
        self._environ = without_mpi_variables(self._environ)
        self._environ = {**extra, **self._environ}  # what the user has set stays
        if counts:
            roles = ",".join(f"{kind}={number}" for kind, number in counts.items())
            self._environ[ROLES_VARIABLE] = roles
        return f"MPI, {mpirun}"

    def run(self, attempt: int, signals: Signals) -> Outcome:
        restarts = {
            "PACELINE_JOB_ID": uuid.uuid4().hex,
            "PACELINE_RESTART_COUNT": str(attempt),
            "PACELINE_MAX_RESTARTS": str(self._options.max_restarts),
        }
        with ExitStack() as held:
            job = self._start({**self._environ, **restarts}, held)
            return supervise(job, signals, self._note, self._options.grace_secs)

    def _start(self, environ: Mapping[str, str], held: ExitStack) -> Processes:
        """Start the tasks; their ports are held until `held` ends."""
        options = self._options
        program = ("-m", *options.program) if options.is_module else options.program
        if self._mpirun:
            python = (sys.executable, "-m", "mpi4py", *program)
            return MpirunProcesses(self._mpirun, self._tasks, python, environ, self._show)
        configs = local_cluster(
            options.num_workers,
            chief=options.chief,
            num_ps=options.num_ps,
            evaluator=options.evaluator,
        )
        for address in chain.from_iterable(configs[0]["cluster"].values()):
            held.callback(release_port, *split_address(address))
        commands = [
            Command(task, (sys.executable, *program), {**environ, "TF_CONFIG": json.dumps(config)})
            for task, config in zip(self._tasks, configs, strict=True)
        ]
        return LocalProcesses(commands, self._show)

    def tell_failure(self, outcome: Outcome, attempt: int, delay_secs: float) -> None:
        """Say who failed; after the last attempt, with its traceback as the last thing printed."""
        who = outcome.failed or "the job"
        code = outcome.exit_code
        how = f"exit code {code}"
        if outcome.status == LOST_PEER:
            how += ": it has lost another task"
        elif code > 128:
            how = f"signal {code - 128}{explain_signal(code - 128)}"
        if attempt < self._options.max_restarts:
            left = f"restart {attempt + 1} of {self._options.max_restarts}"
            when = f" in {delay_secs:g} s" if delay_secs else ""
            self._note(f"{who} failed ({how}); {left} of the whole job{when}")
            return
        self._note(f"{who} failed ({how})")
        if outcome.traceback and outcome.failed:
            self._show(str(outcome.failed), outcome.traceback, True)


def tasks_of(options: LaunchOptions) -> tuple[Task, ...]:
    """All tasks of a job: chief, workers, ps, evaluator. Under MPI this is rank order."""
    counts = {
        "chief": int(options.chief),
        "worker": options.num_workers,
        "ps": options.num_ps,
        "evaluator": int(options.evaluator),
    }
    if not options.chief and not options.num_workers:
        raise ClusterError("--workers is 0 and there is no --chief: ask for somebody to train")
    return tuple(Task(kind, index) for kind in TASK_TYPES for index in range(counts[kind]))


def shared_environ(environ: Mapping[str, str], num_tasks: int) -> dict[str, str]:
    """The environment that all tasks have: their share of the cores, output without delay, and the
    file with their secret, but not the secret."""
    threads = str(max(1, num_cores() // num_tasks))
    ours = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(_THREADS, threads)}
    without = ("TF_CONFIG", ALONE_VARIABLE, ROLES_VARIABLE, TOKEN_VARIABLE)
    given = {name: value for name, value in environ.items() if name not in without}
    return {**ours, **given}


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _secs(text: str) -> float:
    try:
        secs = float(text)
    except ValueError:
        secs = -1.0
    if not 0 <= secs < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return secs
