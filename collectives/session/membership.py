"""The members of a RING: how they come together through rank 0, and hear of each other afterwards.

Each member knows rank 0's address and tells it where itself listens; rank 0 tells it where its
parent in a binomial tree listens, and there it joins. Whoever waits for nobody below it any more
says so to its parent, and when that has reached rank 0, the table of all members goes down the
tree: now all are there. Before that a member whose session breaks is simply missing again; from
then on it is lost.

What a member then hears from one neighbour (somebody was lost, gives up, or has left) it passes on
to the others, once. The neighbours of a member that dies notice by themselves, so that the news
reaches all parts into which the tree falls. The edges of a binomial tree are pairs that recursive
doubling and broadcasts use too, so that hardly any session serves news only. All other sessions are
opened when a link is first asked for, by either end: each member has some log2 N of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import final

from ..errors import LinkBroken, RendezvousError
from ..link import Health, Link
from ..members import Member
from .endpoint import RETRY_SECS, Endpoint
from .frames import (
    Frame,
    FrameError,
    GivingUp,
    Left,
    Lost,
    Missing,
    Parent,
    Ready,
    Table,
    VersionError,
    cut,
)
from .grpc_stream import StreamError
from .handshake import Identity, RefusedError, TermsError
from .member_table import MemberTable, parent_of
from .session import Session, SessionHandler
from .visitors import CALL_SECS

# Whoever is turned away stays so long, lest rank 0 calls in vain and never learns why.
_TURNED_AWAY_SECS = 1.5
_TICK_SECS = 0.4
# In large jobs not all come at once: rank 0 takes about so long over each, and could otherwise run
# out of file descriptors for a moment. In order of rank, parents come before their children.
_MAX_AT_ONCE, _TURN_SECS = 128, 0.005

_log = logging.getLogger("paceline")
_SOON_SECS = 0.05


@final
class Membership(SessionHandler, Health):
    """What a member knows of the others, and its sessions with some of them.

    Args:
        identity: Who this member is.
        members: All of them. Addresses other than those of rank 0 and of this one may be empty.
        ip: Where to listen.
        silence_secs: A member that gives no sign of life for longer is lost.

    Raises:
        RendezvousError: The port cannot be used.
    """

    def __init__(
        self, identity: Identity, members: tuple[Member, ...], ip: str, silence_secs: float
    ) -> None:
        self._me = identity.me
        self._rank = identity.me.rank
        self._silence_secs = silence_secs
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # guards all that follows
        self._table = MemberTable(members, identity.hello())
        self._is_complete = self._is_closing = False
        self._failure = ""
        self._sessions: dict[int, Session] = {}
        self._calling: set[int] = set()
        self._told_parent: str | None = None
        self._asked: Session | None = None
        self._parent_address: str | None = None
        self._lost: tuple[int, str] | None = None
        self._left: set[int] = set()
        self._endpoint = Endpoint(
            identity, self, silence_secs=silence_secs, ip=ip, max_callers=len(members)
        )

    @property
    def members(self) -> tuple[Member, ...]:
        """All members; when they are all there, with the addresses of all."""
        return self._table.members

    # News of the others, once all are there.
    def last_heard(self, rank: int) -> float | None:
        session = self._sessions.get(rank)
        return None if session is None else session.last_heard()

    def lost(self) -> tuple[int, str] | None:
        return self._lost

    def left(self, rank: int) -> bool:
        return rank in self._left

    def announce(self, reason: str) -> None:
        with self._changed:
            self._pass_on(GivingUp(reason=cut(reason)), self._sessions)

    def show_stacks(self, why: str) -> None:
        self._endpoint.show_stacks(why)

    def num_members_here(self) -> int:
        """Return how many members, with this one, share this host's processors."""
        return self._table.num_here()

    def connect(self, rank: int) -> Link:
        """Return the link to ``rank``; log what it is made of, and why of nothing better.

        Raises:
            LinkBroken: There is none that works, or that member cannot be reached any more.
            LinkTimeout: It does not say anything about it.
        """
        session = self._session_with(rank)
        link, picked = session.link(), session.picked
        why = f" ({picked.why})" if picked and picked.why else ""
        where = f"ring of {len(self.members)}, here {self._me}"
        _log.info("%s: %s to %s%s", where, picked, self.members[rank].task, why)
        return link

    def close(self) -> None:
        """Say goodbye, wait until the others have heard it, and release the port."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._stopping.set()
        self._endpoint.close()

    # The start.

    def wait_until_complete(
        self,
        started: float,
        timeout_secs: float,
        report_secs: float,
        report: Callable[[str], None],
    ) -> None:
        """Return when every member is there.

        Args:
            started: Since when it has been waited for (`time.monotonic()`).
            timeout_secs: How long to wait.
            report_secs: How often to report who is missing.
            report: Is told, with how long it has waited and at most will.

        Raises:
            RendezvousError: Somebody is missing, does not belong here, or was lost again.
        """
        if self._rank:
            self._start(self._join)
        report_at = report_secs
        while (missing := self._wait_a_little(started, min(timeout_secs, report_at))) is not None:
            waited_secs = time.monotonic() - started
            if waited_secs >= timeout_secs:
                text = _waiting(missing, f"{timeout_secs:.3g} s")
                raise RendezvousError(f"start of {self._me} gave up: {text}")
            if waited_secs >= report_at:
                report(_waiting(missing, f"{waited_secs:.0f} s of at most {timeout_secs:.0f} s"))
                report_at += report_secs

    def _wait_a_little(self, started: float, next_secs: float) -> Missing | None:
        """Return who is missing after a moment; None if nobody is."""
        left_secs = started + next_secs - time.monotonic()
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_complete or self._failure, max(0.0, min(left_secs, _TICK_SECS))
            )
            if self._failure:
                raise RendezvousError(f"start of {self._me} failed: {self._failure}")
            if self._is_complete:
                return None
            if self._rank:
                return self._table.missing_to_me(self._sessions)
            missing = self._table.missing_to_all()
            if missing != self._table.told:
                self._table.told = missing
                self._pass_on(missing, self._table.children)
            for member in self._table.to_be_called():
                if member.rank not in self._calling:
                    self._calling.add(member.rank)
                    self._start(self._find_out, member)
            return missing

    def _find_out(self, member: Member) -> None:
        """Call somebody who should call rank 0, to know whether it is there and belongs here.

        It does not take the call; that is its answer if all is well.
        """
        while not self._is_over() and not self._table.has_come(member.rank):
            self._try(member)
            self._stopping.wait(_TICK_SECS)
        with self._changed:
            self._calling.discard(member.rank)

    def _join(self) -> None:
        """Call the parent until all are there, or this member is lost; rank 0 knows where it is."""
        self._stopping.wait(max(0, self._rank - _MAX_AT_ONCE) * _TURN_SECS)
        while self._must_join():
            asked = self._try(self.members[0])
            if asked is not None and self._table.parent:
                if address := self._await_address(asked):
                    self._try(replace(self.members[self._table.parent], address=address))
                asked.close()
            self._stopping.wait(RETRY_SECS)

    def _must_join(self) -> bool:
        """Wait until there is no session with the parent, and return whether there should be."""
        with self._changed:
            parent = self._table.parent
            self._changed.wait_for(lambda: self._is_over() or parent not in self._sessions)
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._is_complete or self._is_closing or bool(self._failure)

    def _await_address(self, asked: Session) -> str:
        """Return where the parent listens, as rank 0 says; empty if it has not come to rank 0."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._parent_address is not None or asked.ended or self._is_over(),
                CALL_SECS,
            )
            return self._parent_address or ""

    def _try(self, member: Member) -> Session | None:
        """Return a session with ``member``; if there is none, note why."""
        try:
            return self._endpoint.call(member)
        except RefusedError as error:
            if error.is_final:
                self._stopping.wait(_TURNED_AWAY_SECS)
                self._fail(f"{member} {error}")
            problem = "" if self._rank == 0 else str(error)
        except VersionError as error:
            self._fail(f"{member} {error}")
            problem = str(error)
        except (StreamError, FrameError) as error:
            problem = str(error).lower()
        with self._changed:
            self._table.note(member.rank, problem)
        return None

    def _tell_parent(self) -> None:
        """Say for whom this member waits; at rank 0, send the table down if it is for nobody."""
        waiting_for, parent = self._table.waiting_for, self._table.parent
        if self._rank == 0:
            # All have come here before they joined; a second process at rank 0 may not know them.
            if not waiting_for and self._table.is_whole and not self._failure:
                self._begin(self._table.parts())
        elif parent in self._sessions and waiting_for != self._told_parent:
            self._told_parent = waiting_for
            self._sessions[parent].send(Ready(waiting_for=waiting_for))

    def _begin(self, parts: Iterable[Table] = ()) -> None:
        """Note that all are there; at rank 0, tell the others by these parts of the table."""
        if problem := self._table.complete():
            self._fail(problem)
            return
        for part in parts:
            self._pass_on(part, self._table.children)
        self._is_complete = True
        for child in self._table.children:
            if child not in self._sessions:  # it was there when its parent said so
                self._lose(child, self._table.problem(child) or "it went away")
        self._changed.notify_all()

    # What happens to sessions.

    def admit(self, session: Session) -> None:
        rank = session.peer.rank
        with self._changed:
            if self._is_closing or self._failure:
                raise RefusedError("has come too late", is_final=False)
            # Not final: a member that was killed may start anew before its end was noticed.
            if rank in self._sessions:
                raise RefusedError("is already there as another process", is_final=False)
            if self._is_complete:
                self._check_known(session)
            elif session.is_caller and rank != self._table.parent:
                self._asked, self._parent_address = session, None
                return
            elif not session.is_caller and not self._take_in(session):
                return
            self._sessions[rank] = session
            self._table.note(rank, "")
            if not self._is_complete:
                self._told_parent = None if rank == self._table.parent else self._told_parent
                self._tell_parent()
            self._changed.notify_all()

    def _check_known(self, session: Session) -> None:
        """Check that the process is the one that was there when all were."""
        rank = session.peer.rank
        if session.hello.incarnation != self._table.incarnation(rank):
            raise RefusedError("is already there as another process", is_final=False)
        # Both may call at once, and there is to be one session: while the higher rank calls it
        # takes no call, so that the lower one is refused and finds the session opened to it.
        if not session.is_caller and rank < self._rank and rank in self._calling:
            raise RefusedError("is being called", is_final=False)

    def _take_in(self, session: Session) -> bool:
        """Return whether a caller at the start is a child; at rank 0, tell others of theirs."""
        rank = session.peer.rank
        is_child = rank in self._table.children
        if self._rank:
            if not is_child:
                raise RefusedError("is not waited for here at the start", is_final=False)
            return True
        self._table.come(rank, session.hello)
        if not is_child:
            session.send(Parent(address=self._table.address(parent_of(rank))))
        session.send(self._table.told)
        return is_child

    def receive(self, session: Session, frame: Frame) -> None:
        rank = session.peer.rank
        with self._changed:
            match frame:
                case Parent() if session is self._asked:
                    self._parent_address = frame.address
                    self._changed.notify_all()
                case Missing() if rank in (0, self._table.parent):
                    self._table.told = frame
                    self._pass_on(frame, self._table.children)
                case Ready() if rank in self._table.children:
                    self._table.children[rank] = frame.waiting_for
                    if not self._is_complete:
                        self._tell_parent()
                case Table() if rank == self._table.parent and not self._is_complete:
                    self._table.add(frame)
                    self._pass_on(frame, self._table.children)
                    if self._table.is_whole:
                        self._begin()
                case Lost() if frame.rank < len(self.members):
                    self._lose(frame.rank, frame.reason)
                case Left() if frame.rank < len(self.members):
                    self._leave(frame.rank)
                case _:
                    raise FrameError(f"a {type(frame).__name__} frame out of place")

    def ended(self, session: Session) -> None:
        rank = session.peer.rank
        with self._changed:
            self._changed.notify_all()
            if self._sessions.get(rank) is not session:
                return
            del self._sessions[rank]
            if session.has_given_up or (self._is_complete and not session.has_left):
                how = "" if session.has_given_up else f" (says {self._me.task})"
                self._lose(rank, session.ended, how)
            elif self._is_complete:
                self._leave(rank)
            else:
                self._table.go(rank, session.ended)
                if rank == self._table.parent:
                    self._send_below_away()
                self._tell_parent()

    def _send_below_away(self) -> None:
        """Let the children join anew, by way of rank 0: it may be another process, to be told."""
        for child in self._table.children:
            if (session := self._sessions.get(child)) is not None:
                session.close()

    def turned_away(self, caller: str, error: RefusedError) -> None:
        with self._changed:
            self._table.turned_away = f"turned away {caller}, which {error}"
        if isinstance(error, TermsError):
            self._fail(f"{caller} {error}")

    def _lose(self, rank: int, reason: str, how: str = "") -> None:
        """Note the first loss, and pass it on with ``how`` it is known, once."""
        # The first loss only: each member sends it to each neighbour once, so that the flood ends.
        # Others may take this member itself for lost; they give up, and it is told that.
        if self._lost is not None or self._is_closing or rank == self._rank:
            return
        self._lost = rank, reason
        if not self._is_complete:
            self._failure = self._failure or f"lost {self.members[rank]}: {reason}"
        self._pass_on(Lost(rank=rank, reason=cut(reason + how)), self._sessions, but=rank)
        self._changed.notify_all()
        self._endpoint.cancel_calls()  # one to the lost member may keep somebody waiting

    def _leave(self, rank: int) -> None:
        """Note that a member has left, and pass it on along the tree, once."""
        if rank in self._left or self._is_closing:
            return
        self._left.add(rank)
        self._pass_on(Left(rank=rank), [self._table.parent, *self._table.children], but=rank)

    def _pass_on(self, frame: Frame, ranks: Iterable[int], but: int = -1) -> None:
        for rank in ranks:
            if rank != but and (session := self._sessions.get(rank)) is not None:
                session.send(frame)

    def _fail(self, reason: str) -> None:
        """Note that the job will not come together, if it has not."""
        with self._changed:
            if not self._is_complete:
                self._failure = self._failure or reason
                self._changed.notify_all()

    # Sessions beyond the tree.

    def _session_with(self, rank: int) -> Session:
        """Return the session with ``rank``, opened now unless the other end has opened it."""
        # If it is silent its neighbours say so before that, which tells more.
        deadline = time.monotonic() + 2 * self._silence_secs
        while True:
            with self._changed:
                if (session := self._sessions.get(rank)) is not None:
                    return session
                if self._is_closing or self._lost is not None or rank in self._left:
                    raise LinkBroken("it cannot be reached any more")
                self._calling.add(rank)
            try:
                return self._endpoint.call(self.members[rank])
            except (RefusedError, StreamError, FrameError) as error:
                problem = str(error).lower()
            finally:
                with self._changed:
                    self._calling.discard(rank)
            if time.monotonic() >= deadline:
                raise LinkBroken(f"it cannot be reached: {problem}")
            self._stopping.wait(_SOON_SECS)

    def _start(self, target: Callable[..., None], *arguments: Member) -> None:
        threading.Thread(
            target=target, args=arguments, name="paceline-rendezvous", daemon=True
        ).start()


def _waiting(missing: Missing, waited: str) -> str:
    remarks = f" ({missing.remarks})" if missing.remarks else ""
    return f"waiting for {missing.names}: {waited}{remarks}"
