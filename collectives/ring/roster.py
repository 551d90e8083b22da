"""Who is there, who is missing, who was lost: what a member knows of the others, without any I/O.

Before the job has come together, a member whose connection breaks is simply missing again. From
then on it is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import final

from ..heartbeats import AwakeClock
from ..link import Link
from ..members import Member
from .authenticated import AuthenticatedStream
from .errors import RendezvousError
from .frames import Accepted, Answer, Frame, GivingUp, Goodbye, Hello, Lost, Ready, cut
from .handshake import RefusedError
from .host import is_loopback, parse_address
from .negotiation import Picked


@final
class Peer:
    """What is known about another member. Changed by the `Roster` only, under its condition.

    Attributes:
        member: Its name.
        address: Its address, taken apart.
        stream: Its control stream, while there is one.
        hello: What it said last about itself.
        answers: Its answers to offers of links; None when it is gone.
        heard_at: When it last said anything, by the roster's clock.
        greeted: Whether it was reached at its address.
        picked: The link to it.
        told_ready: Whether it knows that this member is ready.
        is_ready: Whether it has reached all others.
        has_left: Whether it has said goodbye.
        problem: Why it is not there, as far as is known.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self.address = parse_address(member)
        self.stream: AuthenticatedStream | None = None
        self.hello: Hello | None = None
        self.answers: SimpleQueue[Answer | None] = SimpleQueue()
        self.heard_at: float | None = None
        self.greeted = False
        self.picked: Picked | None = None
        self.told_ready = False
        self.is_ready = False
        self.has_left = False
        self.problem = ""

    def say(self, frame: Frame) -> None:
        """Send ``frame`` if it is there. Does not wait."""
        if (stream := self.stream) is not None:
            stream.send(frame)


