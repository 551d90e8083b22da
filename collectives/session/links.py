"""The ends of a session find their link: the first transport that both have and that works.

The end that was called offers one transport after the other: it listens and says where, together
with a random ticket; the end that has called connects, shows a proof made of the ticket and of the
key of their conversation, and answers; the one that was called checks what has come and says that
this is the link, or goes on with the next transport. That begins when either end first asks for the
link, whatever the program of the other one does meanwhile.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import final

from ..errors import LinkBroken, LinkError, LinkTimeout
from ..link import ALL_LINKS, Link
from ..members import Member
from .addresses import Address
from .frames import Answer, Frame, FrameError, Linked, NoLink, Offer, WantLink, cut
from .grpc_link import DataStreams
from .handshake import AuthenticatedStream

TICKET_BYTES = 32
# A process that heartbeats and is slow is worth waiting for: the link is for the whole job.
ACCEPT_SECS = 60.0

_log = logging.getLogger("paceline")


@dataclass(frozen=True, kw_only=True)
class LinkEnds:
    """What a transport knows of the two ends of a session.

    Attributes:
        caller: The rank of the end that has called, by which it shows itself.
        caller_ip: From where it has called; empty at that end itself.
        ip: Where the end that was called listens; empty at the other one.
        called: The address that was called; None at that end itself.
        streams: Data streams over the endpoints of both.
    """

    caller: int
    caller_ip: str
    ip: str
    called: Address | None
    streams: DataStreams


class Expected(ABC):
    """Somewhere a caller is expected. ``address`` is for the offer."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def accept(self, deadline: float) -> Link:
        """Return the link to the caller, once it has come.

        Raises:
            LinkTimeout: It has not come by ``deadline`` (`time.monotonic()`).
            LinkBroken: What has come is of no use.
        """

    def give_up(self) -> None:  # noqa: B027 (a caller who connects before it answers is here)
        """Let `accept`, which another thread is in, end at once with `LinkBroken`.

        For who may be waited for although it has answered.
        """

    @abstractmethod
    def close(self) -> None:
        """Expect it no longer."""


class Transport(ABC):
    """What a link can be made of; `register_transport` adds one.

    Attributes:
        name: In options and frames, of at most 16 small letters and digits.
        title: In log lines.
    """

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title

    @abstractmethod
    def unavailable(self) -> str:
        """Return why it cannot be used on this system; empty if it can."""

    @abstractmethod
    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        """Expect the caller, which will show ``proof``; raises `OSError` if that cannot be."""

    @abstractmethod
    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        """Return the link to where the other end expects us.

        Raises:
            OSError, LinkBroken: It cannot be reached.
        """


TRANSPORTS: dict[str, Transport] = {}


def register_transport(transport: Transport) -> None:
    """Let links be made of ``transport`` where both ends know it and name it in their options."""
    TRANSPORTS[transport.name] = transport


def check_links(links: Sequence[str]) -> None:
    """Check the kinds of links that somebody asks for.

    Raises:
        ValueError: There are none, or one is unknown or there twice.
    """
    if not links or not set(links) <= set(TRANSPORTS) or len(set(links)) < len(links):
        raise ValueError(f"links must be some of {', '.join(TRANSPORTS)}; found {tuple(links)}")


@dataclass(frozen=True)
class Picked:
    """The link of a session.

    Attributes:
        link: This end of it.
        kind: What it is made of.
        why: Why the transports before it were not taken; empty if there were none.
    """

    link: Link
    kind: str
    why: str

    def __str__(self) -> str:
        return TRANSPORTS[self.kind].title


@final
class GrpcTransport(Transport):
    """A stream of its own between the two endpoints, through a port that is open anyway."""

    def __init__(self) -> None:
        super().__init__("grpc", "gRPC")

    def unavailable(self) -> str:
        return ""

    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        return _ExpectedStream(ends, proof)

    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        assert ends.called is not None
        return ends.streams.open(ends.called, ends.caller, proof)


@final
class _ExpectedStream(Expected):
    def __init__(self, ends: LinkEnds, proof: str) -> None:
        super().__init__("")
        self._ends = ends
        self._proof = proof
        self._arrivals = ends.streams.expect(ends.caller, proof)

    def accept(self, deadline: float) -> Link:
        try:
            link = self._arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LinkTimeout("the other end has not connected") from None
        if link is None:
            raise LinkBroken("it went away")
        return link

    def give_up(self) -> None:
        self._arrivals.put(None)

    def close(self) -> None:
        self._ends.streams.forget(self._ends.caller, self._proof)
        while not self._arrivals.empty():  # it has come too late
            if (link := self._arrivals.get()) is not None:
                link.close()


class _DeclinedError(Exception):
    """The caller could not use an offer."""


class _GoneError(LinkBroken):
    """The caller is gone."""


