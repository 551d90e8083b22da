"""A session: the conversation of two processes that have made sure of each other.

It is one control stream. Each end gives signs of life over it and listens for those of the other;
it ends with a goodbye, with the reason for which one end gives up, or in a loss: the stream breaks,
or the other end has been silent for too long. The link for arrays is agreed on when either end
first asks for it. Both ends are alike, except that the one that was called offers links.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from ..heartbeats import HEARTBEAT_SECS, AwakeClock
from ..link import Health, Link
from ..members import Member
from ..stacks import show_stacks
from .frames import (
    Answer,
    Frame,
    FrameError,
    GivingUp,
    Goodbye,
    Heartbeat,
    Hello,
    Linked,
    NoLink,
    Offer,
    ShowStacks,
    WantLink,
    cut,
)
from .grpc_stream import StreamError
from .handshake import AuthenticatedStream, RefusedError
from .links import LinkEnds, Negotiation, Picked

# No more than this is queued for an end that takes nothing.
_MAX_PENDING_BYTES = 16 << 10
# Who has been silent for longer does not hear a goodbye either.
_DEAF_SECS = 2.5 * HEARTBEAT_SECS
_OTHER = 1


@final
class Session(Health):
    """One end of a session. As `Health` it is the news of a world of two: rank 1 is the other end.

    Args:
        stream: The control stream.
        peer: Who is at the other end.
        hello: What that has said about itself.
        handler: Told what happens.
        clock: Tells how long the other end has been silent.
        links: What this end can use for data, best first.
        ends: The two ends, for the link.
        tell_others: Hands a frame to all sessions of this process but this one.

    Attributes:
        peer: The same.
        hello: The same.
        peer_ip: From where the other end has called; empty if this end has.
        is_caller: Whether this end has called.
        ended: Why the other end is of no use any more; empty while all is well.
        has_left: Whether that is a goodbye, and nothing was wrong before.
        has_given_up: Whether the other end has said that it gives up.
        picked: The link and what it is made of, once it was asked for here.
    """

    def __init__(
        self,
        stream: AuthenticatedStream,
        peer: Member,
        hello: Hello,
        handler: SessionHandler,
        clock: AwakeClock,
        links: tuple[str, ...],
        ends: LinkEnds,
        tell_others: Callable[[Session, ShowStacks], None],
    ) -> None:
        self.peer = peer
        self.hello = hello
        self.peer_ip = stream.peer_ip
        self.is_caller = stream.is_caller
        self.ended = ""
        self.has_left = self.has_given_up = False
        self.picked: Picked | None = None
        self._stream = stream
        self._handler = handler
        self._clock = clock
        self._tell_others = tell_others
        self._heard_at = clock.now()
        self._ending = threading.Lock()
        # In the order of the end that offers, so that both mean the same.
        first, second = (hello.links, links) if stream.is_caller else (links, hello.links)
        kinds = [kind for kind in first if kind in second]
        self._negotiation = Negotiation(stream, peer, kinds, ends)

    def last_heard(self, rank: int = _OTHER) -> float:
        return self._clock.now() - self._heard_at

    def lost(self) -> tuple[int, str] | None:
        return (_OTHER, self.ended) if self.ended else None

    def left(self, rank: int = _OTHER) -> bool:
        return self.has_left

    def announce(self, reason: str) -> None:
        self.send(GivingUp(reason=cut(reason)))

    def show_stacks(self, why: str) -> None:
        self.send(ShowStacks(why=cut(why)))

    @property
    def is_deaf(self) -> bool:
        """Whether the other end has been silent for so long that it hears nothing either."""
        return self.last_heard() > _DEAF_SECS

    def send(self, frame: Frame) -> None:
        """Queue ``frame``. Never waits, never raises; lost if the stream is broken."""
        self._stream.send(frame)

    def link(self) -> Link:
        """Return the link to the other end, owned by who asks; at first it is agreed on.

        Raises:
            LinkBroken: There is none that works, or the session has ended.
            LinkTimeout: The other end says nothing about it.
        """
        self.picked = self._negotiation.pick()
        return self.picked.link

    def close(self, reason: str = "") -> None:
        """Say goodbye, or why this end gives up, and nothing after that."""
        self.send(GivingUp(reason=cut(reason)) if reason else Goodbye())
        self._stream.finish()

    def cancel(self, reason: str) -> None:
        """End the session now: the other end is of no use any more, for this reason."""
        self._end(reason)
        self._stream.cancel()

    def keep_alive(self, silence_secs: float) -> None:
        """Give a sign of life, and look for one; called every `HEARTBEAT_SECS`."""
        # A stopped process takes nothing for a while, and what it does not take is kept here.
        if self._stream.pending_bytes < _MAX_PENDING_BYTES:
            self._stream.send(Heartbeat())
        silent_secs = self.last_heard()
        if silent_secs > silence_secs:
            self.cancel(f"it has been silent for {silent_secs:.3g} s")

    def accept(self) -> None:
        """Tell the other end, which has called, that it is in."""
        self._stream.accept()

    def listen(self) -> None:
        """Listen to the other end until the stream ends."""
        reason = "its connection was closed without a goodbye"
        try:
            for frame in self._stream:
                self._heard_at = self._clock.now()
                self._take(frame)
        except StreamError as error:
            reason = str(error).lower()
        except FrameError as error:
            reason = f"it sent {error}"
            self._stream.cancel()
        finally:
            self._end(reason)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Heartbeat():
                pass
            case GivingUp():
                self.has_given_up = not self.ended
                self._end(f"it gave up: {frame.reason}")
            case Goodbye():
                # Who has given up says goodbye, too, when it closes: that does not make it well.
                self.has_left = not self.ended
                self._end("it has ended")
            case ShowStacks():
                if show_stacks(frame.why):  # once: so the question ends when all have heard it
                    self._tell_others(self, frame)
            case WantLink() | Offer() | Answer() | Linked() | NoLink():
                self._negotiation.take(frame)
            case _:
                self._handler.receive(self, frame)

    def _end(self, reason: str) -> None:
        """Note how it has ended, and tell; the first reason counts."""
        # The heartbeat thread (silence) and the reader (everything else) may come at once.
        with self._ending:
            if self.ended:
                return
            self.ended = reason
        self._negotiation.end(reason)
        self._handler.ended(self)


class SessionHandler(ABC):
    """What a process does about its sessions. Called by threads of the endpoint; may not wait."""

    @abstractmethod
    def admit(self, session: Session) -> None:
        """Take a session up that either end has opened, before anything comes over it.

        The other end, if it has called, is told right afterwards that it is in, or when something
        is sent to it, whichever is first.

        Raises:
            RefusedError: It is not wanted.
        """

    @abstractmethod
    def receive(self, session: Session, frame: Frame) -> None:
        """Act on a frame that is not about the session itself.

        Raises:
            FrameError: It is out of place, which ends the session.
        """

    @abstractmethod
    def ended(self, session: Session) -> None:
        """Note that a session has ended, once for each one that was admitted; it says how."""

    @abstractmethod
    def turned_away(self, caller: str, error: RefusedError) -> None:
        """Note that a caller was turned away, and why.

        Args:
            caller: Such as "a caller from 10.0.0.7"; its name if it knows the token.
            error: A `TermsError` if it knows the token.
        """