@final
class Roster:
    """All other members.

    Attributes:
        peers: They, by rank.
        lost: The first one lost since all had come together, and why.
        clock: Tells how long somebody has been silent.
    """

    def __init__(self, members: Sequence[Member], rank: int) -> None:
        self.clock = AwakeClock()
        self.peers = {m.rank: Peer(m) for m in members if m.rank != rank}
        self.lost: tuple[int, str] | None = None
        self._me = members[rank]
        self._changed = threading.Condition()
        self._is_complete = False
        self._is_closing = False
        self._failure = ""
        self._turned_away = ""

    def wait_until_complete(
        self,
        started: float,
        timeout_secs: float,
        report_secs: float,
        report: Callable[[str], None],
    ) -> None:
        """Return when every member has reached every other one and has a link to it.

        Args:
            started: Since when it has been waited for (`time.monotonic()`).
            timeout_secs: How long to wait.
            report_secs: How often to report who is missing.
            report: Is told, with how long it has waited and at most will.

        Raises:
            RendezvousError: Somebody is missing, does not belong here, or was lost again.
        """
        report_at = report_secs
        with self._changed:
            while not self._is_complete:
                waited_secs = time.monotonic() - started
                if self._failure:
                    raise RendezvousError(f"start of {self._me} failed: {self._failure}")
                if waited_secs >= timeout_secs:
                    missing = self._missing(f"{timeout_secs:.3g} s")
                    raise RendezvousError(f"start of {self._me} gave up: {missing}")
                if waited_secs >= report_at:
                    report(self._missing(f"{waited_secs:.0f} s of at most {timeout_secs:.0f} s"))
                    report_at += report_secs
                self._changed.wait(max(0.0, min(timeout_secs, report_at) - waited_secs))

    def needs(self, peer: Peer, *, to_join: bool) -> bool:
        """Return whether ``peer`` has still to be called, to join it or just to greet it."""
        with self._changed:
            is_done = self._is_complete or self._is_closing or bool(self._failure)
            return not is_done and (to_join or not peer.greeted)

    def greet(self, peer: Peer) -> None:
        """Note that ``peer`` answers at its address."""
        with self._changed:
            peer.greeted = True
            peer.problem = ""
            self._advance()

    def admit(
        self, peer: Peer, stream: AuthenticatedStream, hello: Hello, *, is_caller: bool
    ) -> None:
        """Take ``stream`` as the control stream of ``peer``.

        Args:
            peer: The other member.
            stream: The stream.
            hello: What the other member said about itself.
            is_caller: Whether the other member has called, and is to be told that it is in.

        Raises:
            RefusedError: There is one already, or it is too late.
        """
        with self._changed:
            if self._is_closing or self._failure:
                raise RefusedError("has come too late", is_final=False)
            if peer.stream is not None or self._is_complete:
                raise RefusedError("is already there as another process", is_final=False)
            if is_caller:
                stream.send(Accepted())
            peer.answers = SimpleQueue()
            peer.stream, peer.hello, peer.heard_at = stream, hello, self.clock.now()
            peer.greeted = peer.greeted or not is_caller
            peer.problem = ""

    def hear(self, peer: Peer) -> None:
        """Note a sign of life."""
        peer.heard_at = self.clock.now()

    def last_heard(self, peer: Peer) -> float | None:
        """Return how many seconds ago ``peer`` gave a sign of life; None if it never has."""
        return None if peer.heard_at is None else self.clock.now() - peer.heard_at

    def disconnect_silent(self, silence_secs: float) -> None:
        """Break the streams to those that have said nothing for longer than ``silence_secs``."""
        for peer in self.peers.values():
            stream, silent_secs = peer.stream, self.last_heard(peer)
            if stream is not None and silent_secs is not None and silent_secs > silence_secs:
                self.disconnect(peer, stream, f"it has been silent for {silent_secs:.3g} s")
                stream.cancel()

    def link(self, peer: Peer, stream: AuthenticatedStream, picked: Picked) -> None:
        """Note the link to ``peer``, agreed on over ``stream``."""
        with self._changed:
            if peer.stream is stream and not self._is_closing:
                peer.picked = picked
                self._advance()
                return
        picked.link.close()

    def ready(self, peer: Peer) -> None:
        """Note that ``peer`` has reached all others."""
        with self._changed:
            peer.is_ready = True
            self._advance()

    def leave(self, peer: Peer) -> None:
        """Note that ``peer`` has said goodbye."""
        with self._changed:
            peer.has_left = True

    def disconnect(self, peer: Peer, stream: AuthenticatedStream, reason: str) -> None:
        """Note that ``stream`` to ``peer`` has ended."""
        with self._changed:
            if peer.stream is not stream:
                return
            peer.stream = None
            peer.answers.put(None)
            if self._is_complete:
                if not peer.has_left:
                    self._lose(peer, reason, tell=True)
                return
            link = peer.picked.link if peer.picked else None
            peer.picked = None
            peer.told_ready = peer.is_ready = peer.has_left = False
            peer.problem = reason
            self._changed.notify_all()
        if link is not None:
            link.close()

    def lose(self, peer: Peer, reason: str) -> None:
        """Note that ``peer`` is gone, as it says itself or somebody else does."""
        with self._changed:
            if self._is_complete:
                self._lose(peer, reason, tell=False)
            else:
                self._fail(f"lost {peer.member}: {reason}")

    def fail(self, reason: str) -> None:
        """Note that the job will not come together, if it has not."""
        with self._changed:
            if not self._is_complete:
                self._fail(reason)

    def complain(self, peer: Peer, problem: str) -> None:
        """Note why ``peer`` could not be reached."""
        with self._changed:
            peer.problem = problem

    def turn_away(self, ip: str, reason: str) -> None:
        """Note that somebody who called from ``ip`` does not belong here."""
        with self._changed:
            self._turned_away = f"turned away a caller from {ip}, which {reason}"

    def announce(self, reason: str) -> None:
        """Tell all others that this member gives up."""
        for peer in self.peers.values():
            peer.say(GivingUp(reason=cut(reason)))

    def close(self) -> list[Link]:
        """Say goodbye to all others, once; return the links to them."""
        with self._changed:
            if self._is_closing:
                return []
            self._is_closing = True
            for peer in self.peers.values():
                peer.say(Goodbye())
                if peer.stream is not None:
                    peer.stream.finish()
            self._changed.notify_all()
            return [p.picked.link for p in self.peers.values() if p.picked is not None]

    def _advance(self) -> None:
        """Tell the others when everybody is there, and go on when they all have said so too."""
        peers = self.peers.values()
        if not all(peer.greeted and peer.picked is not None for peer in peers):
            return
        for peer in peers:
            if not peer.told_ready:
                peer.say(Ready())
                peer.told_ready = True
        if all(peer.is_ready for peer in peers):
            self._is_complete = True
            self._changed.notify_all()

    def _lose(self, peer: Peer, reason: str, *, tell: bool) -> None:
        if self.lost is not None or self._is_closing:
            return
        self.lost = (peer.member.rank, reason)
        for other in self.peers.values() if tell else ():
            if other is not peer:
                other.say(Lost(rank=peer.member.rank, reason=cut(reason)))

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._changed.notify_all()

    def _missing(self, waited: str) -> str:
        """Return who is missing and why, as far as is known."""
        missing = [p for p in self.peers.values() if not (p.greeted and p.picked)]
        missing = missing or [p for p in self.peers.values() if not p.is_ready]
        names = ", ".join(str(peer.member) for peer in missing)
        remarks = [f"{peer.member.task}: {text}" for peer in missing if (text := _remark(peer))]
        remarks += [self._turned_away] if self._turned_away else []
        if any(is_loopback(peer.address.host) and not peer.greeted for peer in missing):
            remarks.append("localhost is looked for on this machine only")
        return f"waiting for {names}: {waited}" + (f" ({'; '.join(remarks)})" if remarks else "")


def _remark(peer: Peer) -> str:
    if peer.problem:
        return peer.problem
    if peer.stream is None:
        return "it has not called yet" if peer.greeted else ""
    if peer.picked is None:
        return "no link to it yet"
    return "it has not reached all others yet"
