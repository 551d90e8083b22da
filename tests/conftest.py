"""What every test gets: no leaked thread, and workers as threads of this process."""

import contextvars
import gc
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from hypothesis import settings

from paceline import collectives
from paceline.autodiff import PRINT_OPTIONS, set_print_options
from paceline.cluster import ClusterSpec, Task
from paceline.collectives.parameter_server import InProcessServer, ParameterServer
from paceline.inputs.seeds import current_default_seed
from paceline.nn.optimizers import server_rules
from paceline.observe import logger
from paceline.strategies import (
    ReductionToOneDevice,
    Strategy,
    StrategyExtended,
    VariableStore,
    set_seed,
)
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import HOST, Device
from paceline.strategies.parameter_server.channel import Channel
from paceline.strategies.parameter_server.job import LazyServers, TrainerJob
from paceline.strategies.parameter_server.placement import VariablePlacer, placement_of
from paceline.strategies.parameter_server.servers import JobTerms
from paceline.strategies.parameter_server.storage import ServerStorage
from paceline.strategies.variables.local import LocalStorage
from paceline.strategies.workers.joining import BYTES_PER_PACK
from paceline.strategies.workers.workers import Workers

os.environ.pop("PYTHONUNBUFFERED", None)  # the processes of tests buffer output, as users' do


@pytest.fixture
def plain_printing():
    """Tensors print as this package's own, whoever has imported `compat.tf`."""
    before = PRINT_OPTIONS.prefix, PRINT_OPTIONS.suffix
    set_print_options()
    yield
    set_print_options(*before)


@pytest.fixture(autouse=True)
def no_state_is_left():
    """What a test has set for its whole process, others do not find."""
    level = logger().level
    yield
    logger().setLevel(level)
    if current_default_seed() is not None:
        set_seed(None)


@pytest.fixture
def threads_alternate():
    """Threads take turns at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def array_library(request):
    """With another `--array-library` than NumPy, what lies on a device is a `StrictArray`."""
    library = request.config.getoption("--array-library")
    if library == "numpy":
        yield
        return
    if request.node.get_closest_marker("host"):
        pytest.skip("about NumPy's own arrays, or the host")
    if {"a_card", "two_gpus"} & set(request.fixturenames):
        pytest.skip("it makes its own cards")
    from .devices.strict_mode import MODES

    with MODES[library]():
        yield


TIMED = "time: "
"""How names of times begin among the properties of a test."""


def pytest_addoption(parser):
    parser.addoption(
        "--array-library",
        choices=["numpy", "strict", "cards", "shared-card", "gpu", "gpu-cards"],
        default="numpy",
        help="strict: all arrays of tensors and devices are those of a stand-in for CuPy; gpu: of "
        "CuPy itself; see tests/devices/strict_mode.py",
    )


def pytest_configure():
    """A shell that starts the tests in the background has SIGINT ignored, here and in children.

    And no example of hypothesis is bound to a time, which a busy machine does not keep.
    """
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter):
    """Print the times that tests have measured, whichever process has run the tests."""
    reports = [
        report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)
    ]
    times = [
        (value, name[len(TIMED) :])
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name.startswith(TIMED)
    ]
    if times:
        terminalreporter.section("from a fault to what was promised")
    for secs, what in times:
        terminalreporter.write_line(f"{secs:8.2f} s  {what}")


@pytest.fixture
def timed(record_property):
    """`with timed(what): …` measures, and has it printed at the end of the test run."""

    @contextmanager
    def measure(what):
        began = time.monotonic()
        yield
        record_property(TIMED + what, time.monotonic() - began)

    return measure


@pytest.fixture(autouse=True)
def no_leaked_threads():
    """A test leaves no thread behind, not even an idle one."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before]
    for thread in left:
        thread.join(timeout=0.2)
    if any(thread.is_alive() for thread in left):  # a thread may end with the object that owns it
        gc.collect()
    for thread in left:
        thread.join(timeout=30)
    assert not [t for t in left if t.is_alive()]


