"""Two members find the link to use between them: the first kind that both have and that works.

The lower rank of a pair offers one kind after the other: it listens and says where, together with a
random ticket; the higher rank connects, shows a proof made of the ticket and of the key of their
conversation, and answers; the lower rank checks what has come and says that this is the link, or
goes on with the next kind.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from queue import Empty, SimpleQueue
from typing import final

from ..errors import LinkBroken, LinkError, LinkTimeout
from ..link import Link, LinkKind
from . import shared_memory
from ._grpc import Stream
from .frames import Answer, Attach, Frame, FrameError, Linked, NoLink, Offer, cut
from .sockets import TICKET_BYTES, Listener
from .streams import StreamLink
from .tcp import TcpLink, connect_tcp, listen_tcp

# A member that heartbeats and is slow is worth waiting for: the link is for the whole job.
ACCEPT_SECS = 60.0

_log = logging.getLogger("paceline")

KIND_NAMES: dict[LinkKind, str] = {"shm": "shared memory", "tcp": "TCP", "grpc": "gRPC"}


@dataclass(frozen=True)
class Picked:
    """The link of a pair.

    Attributes:
        link: This end of it.
        kind: What it is made of.
        why: Why the kinds before it were not taken; empty if there were none.
    """

    link: Link
    kind: LinkKind
    why: str


@final
class Tickets:
    """Data streams that are expected, by a hash of the rank and the ticket that they will show."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: dict[bytes, SimpleQueue[StreamLink]] = {}

    def expect(self, rank: int, ticket: str) -> SimpleQueue[StreamLink]:
        """Return the queue into which the link over the stream of ``rank`` will be put."""
        arrivals: SimpleQueue[StreamLink] = SimpleQueue()
        with self._lock:
            self._expected[_key(rank, ticket)] = arrivals
        return arrivals

    def forget(self, rank: int, ticket: str) -> None:
        """Expect that stream no longer."""
        with self._lock:
            self._expected.pop(_key(rank, ticket), None)

    def redeem(self, shown: Attach, stream: Stream, messages: Iterator[bytes]) -> StreamLink | None:
        """Return the link over a stream that was opened with a ticket, or None if it is wrong."""
        with self._lock:
            arrivals = self._expected.pop(_key(shown.rank, shown.ticket), None)
        if arrivals is None:
            return None
        link = StreamLink(stream, messages)
        arrivals.put(link)
        return link


@dataclass(frozen=True)
class Guest:
    """The higher rank of a pair, as the lower one sees it.

    Attributes:
        rank: Its rank.
        name: Its name, for the log.
        ip: From where it has called.
        send: Says something to it.
        answers: Its answers to offers; None when it is gone.
        prove: Makes of a ticket what it will show.
    """

    rank: int
    name: str
    ip: str
    send: Callable[[Frame], None]
    answers: SimpleQueue[Answer | None]
    prove: Callable[[str], str]


def offer_links(guest: Guest, kinds: Sequence[LinkKind], ip: str, tickets: Tickets) -> Picked:
    """Offer ``kinds`` to a guest, one after the other, and return the first link that works.

    Args:
        guest: The higher rank.
        kinds: What both can use, best first.
        ip: Where this member listens.
        tickets: Where streams are expected.

    Raises:
        LinkBroken: None works, or the guest is gone.
    """
    problems: list[str] = []
    is_slow = False
    for kind in kinds:
        try:
            link = _offer(guest, kind, ip, tickets)
        except _GoneError:
            raise
        except (OSError, LinkError, _DeclinedError) as error:
            problems.append(f"no {KIND_NAMES[kind]}: {error}")
            is_slow = is_slow or isinstance(error, LinkTimeout)
            continue
        why = "; ".join(problems)
        if is_slow:  # it might have worked: who looks for lost speed should find this
            text = "arrays to and from %s travel over %s for the whole job (%s)"
            _log.warning(text, guest.name, KIND_NAMES[kind], why)
        guest.send(Linked(kind=kind, why=cut(why)))
        return Picked(link, kind, why)
    reason = "; ".join(problems) or "they have no kind of link in common"
    guest.send(NoLink(reason=cut(reason)))
    raise LinkBroken(reason)


