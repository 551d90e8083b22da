"""What every test gets: no leaked thread, and workers as threads of this process."""

import contextvars
import gc
import threading

import pytest

from paceline.collectives import in_process_communicators
from paceline.strategies import ReductionToOneDevice, Strategy, StrategyExtended, VariableStore
from paceline.strategies.communication import BYTES_PER_PACK
from paceline.strategies.devices import Device
from paceline.strategies.workers import Workers


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
        thread.join(timeout=5)
    assert not [t for t in left if t.is_alive()]


def run_on_workers(
    num_workers, num_replicas, fn, timeout_secs=20, wire_dtype=None, bytes_per_pack=BYTES_PER_PACK
):
    """What `fn(strategy, worker_index)` returns on each worker; raises what the first one raises.

    The workers are threads, joined by the in-process communicator.
    """
    communicators = in_process_communicators(num_workers, timeout_secs=timeout_secs)
    results, errors = [None] * num_workers, []
    devices = [Device("CPU", i) for i in range(num_replicas)]

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