@final
class Negotiation:
    """How one end of a session comes to its link.

    Args:
        stream: What is said goes over it.
        peer: Who is at the other end.
        kinds: What both ends can use, best first.
        ends: The two of them.
    """

    def __init__(
        self, stream: AuthenticatedStream, peer: Member, kinds: Sequence[str], ends: LinkEnds
    ) -> None:
        self._stream = stream
        self._peer = peer
        self._kinds = kinds
        self._ends = ends
        self._changed = threading.Condition()
        self._has_begun = self._is_taken = False
        self._picked: Picked | None = None
        self._problem = ""
        self._tried: tuple[str, Link] | None = None
        self._expected: Expected | None = None
        self._answers: SimpleQueue[Answer | None] = SimpleQueue()

    def pick(self) -> Picked:
        """Return the link, which is the caller's own from now on; wait until it is agreed on.

        Raises:
            LinkBroken: No transport works, or the session has ended.
            LinkTimeout: The other end says nothing.
        """
        self._begin()
        with self._changed:
            self._changed.wait_for(
                lambda: self._picked or self._problem, len(ALL_LINKS) * ACCEPT_SECS + 5.0
            )
            if self._picked is not None:
                self._is_taken = True
                return self._picked
            if self._problem:
                raise LinkBroken(self._problem)
        raise LinkTimeout("no link was agreed on")

    def take(self, frame: Frame) -> None:
        """Act on what the other end says; called by the session's reader."""
        match frame, self._stream.is_caller:
            case WantLink(), False:
                self._begin()
            case Answer(), False:
                self._answers.put(frame)
            case Offer(), True:
                self._stream.send(self._try(frame))
            case Linked(), True:
                self._settle(self._keep(frame))
            case NoLink(), True:
                self._fail(f"no link: {frame.reason}")
            case _:
                raise FrameError(f"a {type(frame).__name__} frame out of place")

    def end(self, reason: str) -> None:
        """Give up, as the session has ended; a link that somebody has taken lives on."""
        self._answers.put(None)
        # In this order: the reader may be connecting, and looks for a problem when it has.
        self._fail(reason)
        self._drop()
        with self._changed:
            if self._expected is not None:
                self._expected.give_up()
            link = self._picked.link if self._picked and not self._is_taken else None
        if link is not None:
            link.close()

    def _begin(self) -> None:
        """Start to agree on a link, once."""
        with self._changed:
            if self._has_begun or self._problem:
                return
            self._has_begun = True
        if self._stream.is_caller:
            self._stream.send(WantLink())
        else:  # not in the reader, which has to hear the answers
            threading.Thread(target=self._offer_all, name="paceline-link", daemon=True).start()

    def _settle(self, picked: Picked) -> None:
        with self._changed:
            # If the session has ended meanwhile nobody will ask for this link, nor close it.
            if not self._problem:
                self._picked = picked
                self._changed.notify_all()
                return
        picked.link.close()

    def _fail(self, problem: str) -> None:
        with self._changed:
            self._problem = self._problem or problem
            self._changed.notify_all()

    def _offer_all(self) -> None:
        """Offer one kind after the other until a link works."""
        problems: list[str] = []
        is_slow = False
        for kind in self._kinds:
            try:
                link = self._offer(kind)
            except _GoneError as error:
                self._fail(str(error))
                return
            except (OSError, LinkError, _DeclinedError) as error:
                if self._problem:  # the session has ended
                    return
                problems.append(f"no {TRANSPORTS[kind].title}: {error}")
                is_slow = is_slow or isinstance(error, LinkTimeout)
                continue
            why = "; ".join(problems)
            if is_slow:  # it might have worked: who looks for lost speed should find this
                text = "arrays to and from %s travel over %s for the whole job (%s)"
                _log.warning(text, self._peer, TRANSPORTS[kind].title, why)
            # In this order: the other end, once told, may say goodbye at once, and it has come.
            self._settle(Picked(link, kind, why))
            self._stream.send(Linked(kind=kind, why=cut(why)))
            return
        reason = "; ".join(problems) or "they have no kind of link in common"
        self._stream.send(NoLink(reason=cut(reason)))
        self._fail(f"no link: {reason}")

    def _offer(self, kind: str) -> Link:
        transport = TRANSPORTS[kind]
        if problem := transport.unavailable():
            raise OSError(problem)
        ticket = secrets.token_hex(TICKET_BYTES)
        deadline = time.monotonic() + ACCEPT_SECS
        with closing(transport.listen(self._ends, self._stream.prove(ticket))) as expected:
            self._stream.send(Offer(kind=kind, address=expected.address, ticket=ticket))
            answer = self._next_answer(kind, deadline)
            if answer.problem:
                raise _DeclinedError(answer.problem)
            return self._accept(expected, deadline)

    def _accept(self, expected: Expected, deadline: float) -> Link:
        with self._changed:
            if self._problem:
                raise _GoneError(self._problem)
            self._expected = expected  # whose stream may be lost, although it has answered
        try:
            return expected.accept(deadline)
        finally:
            with self._changed:
                self._expected = None

    def _next_answer(self, kind: str, deadline: float) -> Answer:
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise LinkTimeout("no answer") from None
            if answer is None:
                raise _GoneError("it went away")
            if answer.kind == kind:  # one about an earlier offer may come late
                return answer

    def _try(self, offer: Offer) -> Answer:
        """Connect to what is offered; return whether that worked."""
        self._drop()
        transport = TRANSPORTS.get(offer.kind) if offer.kind in self._kinds else None
        if transport is None:
            raise FrameError(f"an offer of an unknown link {offer.kind!r}")
        try:
            if problem := transport.unavailable():
                raise OSError(problem)
            proof = self._stream.prove(offer.ticket)
            link = transport.connect(self._ends, offer.address, proof)
        except (OSError, LinkBroken) as error:
            return Answer(kind=offer.kind, problem=cut(str(error).lower()))
        with self._changed:
            self._tried = offer.kind, link
            problem = self._problem
        if problem:  # an offer may come behind the news that the other end gives up
            self._drop()
        return Answer(kind=offer.kind, problem=cut(problem))

    def _keep(self, frame: Linked) -> Picked:
        with self._changed:
            (kind, link), self._tried = self._tried or ("", None), None
        if link is None or kind != frame.kind:
            if link is not None:
                link.close()
            raise FrameError("an agreement on a link that was not offered")
        return Picked(link, kind, frame.why)

    def _drop(self) -> None:
        """Close what was connected and not agreed on."""
        with self._changed:
            tried, self._tried = self._tried, None
        if tried is not None:
            tried[1].close()
