"""A watchdog over a rank that may be stuck inside MPI: it says on whom, and ends the job.

A thread looks at the call under way now and then. If that has not moved for a second, the thread
tells the watchdogs of all other ranks what this rank is waiting in. From what it is told in turn it
knows who waits in the same call (all is well, somebody is late), who has called something else (a
mismatch: abort), and, when time is up, who has not come (abort, naming them).

While it waits it asks the others now and then for a sign of life, which their watchdogs give as
long as their processes run, whatever their working threads do. One that gives none for
``silence_secs`` is lost: abort. Nothing of this is sent while calls end within a second.

When a wait is reported, all ranks of the call log what their threads do.
"""

from __future__ import annotations

import atexit
import struct
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, final

from ..cluster import LOST_PEER
from .backend import Backend
from .calls import NOTHING, RECORD_BYTES, RULE, Call, record_text
from .heartbeats import AwakeClock
from .members import Member
from .mpi_consistency import History
from .peers import DEFAULT_REPORT_SECS, log_wait
from .stacks import show_stacks

PERIOD_SECS = 0.2
NOTICE_SECS = 1.0
ASK_SECS = 1.0

_USER = str(Path(__file__).with_name("mpi.py"))
# Launchers drop what they have not yet passed on when the job is aborted.
_PASS_ON_SECS = 0.2
_NOTICE = struct.Struct(f"<QQq?{RECORD_BYTES}s")
_NOTICE_TAG, _ASK_TAG, _ALIVE_TAG, _STACKS_TAG = 7, 8, 9, 10
# More than so many ranks are asked less often, lest they do nothing else.
_RANKS_ASKED_A_SECOND = 64


def abort_job(comm: Any, text: str, exit_code: int = 1) -> NoReturn:
    """Print ``text`` as one piece and end the whole MPI job."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    time.sleep(_PASS_ON_SECS)
    comm.Abort(exit_code)
    raise SystemExit(exit_code)


@dataclass(frozen=True)
class Notice:
    """What a rank is waiting in, or that it has left.

    Attributes:
        tag: Of the communicator.
        sequence: Number of the call.
        digest: Of all calls up to this one.
        left: Whether the rank has left after this call.
        text: The call.
    """

    tag: int
    sequence: int
    digest: int
    left: bool
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Where the working thread is.

    Attributes:
        backend: Whose call it is in.
        history: Its history.
        call: Which call.
        waited_for: The one rank that is waited for, if there is only one.
    """

    backend: Backend
    history: History
    call: Call
    waited_for: int | None = None


