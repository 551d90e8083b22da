"""The start of an MPI job, where MPI itself waits for ever and does not say on whom."""

from __future__ import annotations

import faulthandler
import logging
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..cluster import LOST_PEER
from .members import Member
from .mpi_watchdog import abort_job

_TAG = 28_771
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.5e-3, 20e-3

_log = logging.getLogger("paceline")


def import_mpi() -> Any:
    """Return ``mpi4py.MPI``, which initialises MPI if need be.

    Raises:
        ImportError: It is not installed, or finds no MPI library; the text says what to install.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"MPI cannot be used here ({error}): pip install 'paceline[mpich]' brings mpi4py and "
            "an MPI library; with a library of the system, install 'paceline[mpi]'"
        ) from error
    return MPI


@contextmanager
def end_if_stuck(timeout_secs: float) -> Iterator[None]:
    """Within it, a process that MPI_Init keeps waiting that long ends, showing where it was.

    MPI_Init holds Python's lock, so that no thread of ours could look at the clock.
    """
    if sys.stderr is not sys.__stderr__:  # somebody captures it, and it may be no file
        yield
        return
    faulthandler.dump_traceback_later(timeout_secs, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def wait_for_ranks(
    mpi: Any, comm: Any, names: Sequence[str], timeout_secs: float, report_secs: float
) -> None:
    """Wait until all ranks of a communicator are here; all of them call this.

    Says now and then who is missing, and ends the job when it takes too long.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: The communicator.
        names: Its ranks by name.
        timeout_secs: How long to wait.
        report_secs: How often to say who is missing.
    """
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    nothing = (bytearray(), mpi.BYTE)
    sends = [comm.Isend(nothing, rank, _TAG) for rank in others]
    missing = {rank: comm.Irecv(nothing, rank, _TAG) for rank in others}
    began, report_at, pause_secs = time.monotonic(), report_secs, _FIRST_PAUSE_SECS
    while missing := {rank: r for rank, r in missing.items() if not r.Test()}:
        waited_secs = time.monotonic() - began
        text = f"waiting for {', '.join(names[rank] for rank in missing)}: {waited_secs:.3g} s"
        if waited_secs >= timeout_secs:
            abort_job(comm, f"start of {names[comm.rank]} gave up: {text}", LOST_PEER)
        if waited_secs >= report_at:
            report_at += report_secs
            _log.warning("%s of at most %.0f s", text, timeout_secs)
        time.sleep(pause_secs)
        pause_secs = min(2 * pause_secs, _LONGEST_PAUSE_SECS)
    mpi.Request.Waitall(sends)


def check_world(mpi: Any, comm: Any, expected_size: int | None) -> None:
    """Check that the launcher and mpi4py use the same MPI.

    Raises:
        RuntimeError: The world has another size than the launcher was asked for.
    """
    if expected_size is not None and comm.size != expected_size:
        raise RuntimeError(
            f"the launcher was asked for {expected_size} ranks, but this process is in a world of "
            f"{comm.size}: mpirun must be of the same MPI as mpi4py ("
            f"{mpi.Get_library_version().splitlines()[0].strip()}), such as the one in the "
            "directory of this Python interpreter"
        )


def agreed_tag(comm: Any) -> int:
    """Return a number by which messages of earlier communicators are told apart."""
    tag = np.array([secrets.randbits(63)], np.int64)
    comm.Bcast(tag)
    return int(tag[0])


def name_ranks(mpi: Any, comm: Any, names: Sequence[str]) -> list[Member]:
    """Return the ranks by name and host; all ranks call this."""
    table = np.zeros((comm.size, mpi.MAX_PROCESSOR_NAME), np.uint8)
    own = mpi.Get_processor_name().encode()
    table[comm.rank, : len(own)] = np.frombuffer(own, np.uint8)
    comm.Allgather(mpi.IN_PLACE, table)
    hosts = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in table]
    pairs = zip(names, hosts, strict=True)
    return [Member(rank, name, host) for rank, (name, host) in enumerate(pairs)]
