"""A client's end of a control stream, and the link that is agreed on over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from ..errors import LinkBroken
from ..link import ALL_LINKS
from ..ring._grpc import Channel, Stream, StreamError
from ..ring.frames import (
    Attach,
    Frame,
    FrameError,
    Goodbye,
    Linked,
    NoLink,
    Offer,
    Visit,
    encode,
)
from ..ring.handshake import Identity, call
from ..ring.host import parse_address
from ..ring.negotiation import ACCEPT_SECS, Picked, Taker
from ..ring.streams import StreamLink
from .line import Line
from .pair import CLIENT, SERVER
from .timing import HEARTBEAT_SECS

_HANDSHAKE_SECS = 10.0
# As long as the server offers each kind of link, and a little.
_LINK_SECS = len(ALL_LINKS) * ACCEPT_SECS + 5.0
_FAREWELL_SECS = 2.0
_JOIN_SECS = 5.0


class SlowError(Exception):
    """The server has accepted a call, but says nothing in time."""


@final
class Joining:
    """A client's end of the control stream, and the link that was agreed on over it.

    Args:
        channel: To the server; closed with this if all goes well, else left to be tried again.
        identity: Who we are.
        silence_secs: How long the server may give no sign of life.
        deadline: When it has to be there (`time.monotonic()`).

    Attributes:
        incarnation: Of the server.
        line: News of the server.
        picked: The link.

    Raises:
        RefusedError: One side does not take the other.
        StreamError, FrameError, LinkBroken: It did not come about.
        SlowError: The server says nothing.
    """

    def __init__(
        self, channel: Channel, identity: Identity, silence_secs: float, deadline: float
    ) -> None:
        self._channel = channel
        self._data_channel: Channel | None = None
        self._address = parse_address(identity.members[SERVER])
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._found: Picked | None = None
        self._no_link = ""
        self._stopping = threading.Event()
        self._taker = Taker(self._address.host, CLIENT, self._open_data_stream)
        me = identity.members[CLIENT]
        self._stream = stream = channel.open()
        try:
            with _limited(stream, min(deadline, time.monotonic() + _HANDSHAKE_SECS)):
                stream.send(encode(Visit(rank=me.rank, task=me.task, address=me.address)))
                hello, authenticated = call(stream, identity, SERVER, "join")
        except BaseException:
            stream.cancel()
            raise
        self.incarnation = hello.incarnation
        self.line = Line(authenticated, silence_secs)
        self._prove = authenticated.prove
        self._start("attend", self._attend)
        self._start("heartbeat", self._keep_alive)
        self.picked = self._await_link()

    def close(self) -> None:
        """Say goodbye and wait until the server has heard it, if it is there."""
        self.line.say(Goodbye())
        self._stop(0.0 if self.line.lost() else _FAREWELL_SECS)
        self._channel.close()

    def _stop(self, farewell_secs: float) -> None:
        """End the stream and the threads."""
        self._stopping.set()
        self._stream.finish()
        attending = self._threads[0]
        attending.join(farewell_secs)
        if attending.is_alive():
            self._stream.cancel()
        self._taker.drop()
        if self._data_channel is not None:
            self._data_channel.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(
            target=target, args=arguments, name=f"paceline-ps-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _attend(self) -> None:
        self.line.attend(self._take)
        with self._changed:
            self._changed.notify_all()

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            self.line.beat()

    def _await_link(self) -> Picked:
        with self._changed:
            self._changed.wait_for(
                lambda: self._found or self._no_link or self.line.lost(), _LINK_SECS
            )
            found, lost = self._found, self.line.lost()
        if found is None:
            self._stop(0.0)
            raise LinkBroken(self._no_link or (lost[1] if lost else "no link was agreed on"))
        return found

    def _take(self, frame: Frame) -> None:
        match frame:
            case Offer():
                self.line.say(self._taker.connect(frame, self._prove))
            case Linked():
                with self._changed:
                    self._found = self._taker.keep(frame)
                    self._changed.notify_all()
            case NoLink():
                with self._changed:
                    self._no_link = f"no link: {frame.reason}"
                    self._changed.notify_all()
            case _:
                raise FrameError(f"a {type(frame).__name__} frame out of place")

    def _open_data_stream(self, proof: str) -> StreamLink:
        """Open a stream for messages, over a connection that heartbeats need not share."""
        if self._data_channel is None:
            self._data_channel = Channel(str(self._address))
        stream = self._data_channel.open()
        link = StreamLink(stream, iter(stream))
        stream.send(encode(Attach(rank=CLIENT, ticket=proof)))
        self._start("data", link.pump)
        return link


@contextmanager
def _limited(stream: Stream, deadline: float) -> Iterator[None]:
    """Within it, ``stream`` is broken when time is up.

    Raises:
        SlowError: It was.
    """
    timer = threading.Timer(max(0.01, deadline - time.monotonic()), stream.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    except StreamError:
        if time.monotonic() < deadline:
            raise
        raise SlowError from None
    finally:
        timer.cancel()
        timer.join()