def run_on_workers(
    num_workers, num_replicas, fn, timeout_secs=20, wire_dtype=None, bytes_per_pack=BYTES_PER_PACK
):
    """What `fn(strategy, worker_index)` returns on each worker; raises what the first one raises.

    The workers are threads, joined by the in-process communicator.
    """
    communicators = collectives.threads(num_workers, timeout_secs=timeout_secs)
    results, errors = [None] * num_workers, []
    devices = [Device.parse(f"CPU:{i}") for i in range(num_replicas)]

    def work(index):
        workers = Workers(communicators[index], wire_dtype)
        ops = ReductionToOneDevice()
        extended = StrategyExtended(devices, devices, ops, workers, bytes_per_pack)
        try:
            with VariableStore().building():  # as each process has its own
                results[index] = fn(Strategy(extended), index)
        except BaseException as error:
            errors.append(error)
            communicators[index].close(f"{type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, i), daemon=True)
        for i in range(num_workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for communicator in communicators:
        communicator.close()
    if errors:
        raise errors[0]
    return results


@pytest.fixture(scope="session")
def on_workers():
    """`on_workers(num_workers, num_replicas, fn)`: see `run_on_workers`."""
    return run_on_workers


class InProcessChannel(Channel):
    """A trainer's way to servers that are threads of this process."""

    def __init__(self, servers, num_trainers, rank, can_leave_alone):
        jobs = {
            "worker": [f"localhost:{1000 + i}" for i in range(num_trainers)],
            "ps": [f"localhost:{2000 + i}" for i in range(len(servers))],
        }
        super().__init__(ClusterSpec(jobs), Task("worker", rank), can_leave_alone)
        self._servers = servers

    def connect(self, server, timeout_secs):
        return self._servers[server].connect(self.trainers[self.rank])

    def serve(self, handler):
        raise NotImplementedError

    def abandon(self, trainers):
        raise NotImplementedError


class Around:
    """A server whose requests go another way."""

    def __init__(self, server, handle):
        self.handle = handle
        self.joined, self.lost, self.left = server.joined, server.lost, server.left


class ServerJobInProcess:
    """Parameter servers in this process, and strategies of trainers that use them.

    Args:
        num_servers, num_trainers: How many.
        max_staleness: As of `ParameterServerStrategy`, as are the other options.
        can_leave_alone: Whether a trainer may end while the others go on.
        around: `around(index, handle)` may put something between a server and its trainers.
    """

    def __init__(self, num_servers, num_trainers, max_staleness=None, **options):
        self.max_staleness = max_staleness
        self.num_trainers = num_trainers
        self.options = options
        self.clients = []
        self.servers = []
        self.channels = [self._start(index) for index in range(num_servers)]

    def _start(self, index):
        server = ParameterServer(
            name=f"ps {index}",
            trainers=[f"worker {i}" for i in range(self.num_trainers)],
            rules=server_rules(),
            storage=self.options.get("storage"),
            synchronous=self.max_staleness == 0,
            replicas_to_aggregate=self.options.get("replicas_to_aggregate"),
            return_secs=self.options.get("return_secs", 3.0),
        )
        self.servers.append(server)
        around = self.options.get("around", lambda index, handle: handle)
        return InProcessServer(Around(server, around(index, server.handle)))

    def strategy(self, rank=0, num_replicas=1):
        """The strategy of one trainer; rank 0 is the chief."""
        can_leave_alone = self.options.get("can_leave_alone", True)
        channel = InProcessChannel(self.channels, self.num_trainers, rank, can_leave_alone)
        terms = JobTerms(
            is_chief=rank == 0,
            is_synchronous=self.max_staleness == 0,
            start_timeout_secs=600.0,
            absence_secs=20.0,
        )
        servers = LazyServers(channel, terms)
        self.clients.append(servers)
        placer = None
        if terms.is_chief:
            place = placement_of(self.options.get("placement", "round_robin"))
            placer = VariablePlacer(len(self.channels), place, self.options.get("partitioner"))
        local = LocalStorage([HOST], Workers())
        overlaps = self.options.get("overlaps", False)
        storage = ServerStorage(servers, placer, local, self.max_staleness, overlaps)
        job = TrainerJob(servers, storage)
        devices = [Device.parse(f"CPU:{i}") for i in range(num_replicas)]
        ops = ReductionToOneDevice()
        return Strategy(StrategyExtended(devices, [HOST], ops, remote_storage=storage, job=job))

    def restart(self, index):
        """A server dies, and another one comes in its place."""
        self.channels[index].close("it died")
        del self.servers[index]
        self.channels[index] = self._start(index)
        self.servers.insert(index, self.servers.pop())

    def close(self):
        for servers in self.clients:
            servers.leave()
        for channel in self.channels:
            channel.close()


@pytest.fixture
def server_job():
    """`server_job(num_servers, num_trainers, max_staleness=None, **options)`; closed at the end."""
    jobs = []

    def make(*arguments, **options):
        jobs.append(ServerJobInProcess(*arguments, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


@pytest.fixture
def a_card(monkeypatch):
    """A stand-in for GPU:0 and for CuPy: the type of its arrays."""
    from .devices import strict_cupy  # not above: combinations/ loads this file outside a package

    library = strict_cupy.module(1)
    monkeypatch.setattr(gpu, "_cupy", lambda: library)
    return strict_cupy.StrictArray


@pytest.fixture
def two_gpus(monkeypatch):
    """Stand-ins for GPU:0 and GPU:1."""
    from .devices import strict_cupy

    library = strict_cupy.module(2)
    monkeypatch.setattr(gpu, "_cupy", lambda: library)
