"""Servers and clients that are ranks of one MPI job.

Nobody needs to prove who he is: who is in the job, mpirun has started. If a rank dies mpirun ends
the job, so that ranks only ever come at the start, and leave.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from ..errors import LinkError, LinkTimeout
from ..members import Member
from ..mpi import check_world, import_mpi, name_ranks
from ..mpi_start import end_if_stuck, wait_for_ranks
from ..ring.errors import RendezvousError
from ..ring.frames import Visit, encode
from ..runner import has_core_to_spare
from .connection import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, Session
from .messages import Client, Handler
from .mpi_link import MpiLink
from .mpi_serving import (
    ANSWER_BYTES,
    FIRST_TAG,
    KNOCK,
    KNOCK_TAG,
    MpiServing,
    unpack_answer,
)
from .presence import Presence
from .timing import DEFAULT_START_TIMEOUT_SECS, DEFAULT_TIMEOUT_SECS
from .wire import Wire

_JOB_ID = "mpirun"
_SPIN_SECS = 200e-6

_log = logging.getLogger("paceline")


def mpi_job(
    comm: Any = None,
    *,
    tasks: Sequence[str] | None = None,
    expected_size: int | None = None,
    start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
    report_secs: float = 10.0,
) -> MpiJob:
    """Return what makes servers and connections of an MPI job; all its ranks call this.

    Args:
        comm: An ``mpi4py.MPI.Comm``; the world if None. It is duplicated, not used.
        tasks: The names of all ranks, by default "rank 0", …; errors show them with their hosts.
        expected_size: How many ranks the launcher was asked for.
        start_timeout_secs: How long to wait for all ranks before the job is aborted.
        report_secs: How often to say who is missing meanwhile.

    Raises:
        ImportError: There is no MPI.
        RuntimeError: The world has another size, or this MPI forbids calls from several threads.
    """
    with end_if_stuck(start_timeout_secs):
        mpi = import_mpi()
    comm = mpi.COMM_WORLD if comm is None else comm
    check_world(mpi, comm, expected_size)
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise RuntimeError(
            "this MPI was initialised without MPI_THREAD_MULTIPLE, which parameter servers need: "
            "let mpi4py initialise it, or use the addresses of TF_CONFIG instead of MPI"
        )
    names = list(tasks or (f"rank {rank}" for rank in range(comm.size)))
    wait_for_ranks(mpi, comm, names, start_timeout_secs, report_secs)
    own = comm.Dup()
    return MpiJob(mpi, own, name_ranks(mpi, own, names))


@final
class MpiJob:
    """The ranks of an MPI job, any of which may serve, or connect to one that does.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator that nobody else uses.
        members: All ranks by name and host.

    Attributes:
        rank: This process.
        members: The same.
    """

    def __init__(self, mpi: Any, comm: Any, members: Sequence[Member]) -> None:
        self.rank: int = comm.rank
        self.members = tuple(members)
        self._mpi = mpi
        self._comm = comm
        self._lock = threading.Lock()
        self._num_links = 0

    def serve(
        self,
        handler: Handler,
        *,
        on_joined: Callable[[Client], None],
        on_lost: Callable[[Client, str], None],
        on_left: Callable[[Client], None],
        timeout_secs: float = DEFAULT_TIMEOUT_SECS,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        spin_secs: float | None = None,
    ) -> MpiServing:
        """Answer what other ranks ask of this one, until closed. As `serve` otherwise."""
        open_wire = self._wires(timeout_secs, max_frame_bytes, spin_secs)
        presence = Presence(on_joined, on_lost, on_left)
        return MpiServing(self._mpi, self._comm, open_wire, handler, presence)

    def connect(
        self,
        server_rank: int,
        me: Client,
        *,
        timeout_secs: float = DEFAULT_TIMEOUT_SECS,
        start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
        report_secs: float = 10.0,
        report: Callable[[str], None] = _log.warning,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        spin_secs: float | None = None,
    ) -> Connection:
        """Return a connection to the rank ``server_rank``, which serves. As `connect` otherwise.

        Args:
            server_rank: Of the server, in this job.
            me: This process: its rank among the trainers, and its task.
            timeout_secs: How long to wait for a reply, or for a message to go on.
            start_timeout_secs: How long to wait until the server serves.
            report_secs: How often to report that this waits.
            report: Is told.
            max_frame_bytes: A longer reply is not received.
            spin_secs: How long a wait polls before it gives way; None decides by the number of
                cores for each rank.

        Raises:
            RendezvousError: It does not serve in time, or does not take this client.
        """
        server = self.members[server_rank]
        tag = self._new_tag()
        link = MpiLink(self._mpi, self._comm, server_rank, tag)
        visit = encode(Visit(rank=me.rank, task=me.task, address=me.address))
        knock = (KNOCK.pack(tag) + visit, self._mpi.BYTE)
        self._comm.Isend(knock, server_rank, KNOCK_TAG).Wait()  # short: it does not depend on them
        waiting = f"{me} is waiting for {server}"
        try:
            answer = _await_answer(link, start_timeout_secs, report_secs, report, waiting)
        except LinkError:
            link.close()
            raise RendezvousError(f"{me} gave up: {waiting}: {start_timeout_secs:.3g} s") from None
        incarnation, reason = unpack_answer(answer)
        if reason:
            link.close()
            raise RendezvousError(f"{me} cannot join {server}: that {reason}")
        open_wire = self._wires(timeout_secs, max_frame_bytes, spin_secs)
        wire = open_wire(link, me, server, incarnation)
        return Connection(wire, server, incarnation, timeout_secs=timeout_secs)

    def close(self) -> None:
        """Release the communicator; all ranks call this, their servers and connections closed."""
        if not self._mpi.Is_finalized():
            self._comm.Free()

    def _new_tag(self) -> int:
        with self._lock:
            self._num_links += 1
            return FIRST_TAG + self._num_links

    def _wires(
        self, timeout_secs: float, max_frame_bytes: int, spin_secs: float | None
    ) -> Callable[[MpiLink, Member, Member, str], Wire]:
        host = self.members[self.rank].address
        has_core = has_core_to_spare(sum(member.address == host for member in self.members))
        spins = (_SPIN_SECS if has_core else 0.0) if spin_secs is None else spin_secs

        def open_wire(link: MpiLink, me: Member, other: Member, incarnation: str) -> Wire:
            return Wire(
                link,
                me,
                other,
                Session.of(_JOB_ID, incarnation),
                health=None,
                timeout_secs=timeout_secs,
                spin_secs=spins,
                max_frame_bytes=max_frame_bytes,
            )

        return open_wire


def _await_answer(
    link: MpiLink,
    timeout_secs: float,
    report_secs: float,
    report: Callable[[str], None],
    waiting: str,
) -> bytes:
    """Return what a server answers to a knock.

    Raises:
        LinkError: It does not.
    """
    answer = bytearray(ANSWER_BYTES)
    started = time.monotonic()
    report_at = report_secs
    while True:
        try:
            link.receive_into(memoryview(answer), started + min(timeout_secs, report_at))
            return bytes(answer)
        except LinkTimeout:
            if report_at >= timeout_secs:
                raise
            report(f"{waiting}: {time.monotonic() - started:.3g} s")
            report_at += report_secs
