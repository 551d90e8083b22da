"""What the ranks of an MPI job tell each other at the start, to be tasks that call each other.

MPI hands out the servers' addresses and a secret; after that it carries arrays at most, where
options ask for links over MPI. Who is alive, who is silent and who leaves is known as it is without
MPI, which can do none of that: a rank that is inside MPI waits for ever, and a rank that ends early
ends the job.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import numpy as np

from ...cluster import LOST_PEER, Address, hold_port
from ..members import Member
from ..mpi_start import check_world, end_if_stuck, import_mpi, wait_for_ranks
from ..mpi_watchdog import abort_job
from ..session import DEFAULT_START_TIMEOUT_SECS, MPI_LINKS
from ..session.addresses import host_fingerprint

_END_TAG: Final = 28_772
_LOOPBACK: Final = "127.0.0.1"
_ANY_PORT: Final = 9  # nothing is sent there
_LOOK_SECS: Final = 0.02
_REPORT_SECS: Final = 10.0

_log = logging.getLogger("paceline")


def mpi_job(
    tasks: Sequence[str],
    *,
    servers: Iterable[str],
    comm: Any = None,
    start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
    report_secs: float = _REPORT_SECS,
) -> MpiJob:
    """Return what all ranks of an MPI job know of each other; all its ranks call this.

    Args:
        tasks: The names of all ranks.
        servers: Those of them that others are to call.
        comm: An ``mpi4py.MPI.Comm``; the world if None. It is duplicated, not used.
        start_timeout_secs: How long to wait for all ranks before the job is aborted.
        report_secs: How often to say who is missing meanwhile.

    Raises:
        ImportError: There is no MPI.
        RuntimeError: The world has another size.
    """
    with end_if_stuck(start_timeout_secs):
        mpi = import_mpi()
    comm = mpi.COMM_WORLD if comm is None else comm
    check_world(mpi, comm, len(tasks))
    wait_for_ranks(mpi, comm, tasks, start_timeout_secs, report_secs)
    return MpiJob(mpi, comm.Dup(), tasks, frozenset(servers))


@final
class MpiJob:
    """The ranks of an MPI job as tasks with addresses.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator that nobody else uses.
        tasks: The names of its ranks.
        servers: Those that others are to call.

    Attributes:
        rank: This process.
        members: All ranks; those that others can call have an address.
        job_id: A name of this job, random.
        token: A secret of its tasks, random.
    """

    def __init__(self, mpi: Any, comm: Any, tasks: Sequence[str], servers: frozenset[str]) -> None:
        self.rank: int = comm.rank
        self._mpi = mpi
        self._comm = comm
        self._tasks = tuple(tasks)
        self._abandoned: set[str] = set()
        ip = _reachable_ip(mpi, comm)  # all ranks take part
        address = str(Address(ip, hold_port(ip))) if tasks[self.rank] in servers else ""
        addresses = _gather_texts(mpi, comm, address)
        self.members = tuple(
            Member(rank, task, address)
            for rank, (task, address) in enumerate(zip(tasks, addresses, strict=True))
        )
        self.job_id = _gather_texts(mpi, comm, secrets.token_hex(16))[0]
        self.token = _gather_texts(mpi, comm, secrets.token_hex(32))[0]
        MPI_LINKS.join(mpi, comm)
        atexit.register(self._end)  # before MPI is finalised

    def abandon(self, tasks: Iterable[str]) -> None:
        """Note that these were lost: this rank is not to wait for them when it ends."""
        self._abandoned.update(tasks)

    def close(self) -> None:
        """Release what is held; all ranks call this."""
        atexit.unregister(self._end)
        self._comm.Free()

    def _end(self) -> None:
        """Tell the others that this rank ends; where one was lost, end the job when they have, too.

        Otherwise MPI would wait for the lost one for ever.
        """
        if self._mpi.Is_finalized():
            return
        nothing = (bytearray(), self._mpi.BYTE)
        for rank in range(self._comm.size):
            if rank != self.rank:
                self._comm.Isend(nothing, rank, _END_TAG).Test()
        if self._abandoned:
            self._await_all_but_the_lost()

    def _await_all_but_the_lost(self) -> None:
        started, report_at = time.monotonic(), _REPORT_SECS
        missing = set(self._tasks) - self._abandoned - {self._tasks[self.rank]}
        status = self._mpi.Status()
        while missing:
            while self._comm.Iprobe(self._mpi.ANY_SOURCE, _END_TAG, status):
                self._comm.Recv((bytearray(), self._mpi.BYTE), status.source, _END_TAG)
                missing.discard(self._tasks[status.source])
            waited_secs = time.monotonic() - started
            if waited_secs >= report_at:
                report_at += _REPORT_SECS
                _log.warning(
                    "%s has ended, and waits for %s: %.0f s",
                    self._tasks[self.rank],
                    ", ".join(sorted(missing)),
                    waited_secs,
                )
            time.sleep(_LOOK_SECS)
        lost = ", ".join(sorted(self._abandoned))
        abort_job(
            self._comm,
            f"{self._tasks[self.rank]}: all tasks have ended but {lost}, lost before. MPI cannot "
            "end without a rank, so the job is aborted; what the others have saved is whole",
            LOST_PEER,
        )


def _reachable_ip(mpi: Any, comm: Any) -> str:
    """An address of this host at which all ranks can call; all of them call this."""
    hosts = _gather_texts(mpi, comm, host_fingerprint())
    names = _gather_texts(mpi, comm, mpi.Get_processor_name())
    own = hosts[comm.rank]
    elsewhere = [name for host, name in zip(hosts, names, strict=True) if host != own]
    return _ip_towards(elsewhere[0], names[comm.rank]) if elsewhere else _LOOPBACK


def _ip_towards(host: str, own_host: str) -> str:
    """The address from which this host would call another one; else that of its own name."""
    for name in (host, own_host):
        try:
            found = socket.getaddrinfo(name, _ANY_PORT, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, _, _, endpoint in found:
            with socket.socket(family, kind) as probe:
                try:
                    probe.connect(endpoint)  # sends nothing: it picks a route
                except OSError:
                    continue
                return str(probe.getsockname()[0])
    return _LOOPBACK  # those on other hosts will say that it leads to themselves


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _gather_texts(mpi: Any, comm: Any, text: str) -> list[str]:
    """What each rank gives, by rank; all ranks call this."""
    own = np.frombuffer(text.encode(), np.uint8)
    sizes = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([len(own)], np.int64), sizes)
    table = np.zeros((comm.size, max(1, int(sizes.max()))), np.uint8)
    table[comm.rank, : len(own)] = own
    comm.Allgather(mpi.IN_PLACE, table)
    rows = zip(table, sizes.tolist(), strict=True)
    return [row[:size].tobytes().decode(errors="replace") for row, size in rows]