@final
class Watchdog:
    """Watches the calls of one rank, in all communicators split from one.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator that nobody else uses for messages between single ranks.
        members: All ranks by name.
        silence_secs: How long a rank that is asked for a sign of life may give none.

    Attributes:
        members: The same.
        now: Where the working thread is; None outside of MPI. Setting it is all that the working
            thread does for the watchdog, for it is in a hurry. It has moved if this is another
            object or the history is longer.
    """

    def __init__(self, mpi: Any, comm: Any, members: Sequence[Member], silence_secs: float) -> None:
        self._mpi = mpi
        self._comm = comm
        self.members = tuple(members)
        self._silence_secs = silence_secs
        self._clock = AwakeClock()
        self._heard_at: dict[int, float] = {}
        self._asked_at = 0.0
        self._ask_secs = max(ASK_SECS, len(self.members) / _RANKS_ASKED_A_SECOND)
        self._histories: dict[int, History] = {}
        self._notices: dict[int, Notice] = {}
        self._left: dict[tuple[int, int], Notice] = {}
        self._sends: list[tuple[Any, bytes]] = []
        self._sending = threading.Lock()
        self._stopped = threading.Event()
        self._speaks = mpi.Query_thread() == mpi.THREAD_MULTIPLE
        self._thread = threading.Thread(
            target=self._watch, name="paceline-mpi-watchdog", daemon=True
        )
        self.now: Position | None = None
        self._thread.start()
        atexit.register(self.stop)  # before MPI is finalised

    def add_history(self, history: History) -> None:
        """Watch over the calls of another communicator too."""
        self._histories[history.tag] = history

    def leave(self, history: History) -> None:
        """Tell the others that no more calls of a communicator will come from this rank."""
        if self._histories.pop(history.tag, None) is not None and not self._mpi.Is_finalized():
            self._tell(history, history.latest, left=True)
        for rank in history.ranks:
            self._left.pop((rank, history.tag), None)

    def stop(self) -> None:
        """End the thread, and tell the others that no more calls will come from this rank."""
        if self._stopped.is_set():
            return
        atexit.unregister(self.stop)
        self._stopped.set()
        self._thread.join()
        if not self._mpi.Is_finalized():
            for history in self._histories.values():
                self._tell(history, history.latest, left=True)

    @property
    def call(self) -> Call:
        """The call under way."""
        now = self.now
        return now.call if now else NOTHING

    def _watch(self) -> None:
        seen: tuple[Position, int] | None = None
        since, period_secs, told, report_at = 0.0, PERIOD_SECS, False, 0.0
        while not self._stopped.wait(period_secs):
            self._clock.tick()
            self._take_notices()
            now, clock = self.now, time.monotonic()
            here = (now, now.history.sequence) if now else None
            if now is None or here != seen:
                seen, since, told, report_at = here, clock, False, DEFAULT_REPORT_SECS
                self._heard_at.clear()
                continue
            timeout_secs = now.backend.timeout_secs
            period_secs = min(PERIOD_SECS, timeout_secs / 4)
            if clock - since >= min(NOTICE_SECS, timeout_secs / 4):
                if not told:
                    self._tell(now.history, now.call)
                    told = True
                self._look_for_mismatch()
                self._look_for_leavers(now)
                self._look_for_silence(now)
            if clock - since >= report_at:
                report_at *= 2
                self._report(now, clock - since)
            if clock - since > timeout_secs:
                what = now.call.describe(now.backend.step)
                about = f"{what} timed out after {clock - since:.3g} s: "
                self._abort_inside(about + self._whom_we_wait_for(now), LOST_PEER)

    def _tell(self, history: History, call: Call, left: bool = False) -> None:
        """Tell the other ranks what this one waits in, or that it leaves."""
        if not self._speaks:
            return
        state = history.tag, history.sequence, history.digest
        data = _NOTICE.pack(*state, left, call.record)
        for rank in history.ranks if left else range(len(self.members)):
            if rank != self._comm.rank:
                self._send(rank, _NOTICE_TAG, data)

    def _send(self, rank: int, tag: int, data: bytes) -> None:
        """Send ``data`` without waiting, and keep it until it has gone out."""
        with self._sending:  # the working thread sends too, when it leaves a communicator
            self._sends.append((self._comm.Isend((data, self._mpi.BYTE), rank, tag), data))

    def _senders(self, tag: int) -> set[int]:
        """Take in the empty messages with this tag; return who has sent them."""
        found, status, anyone = set(), self._mpi.Status(), self._mpi.ANY_SOURCE
        while self._speaks and self._comm.Iprobe(anyone, tag, status):
            self._comm.Recv((bytearray(), self._mpi.BYTE), status.source, tag)
            found.add(status.source)
        return found

    def _take_notices(self) -> None:
        buffer, status = bytearray(_NOTICE.size), self._mpi.Status()
        anyone = self._mpi.ANY_SOURCE
        with self._sending:
            self._sends = [send for send in self._sends if not send[0].Test()]
        for rank in self._senders(_ALIVE_TAG):
            self._heard_at[rank] = self._clock.now()
        for rank in self._senders(_ASK_TAG):
            self._send(rank, _ALIVE_TAG, b"")
        for rank in self._senders(_STACKS_TAG):
            show_stacks(f"{self.members[rank].task} has been waiting in a call for long")
        while self._speaks and self._comm.Iprobe(anyone, _NOTICE_TAG, status):
            self._comm.Recv((buffer, self._mpi.BYTE), status.source, _NOTICE_TAG)
            tag, sequence, digest, left, text = _NOTICE.unpack(buffer)
            notice = Notice(tag, sequence, digest, left, record_text(text))
            if left:
                self._left[status.source, notice.tag] = notice
            else:
                self._notices[status.source] = notice

    def _look_for_mismatch(self) -> None:
        """Abort if a rank that waits somewhere got there by other calls than this one's."""
        for rank, notice in self._notices.items():
            history = self._histories.get(notice.tag)
            ours = history.at(notice.sequence) if history else None
            if ours is not None and ours[0] != notice.digest:
                self._abort_inside(
                    f"{self.members[rank]} called {notice.text} as call {notice.sequence} of this "
                    f"communicator, while {self.members[self._comm.rank]} called {ours[1].account} "
                    f"as call {notice.sequence}, or they differed before. {RULE}"
                )

    def _look_for_leavers(self, now: Position) -> None:
        """Abort if a rank that this call needs has left without making it."""
        for rank in now.history.ranks:
            notice = self._left.get((rank, now.history.tag))
            if notice is not None and notice.sequence < now.history.sequence:
                what = now.call.describe(now.backend.step)
                self._abort_inside(
                    f"{what} failed: {self.members[rank]} has left. Its last call of this "
                    f"communicator was number {notice.sequence}, {notice.text}; "
                    f"this one is number {now.history.sequence}",
                    LOST_PEER,
                )

    def _look_for_silence(self, now: Position) -> None:
        """Ask the ranks of this call for a sign of life; abort if one has given none for long."""
        others = [rank for rank in now.history.ranks if rank != self._comm.rank]
        clock = self._clock.now()
        for rank in others if self._speaks else ():
            silent_secs = clock - self._heard_at.setdefault(rank, clock)
            if silent_secs > self._silence_secs:
                what = now.call.describe(now.backend.step)
                self._abort_inside(
                    f"{what} failed: lost {self.members[rank]}: it has been silent for "
                    f"{silent_secs:.3g} s",
                    LOST_PEER,
                )
        if self._speaks and clock - self._asked_at >= self._ask_secs:
            self._asked_at = clock
            for rank in others:
                self._send(rank, _ASK_TAG, b"")

    def _report(self, now: Position, waited_secs: float) -> None:
        """Log whom this rank has been waiting for."""
        backend, me = now.backend, self.members[self._comm.rank]
        what, whom = now.call.describe(backend.step), self._whom_we_wait_for(now)
        log_wait(what, me, whom, waited_secs, backend.timeout_secs)
        show_stacks(f"{what}: {me.task} has been {whom}")
        for rank in now.history.ranks if self._speaks else ():
            if rank != self._comm.rank:
                self._send(rank, _STACKS_TAG, b"")

    def _abort_inside(self, text: str, exit_code: int = 1) -> NoReturn:
        """Abort on behalf of the thread that is inside MPI, showing how it got there."""
        stacks = map(traceback.extract_stack, sys._current_frames().values())
        inside = [stack for stack in stacks if any(f.filename == _USER for f in stack)]
        trace = "".join(line for stack in inside for line in traceback.format_list(stack))
        abort_job(self._comm, f"{trace}{self.members[self._comm.rank]}: {text}", exit_code)

    def _whom_we_wait_for(self, now: Position) -> str:
        history = now.history
        if now.waited_for is not None:
            return "waiting for " + self._whereabouts(now.waited_for)
        others = [rank for rank in history.ranks if rank != self._comm.rank]
        absent = [rank for rank in others if not self._is_at(rank, history)]
        if not absent:
            return "all ranks have called it, but MPI does not complete it"
        if not self._speaks:
            return "some rank has not called it (this MPI does not let us ask which)"
        return "waiting for " + ", ".join(map(self._whereabouts, absent))

    def _is_at(self, rank: int, history: History) -> bool:
        notice = self._notices.get(rank)
        there = (history.tag, history.sequence)
        return notice is not None and (notice.tag, notice.sequence) == there

    def _whereabouts(self, rank: int) -> str:
        notice = self._notices.get(rank)
        elsewhere = f", which was seen waiting in {notice.text}" if notice else ""
        return f"{self.members[rank]}{elsewhere}"
