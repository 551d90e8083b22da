"""What the tests of this folder share: the strategies to run over."""

import logging
import threading

import pytest

from paceline.strategies import (
    CentralStorageStrategy,
    MirroredStrategy,
    OneDeviceStrategy,
    TPUStrategy,
    get_strategy,
)


@pytest.fixture(autouse=True)
def idle_threads_end():
    """Replica threads end by themselves soon after the last run: wait for it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=30)


def mirrored_over(num_replicas, **options):
    return MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)], **options)


def central_over(num_replicas):
    return CentralStorageStrategy([f"CPU:{i}" for i in range(num_replicas)])


MAKERS = {
    "default": get_strategy,
    "one device": lambda: OneDeviceStrategy("CPU:0"),
    "mirrored over 1": lambda: mirrored_over(1),
    "mirrored over 2": lambda: mirrored_over(2),
    "mirrored over 4": lambda: mirrored_over(4),
    "simulated TPU of 2 cores": lambda: TPUStrategy(simulate=2),
    "central storage, 1 replica": lambda: central_over(1),
    "central storage, 2 replicas": lambda: central_over(2),
}


SERVER_MAKERS = {
    "2 parameter servers, 1 replica": (None, 1),
    "2 parameter servers in step, 2 replicas": (0, 2),
}


@pytest.fixture(params=[*MAKERS, *SERVER_MAKERS])
def make_strategy(request, server_job):
    """A function that makes the strategy; each call another one, apart from the default one."""
    if request.param in MAKERS:
        return MAKERS[request.param]
    max_staleness, num_replicas = SERVER_MAKERS[request.param]
    return lambda: server_job(2, 1, max_staleness).strategy(num_replicas=num_replicas)


@pytest.fixture
def every_strategy(make_strategy):
    return make_strategy()


@pytest.fixture(params=[2, 4], ids="{} replicas".format)
def several_replicas(request):
    return mirrored_over(request.param)


@pytest.fixture
def num_copies(every_strategy):
    """How many copies a variable of `every_strategy` has on this worker."""
    return len(every_strategy.extended.parameter_devices)


@pytest.fixture
def two_replicas():
    return mirrored_over(2)


@pytest.fixture
def mirrored():
    """A function that makes a `MirroredStrategy` over a number of logical CPUs."""
    return mirrored_over


@pytest.fixture
def log_lines(caplog):
    """The log lines of the package so far, at `level` and above."""
    caplog.set_level(logging.DEBUG, logger="paceline")

    def lines(level=logging.DEBUG):
        return [r.getMessage() for r in caplog.records if r.levelno >= level]

    return lines
