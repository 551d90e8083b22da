"""The control channel: how members find each other, and how they know of each other afterwards.

Between each two members there is one stream, opened by the higher rank; the lower one calls only to
find out who is there, so that both directions are known to work. A stream that ends without a
goodbye means that the member is lost, and whoever sees it tells all others. A member that is
stopped, cut off or switched off keeps its stream; it is lost when its heartbeats have been missing
for `silence_secs`. One that heartbeats may be slow for as long as it likes, as far as this module
is concerned.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

from ..errors import LinkBroken
from ..heartbeats import HEARTBEAT_SECS
from ..link import Health
from ._grpc import Channel, Server, Stream, StreamError
from .authenticated import AuthenticatedStream
from .errors import RendezvousError
from .frames import (
    Accepted,
    Answer,
    Attach,
    Frame,
    FrameError,
    GivingUp,
    Goodbye,
    Heartbeat,
    Hello,
    Linked,
    Lost,
    NoLink,
    Offer,
    Ready,
    VersionError,
    encode,
)
from .handshake import Identity, Purpose, RefusedError, TermsError, answer, call, refusal
from .host import Address, parse_address
from .negotiation import Guest, Taker, Tickets, offer_links
from .roster import Peer, Roster
from .streams import StreamLink
from .visitors import CALL_SECS, OpenStreams, attend_to, max_streams

# A member silent for longer does not hear a goodbye either.
_SILENCE_SECS = 2.5 * HEARTBEAT_SECS

_RETRY_SECS = 0.2
_FAREWELL_SECS = 2.0
_SHORT_FAREWELL_SECS = 0.2
_JOIN_SECS = 5.0
# No more than this is queued for a member that takes nothing.
_MAX_PENDING_BYTES = 16 << 10
# Whoever is turned away stays so long, lest the other one calls in vain and never learns why.
_TURNED_AWAY_SECS = 1.0


@final
class Control(Health):
    """This member's end of all control streams.

    Args:
        identity: Who this member is.
        roster: What is known about the others.
        ip: Where to listen; the port is that of the member's address.
        silence_secs: A member that gives no sign of life for longer is lost.

    Raises:
        RendezvousError: The port cannot be used.
    """

    def __init__(self, identity: Identity, roster: Roster, ip: str, silence_secs: float) -> None:
        self._identity = identity
        self._roster = roster
        self._ip = ip
        self._silence_secs = silence_secs
        self._stopping = threading.Event()
        self._streams = OpenStreams(len(identity.members))
        self._threads: list[threading.Thread] = []
        self._tickets = Tickets()
        self._takers = {
            rank: Taker(peer.address.host, identity.rank, partial(self._open_data_stream, peer))
            for rank, peer in roster.peers.items()
        }
        channels = [Channel(str(peer.address)) for peer in roster.peers.values()]
        self._channels = list(channels)  # those of data streams come on top, soon perhaps
        member = identity.members[identity.rank]
        address = str(Address(ip, parse_address(member).port))
        try:
            self._server = Server(address, max_streams(len(identity.members)), self._serve)
        except OSError as error:
            raise RendezvousError(f"{member} cannot listen: {error}") from error
        self._start("heartbeat", self._keep_alive)
        for peer, channel in zip(roster.peers.values(), channels, strict=True):
            self._start(f"call-{peer.member.rank}", self._call, peer, channel)

    def last_heard(self, rank: int) -> float | None:
        peer = self._roster.peers.get(rank)
        return None if peer is None else self._roster.last_heard(peer)

    def lost(self) -> tuple[int, str] | None:
        return self._roster.lost

    def left(self, rank: int) -> bool:
        return self._roster.peers[rank].has_left

    def announce(self, reason: str) -> None:
        self._roster.announce(reason)

    def close(self) -> None:
        """Say goodbye, wait until the others have heard it, and release the port.

        Called once, by one thread.
        """
        silent = {rank for rank in self._roster.peers if self._is_silent(rank)}
        for link in self._roster.close():
            link.close()
        self._stopping.set()
        late = self._streams.cancel_late(silent, _FAREWELL_SECS)
        self._server.stop(_SHORT_FAREWELL_SECS if silent or late else _FAREWELL_SECS)
        for channel in self._channels:
            channel.close()
        for thread in self._threads:
            thread.join(_JOIN_SECS)

    def _start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(
            target=target, args=arguments, name=f"paceline-ring-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _is_silent(self, rank: int) -> bool:
        """Return whether ``rank`` is connected and yet does not listen."""
        peer = self._roster.peers[rank]
        silent_secs = self.last_heard(rank)
        return peer.stream is not None and silent_secs is not None and silent_secs > _SILENCE_SECS

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            for peer in self._roster.peers.values():
                stream = peer.stream
                if stream is not None and stream.pending_bytes < _MAX_PENDING_BYTES:
                    stream.send(Heartbeat())
            self._streams.cancel_overdue()
            self._roster.clock.tick()
            self._roster.disconnect_silent(self._silence_secs)

    def _call(self, peer: Peer, channel: Channel) -> None:
        """Call ``peer`` until it has been joined or greeted, or all is over."""
        purpose: Purpose = "join" if peer.member.rank < self._identity.rank else "greet"
        while self._roster.needs(peer, to_join=purpose == "join"):
            try:
                self._converse(peer, channel, purpose)
            except RefusedError as error:
                if error.is_final:
                    self._stopping.wait(_TURNED_AWAY_SECS)
                    self._roster.fail(f"{peer.member} {error}")
                self._roster.complain(peer, str(error))
            except VersionError as error:
                self._roster.fail(f"{peer.member} {error}; install one version everywhere")
            except (StreamError, FrameError) as error:
                self._roster.complain(peer, str(error).lower())
            self._stopping.wait(_RETRY_SECS)

    def _converse(self, peer: Peer, channel: Channel, purpose: Purpose) -> None:
        stream = channel.open()
        with self._streams.tracking(stream, CALL_SECS):
            hello, authenticated = call(stream, self._identity, peer.member.rank, purpose)
            self._streams.identify(stream, peer.member.rank)
            if purpose == "join":
                self._roster.admit(peer, authenticated, hello, is_caller=False)
                self._attend(peer, authenticated)
            else:
                self._roster.greet(peer)
                stream.finish()
                deque(authenticated, maxlen=0)

    def _serve(self, stream: Stream) -> None:
        """Find out who has opened ``stream`` and why; attend to it until it ends."""
        with self._streams.tracking(stream):
            attend_to(stream, partial(self._begin, stream), self._roster.turn_away)

    def _begin(self, stream: Stream, messages: Iterator[bytes], first: Frame) -> None:
        self._streams.hear(stream)
        match first:
            case Hello() as hello:
                self._receive(stream, messages, hello)
            case Attach() as shown:
                self._attach(stream, messages, shown)
            case _:
                raise FrameError(f"a {type(first).__name__} frame to begin with")

    def _receive(self, stream: Stream, messages: Iterator[bytes], hello: Hello) -> None:
        """Answer a member's call."""
        try:
            authenticated = answer(stream, messages, self._identity, hello)
        except TermsError as error:
            peer = self._roster.peers.get(hello.rank)
            self._roster.fail(
                f"{peer.member if peer else f'the caller from {stream.peer_ip}'} {error}"
            )
            raise
        peer = self._roster.peers[hello.rank]
        if hello.purpose == "greet":
            authenticated.send(Accepted())
            return
        if hello.rank < self._identity.rank:
            raise FrameError("a lower rank that wants to join")
        try:
            self._roster.admit(peer, authenticated, hello, is_caller=True)
        except RefusedError as error:
            authenticated.send(refusal(error))
            raise
        self._streams.identify(stream, hello.rank)
        self._start(f"link-{hello.rank}", self._offer_links, peer, authenticated, hello)
        self._attend(peer, authenticated)

    def _attach(self, stream: Stream, messages: Iterator[bytes], shown: Attach) -> None:
        """Take a stream for data, if its opener has the ticket."""
        link = self._tickets.redeem(shown, stream, messages)
        if link is None:
            raise FrameError("a data stream with a wrong ticket")
        self._streams.identify(stream, shown.rank)
        link.pump()

    def _attend(self, peer: Peer, stream: AuthenticatedStream) -> None:
        """Listen to ``peer`` until the stream ends."""
        reason = "its connection was closed without a goodbye"
        try:
            for frame in stream:
                self._roster.hear(peer)
                self._take(peer, stream, frame)
        except StreamError as error:
            reason = str(error).lower()
        except FrameError as error:
            reason = f"it sent {error}"
            stream.cancel()
        finally:
            self._takers[peer.member.rank].drop()
            self._roster.disconnect(peer, stream, reason)

    def _take(self, peer: Peer, stream: AuthenticatedStream, frame: Frame) -> None:
        """Act on what ``peer`` has said."""
        match frame:
            case Heartbeat():
                pass
            case Offer():
                peer.say(self._takers[peer.member.rank].connect(frame, stream.prove))
            case Answer():
                peer.answers.put(frame)
            case Linked():
                self._roster.link(peer, stream, self._takers[peer.member.rank].keep(frame))
            case NoLink():
                self._roster.fail(f"no link to {peer.member}: {frame.reason}")
            case Ready():
                self._roster.ready(peer)
            case Lost():
                self._take_loss(peer, frame)
            case GivingUp():
                self._roster.lose(peer, f"it gave up: {frame.reason}")
            case Goodbye():
                self._roster.leave(peer)
            case _:
                raise FrameError(f"a {type(frame).__name__} frame out of place")

    def _take_loss(self, reporter: Peer, frame: Lost) -> None:
        peer = self._roster.peers.get(frame.rank)
        if peer is not None:
            self._roster.lose(peer, f"{frame.reason} (says {reporter.member.task})")

    def _offer_links(self, peer: Peer, stream: AuthenticatedStream, hello: Hello) -> None:
        """Agree with a higher rank on a link."""
        guest = Guest(
            hello.rank, str(peer.member), stream.peer_ip, peer.say, peer.answers, stream.prove
        )
        kinds = [kind for kind in self._identity.links if kind in hello.links]
        try:
            picked = offer_links(guest, kinds, self._ip, self._tickets)
        except LinkBroken as error:
            if peer.stream is stream:
                self._roster.fail(f"no link to {peer.member}: {error}")
        else:
            self._roster.link(peer, stream, picked)

    def _open_data_stream(self, peer: Peer, proof: str) -> StreamLink:
        """Open a stream for data, over a connection that heartbeats need not share."""
        channel = Channel(str(peer.address))
        self._channels.append(channel)
        stream = channel.open()
        link = StreamLink(stream, iter(stream))
        stream.send(encode(Attach(rank=self._identity.rank, ticket=proof)))
        rank = peer.member.rank
        self._start(f"data-{rank}", self._pump, rank, stream, link)
        return link

    def _pump(self, rank: int, stream: Stream, link: StreamLink) -> None:
        with self._streams.tracking(stream, CALL_SECS):
            self._streams.identify(stream, rank)
            link.pump()
