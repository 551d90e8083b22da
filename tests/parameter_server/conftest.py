"""Jobs with parameter servers, as processes on loopback, which may be killed and started again."""

import contextvars
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from paceline.cluster import local_cluster
from paceline.cluster.mpirun import find_mpirun, mpirun_options
from paceline.estimator.saving import CheckpointShards

HERE = Path(__file__).parent
LIMIT_SECS = 90


class Process:
    """One task of a job, which ends with the test. What it prints is kept."""

    def __init__(self, name, command, environ):
        self.name = name
        self._lines = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self):
        """All that it has printed so far."""
        with self._changed:
            return "".join(self._lines)

    @property
    def last_line(self):
        return self.output.rstrip().splitlines()[-1]

    @property
    def is_running(self):
        return self._process.poll() is None

    @property
    def last_step(self):
        """The last step that it has printed; -1 before the first."""
        with self._changed:
            steps = [line for line in self._lines if line.startswith("step ")]
        return int(steps[-1].split()[1]) if steps else -1

    def wait_for(self, text, times=1):
        """Return when so many lines with this text were printed."""
        self._wait_until(lambda: sum(text in line for line in self._lines) >= times, text)

    def wait_for_step(self, step):
        """Return when it has come to a step."""
        self._wait_until(lambda: self.last_step >= step, f"step {step}")

    def wait_for_more_steps(self, num_steps=30):
        """Return when it has printed steps as often again."""
        step = self.last_step
        self._wait_until(lambda: self.last_step >= step + num_steps, f"step {step} + {num_steps}")

    def signal(self, number):
        self._process.send_signal(number)

    def terminate(self):
        """Ask it to end."""
        self._process.terminate()

    def kill(self):
        """End it at once, and wait for that."""
        if self.is_running:
            self._process.kill()
            self._process.send_signal(signal.SIGCONT)
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def end(self):
        """Its exit code, when it has ended by itself."""
        try:
            code = self._process.wait(LIMIT_SECS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.output}") from None
        self._reader.join()
        return code

    def require_success(self):
        assert self.end() == 0, f"{self.name}:\n{self.output}"

    def require_failure(self, *texts, code=1):
        """It must have ended with an error whose last line has these texts."""
        assert self.end() == code, f"{self.name}:\n{self.output}"
        for text in texts:
            assert text in self.last_line, f"{self.name}:\n{self.output}"

    def _read(self):
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._lines.append("")
            self._changed.notify_all()

    def _wait_until(self, is_so, what):
        deadline = time.monotonic() + LIMIT_SECS
        with self._changed:
            while not is_so():
                left = deadline - time.monotonic()
                has_ended = bool(self._lines) and not self._lines[-1]
                if has_ended or left <= 0:
                    why = "ended" if has_ended else f"waited {LIMIT_SECS} s"
                    raise AssertionError(
                        f"{self.name}: no '{what}' ({why}):\n{''.join(self._lines)}"
                    )
                self._changed.wait(left)


class Job:
    """A job of train.py, task by task.

    Attributes:
        model_dir: Where it saves.
    """

    def __init__(self, stack, tmp_path, configs, arguments, but=()):
        self.model_dir = tmp_path / "model"
        self._stop_file = tmp_path / "stop"
        self._stack = stack
        self._arguments = ("--until", self._stop_file, *arguments)
        self._configs = {_name(config): config for config in configs}
        self._tasks = {}
        for name in self.names(*but):
            self.start(name)

    def __getitem__(self, name):
        return self._tasks[name]

    def names(self, *but):
        """The names of all tasks but some."""
        return [name for name in self._configs if name not in but]

    def start(self, name, *more):
        """Start a task, for the first time or again."""
        command = [sys.executable, HERE / "train.py", self.model_dir, *self._arguments, *more]
        environ = {"TF_CONFIG": json.dumps(self._configs[name])}
        self._tasks[name] = task = Process(name, command, environ)
        self._stack.callback(task.kill)
        return task

    def wait_until_all_train(self):
        """Return when all trainers have made some steps."""
        for name, task in self._tasks.items():
            if name.startswith(("chief", "worker")):
                try:
                    task.wait_for_step(20)
                except AssertionError as error:
                    others = [other for other in self._tasks.values() if other is not task]
                    error.add_note("\n".join(f"{o.name}:\n{o.output}" for o in others))
                    raise

    def stop_training(self):
        """Have all trainers stop."""
        self._stop_file.touch()

    def require_success(self, *but):
        """All tasks but some end with exit code 0."""
        for name in self.names(*but):
            self[name].require_success()


def _name(config):
    return "{type} {index}".format(**config["task"])


@pytest.fixture
def start_job(tmp_path):
    """`start_job(*arguments, num_workers=, chief=, num_ps=, evaluator=, configs=, but=)`: a `Job`.

    All tasks of it are started, but some.
    """
    with ExitStack() as stack:

        def start(*arguments, configs=None, but=(), **cluster):
            cluster = {"num_workers": 1, "chief": True, "num_ps": 2} | cluster
            return Job(stack, tmp_path, configs or local_cluster(**cluster), arguments, but)

        yield start


def run_to_its_end(command, environ, exit_code=0):
    """What a command has printed that ends with this code."""
    ran = subprocess.run(
        [*map(str, command)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environ},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
        check=False,
    )
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def start_launcher():
    """`start_launcher(options, *arguments, exit_code=0)`: what train.py prints under it."""

    def run(options, *arguments, exit_code=0):
        if "mpi" in options:
            skip_without_mpi()
        launch = [sys.executable, "-m", "paceline", "launch", *options]
        return run_to_its_end([*launch, HERE / "train.py", *arguments], {}, exit_code)

    return run


@pytest.fixture
def start_ranks():
    """`start_ranks(size, environ, *arguments)`: what train.py prints under mpirun."""

    def run(size, environ, *arguments):
        skip_without_mpi()
        mpirun = find_mpirun()
        flags, own = mpirun_options(mpirun, size)
        python = [sys.executable, "-m", "mpi4py", HERE / "train.py"]
        return run_to_its_end([mpirun.path, *flags, "-n", size, *python, *arguments], own | environ)

    return run


def skip_without_mpi():
    mpirun = Path(sys.executable).with_name("mpirun")
    if importlib.util.find_spec("mpi4py") is None or not mpirun.exists():
        pytest.skip(f"needs mpi4py and {mpirun} (pip install 'paceline[mpich]')")


class ThreadJob:
    """Servers and trainers that are threads of this process."""

    def __init__(self, job):
        self.strategy = job.strategy
        self._num_trainers = job.num_trainers

    def train(self, call):
        """`call(strategy, rank)` for each trainer at the same time; the job ends with it."""
        errors = []

        def run(rank):
            try:
                strategy = self.strategy(rank)
                call(strategy, rank)
                strategy.extended.job.share_result("{}")
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(run, rank), daemon=True)
            for rank in range(self._num_trainers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECS)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads), "a trainer does not end"


@pytest.fixture
def servers(server_job, tmp_path):
    """`servers(num_servers, num_trainers, max_staleness, **options)`: a `ThreadJob`; it saves."""

    def make(num_servers, num_trainers, max_staleness=0, **options):
        storage = CheckpointShards(1 + num_servers, str(tmp_path))
        job = server_job(num_servers, num_trainers, max_staleness, storage=storage, **options)
        return ThreadJob(job)

    return make