@final
class Taker:
    """The higher rank of a pair: connects to what it is offered, and keeps what is agreed on.

    Args:
        host: The lower rank's host name.
        rank: This rank.
        open_stream: Returns the link over a new stream to the lower rank, given the proof to show.
    """

    def __init__(self, host: str, rank: int, open_stream: Callable[[str], Link]) -> None:
        self._host = host
        self._rank = rank
        self._open_stream = open_stream
        self._tried: tuple[LinkKind, Link] | None = None

    def connect(self, offer: Offer, prove: Callable[[str], str]) -> Answer:
        """Connect to what is offered, showing what ``prove`` makes of the ticket.

        Returns:
            Whether that worked.
        """
        self.drop()
        try:
            self._tried = (offer.kind, self._connect(offer, prove(offer.ticket)))
        except (OSError, LinkBroken) as error:
            return Answer(kind=offer.kind, problem=cut(str(error).lower()))
        return Answer(kind=offer.kind, problem="")

    def keep(self, frame: Linked) -> Picked:
        """Return the link that the lower rank has agreed to.

        Raises:
            FrameError: It is another one than that offered last.
        """
        kind, link = self._tried or (None, None)
        if link is None or kind != frame.kind:
            raise FrameError("an agreement on a link that was not offered")
        self._tried = None
        return Picked(link, frame.kind, frame.why)

    def drop(self) -> None:
        """Close what was connected and not agreed on."""
        if self._tried is not None:
            self._tried[1].close()
            self._tried = None

    def _connect(self, offer: Offer, proof: str) -> Link:
        match offer.kind:
            case "shm":
                if problem := shared_memory.why_not():
                    raise OSError(problem)
                return shared_memory.connect_shared_memory(offer.address, self._rank, proof)
            case "tcp":
                return connect_tcp(self._host, offer.address, self._rank, proof)
            case _:
                return self._open_stream(proof)


def _key(rank: int, ticket: str) -> bytes:
    """Return what a ticket is looked up by, so that how long it takes tells nothing about it."""
    return blake2b(f"{rank} {ticket}".encode(), digest_size=16).digest()


class _DeclinedError(Exception):
    """The guest could not use an offer."""


class _GoneError(LinkBroken):
    """The guest is gone."""


class _Waiting(ABC):
    """Somewhere a guest is expected. ``address`` is for the offer."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def accept(self, deadline: float) -> Link:
        """Return the link to the guest, once it has come."""

    @abstractmethod
    def close(self) -> None:
        """Expect it no longer."""


def _offer(guest: Guest, kind: LinkKind, ip: str, tickets: Tickets) -> Link:
    ticket = secrets.token_hex(TICKET_BYTES)
    deadline = time.monotonic() + ACCEPT_SECS
    with closing(_wait_for(guest, kind, ip, tickets, guest.prove(ticket))) as waiting:
        guest.send(Offer(kind=kind, address=waiting.address, ticket=ticket))
        answer = _next_answer(guest, kind, deadline)
        if answer.problem:
            raise _DeclinedError(answer.problem)
        return waiting.accept(deadline)


def _next_answer(guest: Guest, kind: LinkKind, deadline: float) -> Answer:
    while True:
        try:
            answer = guest.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LinkTimeout("no answer") from None
        if answer is None:
            raise _GoneError("it went away")
        if answer.kind == kind:
            return answer


def _wait_for(guest: Guest, kind: LinkKind, ip: str, tickets: Tickets, proof: str) -> _Waiting:
    match kind:
        case "shm":
            if problem := shared_memory.why_not():
                raise OSError(problem)
            return _WaitingForMemory(*shared_memory.listen_shared_memory(guest.rank, proof))
        case "tcp":
            return _WaitingForTcp(*listen_tcp(ip, guest.rank, proof, guest.ip))
        case _:
            return _WaitingForStream(guest.rank, proof, tickets)


@final
class _WaitingForMemory(_Waiting):
    def __init__(self, listener: Listener, address: str) -> None:
        super().__init__(address)
        self._listener = listener

    def accept(self, deadline: float) -> Link:
        return shared_memory.accept_shared_memory(*self._listener.accept(deadline))

    def close(self) -> None:
        self._listener.close()


@final
class _WaitingForTcp(_Waiting):
    def __init__(self, listener: Listener, address: str) -> None:
        super().__init__(address)
        self._listener = listener

    def accept(self, deadline: float) -> Link:
        connected, _ = self._listener.accept(deadline)
        return TcpLink(connected)

    def close(self) -> None:
        self._listener.close()


@final
class _WaitingForStream(_Waiting):
    def __init__(self, rank: int, ticket: str, tickets: Tickets) -> None:
        super().__init__("")
        self._rank = rank
        self._ticket = ticket
        self._tickets = tickets
        self._arrivals = tickets.expect(rank, ticket)

    def accept(self, deadline: float) -> Link:
        try:
            return self._arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LinkTimeout("the other end has not connected") from None

    def close(self) -> None:
        self._tickets.forget(self._rank, self._ticket)
