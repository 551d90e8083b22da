"""A stream after its handshake: every frame shows that it comes from the other end, and in order.

Each frame is followed by 16 bytes of a keyed hash over the direction, the frame's number in that
direction, and the frame. The key comes from the handshake (see `handshake`), so that it is another
one in each conversation. A frame that was made up, changed, left out, repeated or put elsewhere
ends the stream. What is said is not encrypted.

Links are not streams of this kind. That the right two ends opened one is shown by a proof made with
the same key (`prove`); the bytes of arrays are then as safe as the network between the two hosts,
which is as fast as it is because nothing is computed over them. Shared memory has no name that
another process could open.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from typing import final

from ._grpc import Stream
from .frames import MAX_FRAME_BYTES, Frame, FrameError, decode, encode

TAG_BYTES = 16


@final
class AuthenticatedStream:
    """One end of it. One thread iterates over the frames that come; any thread sends.

    Args:
        stream: What carries it.
        messages: What comes in over that.
        key: The key of this conversation.
        is_caller: Whether this end has opened it.

    Iteration raises `FrameError` if a frame is not what the other end sent next, and `StreamError`
    if the stream breaks.
    """

    def __init__(
        self, stream: Stream, messages: Iterator[bytes], key: bytes, *, is_caller: bool
    ) -> None:
        self._stream = stream
        self._messages = messages
        self._key = key
        self._outgoing, self._incoming = (
            (b"caller", b"other") if is_caller else (b"other", b"caller")
        )
        self._sending = threading.Lock()
        self._num_sent = self._num_received = 0

    @property
    def peer_ip(self) -> str:
        """From where it was opened; empty at the end that opened it."""
        return self._stream.peer_ip

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._stream.pending_bytes

    def send(self, frame: Frame) -> None:
        """Queue ``frame``. Never waits, never raises; lost if the stream is broken."""
        data = encode(frame)
        with self._sending:  # in the order of their numbers
            self._stream.send(data + self._tag(self._outgoing, self._num_sent, data))
            self._num_sent += 1

    def finish(self) -> None:
        """Send nothing more after what is queued."""
        self._stream.finish()

    def cancel(self) -> None:
        """Break the stream now, at both ends."""
        self._stream.cancel()

    def prove(self, ticket: str) -> str:
        """Return what shows, where ``ticket`` is asked for, that it comes from one of the two."""
        return hmac.digest(self._key, f"ticket {ticket}".encode(), "sha256").hex()

    def __iter__(self) -> Iterator[Frame]:
        for message in self._messages:
            yield decode(self._opened(message))

    def _opened(self, message: bytes) -> bytes:
        """Return the frame in ``message``, of which nothing is looked at before its tag."""
        if len(message) > MAX_FRAME_BYTES + TAG_BYTES:
            raise FrameError(f"a frame of {len(message)} bytes")
        data, tag = message[:-TAG_BYTES], message[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(self._incoming, self._num_received, data)):
            raise FrameError("a frame that its authenticator does not fit")
        self._num_received += 1
        return data

    def _tag(self, direction: bytes, number: int, data: bytes) -> bytes:
        text = b"%s %d " % (direction, number) + data
        return hmac.digest(self._key, text, "sha256")[:TAG_BYTES]
