"""Processes that are no children of the test, by their numbers."""

from contextlib import suppress

import psutil


def left_of(pids):
    """Those that have not gone when they were waited for."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):  # it is gone already
            processes.append(psutil.Process(pid))
    return psutil.wait_procs(processes, timeout=10)[1]
