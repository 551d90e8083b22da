"""Jobs whose tasks fail, as processes on loopback; what they took to be noticed is printed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import paceline as pl
from paceline.cluster.mpirun import find_mpirun, mpirun_options

HERE = Path(__file__).parent
MPIRUN = Path(sys.executable).with_name("mpirun")
LIMIT_SECS = 60


@pytest.fixture
def detection(timed):
    """`with detection(what): …` measures until the survivors have ended, and limits it."""

    @contextmanager
    def measure(what):
        began = time.monotonic()
        with timed(what):
            yield
        # The promise is 5 s, and the deadline after a stall; a machine of CI may be busy.
        assert time.monotonic() - began < 20

    return measure


class Task:
    """One task of a job, as a process that ends with the test."""

    def __init__(self, command, environ=None):
        self._process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    @property
    def is_running(self):
        return self._process.poll() is None

    def resume(self):
        """Let it go on after it has stopped itself."""
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)
        os.kill(self.pid, signal.SIGCONT)

    def stays_for(self, secs):
        """Whether it has not ended after so long."""
        try:
            self._process.wait(secs)
        except subprocess.TimeoutExpired:
            return True
        return False

    def wait_for(self, text):
        """Read its stdout up to a line with this text."""
        heard = []
        for line in self._process.stdout:
            if text in line:
                return
            heard.append(line)
        raise AssertionError("".join(heard) + self._process.stderr.read())

    def end(self):
        """Its exit code, and what it wrote to stdout and to stderr after what was read."""
        out, err = self._process.communicate(timeout=LIMIT_SECS)
        return self._process.returncode, out, err

    def kill(self):
        if self.is_running:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def start():
    """`start(command, environ)`: a `Task`."""
    with ExitStack() as stack:

        def start_task(command, environ=None):
            task = Task(command, environ)
            stack.callback(task.kill)
            return task

        yield start_task


@pytest.fixture
def start_job(start):
    """`start_job(configs, script, *arguments)`: a task of the script for each TF_CONFIG."""

    def start_tasks(configs, script, *arguments):
        return [
            start([sys.executable, HERE / script, *arguments], {"TF_CONFIG": json.dumps(config)})
            for config in configs
        ]

    return start_tasks


@pytest.fixture
def launch(start):
    """`launch(backend, script, *arguments)`: a script of two workers as a job, as a `Task`."""

    def start_launcher(backend, script, *arguments, max_restarts=0, evaluator=False):
        if backend == "mpi":
            skip_without_mpi()
        command = [sys.executable, "-m", "paceline", "launch", "--backend", backend]
        command += [
            "--all-lines",
            "--max-restarts",
            max_restarts,
            *(["--evaluator"] if evaluator else []),
        ]
        return start([*command, HERE / script, *arguments])

    return start_launcher


@pytest.fixture
def mpiexec(start):
    """`mpiexec(size, script, *arguments)`: a script on so many ranks, as a `Task`."""

    def start_ranks(size, script, *arguments):
        skip_without_mpi()
        mpirun = find_mpirun()
        flags, environ = mpirun_options(mpirun, size)
        python = [sys.executable, "-m", "mpi4py"]
        return start([mpirun.path, *flags, "-n", size, *python, HERE / script, *arguments], environ)

    return start_ranks


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """The bytes of what a job of two workers and 40 steps ends with when nothing happens."""
    model_dir = tmp_path_factory.mktemp("undisturbed")
    launcher = [sys.executable, "-m", "paceline", "launch"]
    command = [*launcher, HERE / "train.py", model_dir, "--steps", "40"]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECS)
    newest = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(model_dir))
    return newest.arrays()["w"].tobytes()


def skip_without_mpi():
    if importlib.util.find_spec("mpi4py") is None or not MPIRUN.exists():
        pytest.skip(f"needs mpi4py and {MPIRUN} (pip install 'paceline[mpich]')")
