"""Links over gRPC streams: slower than the others, but through the one port that is open anyway."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import final

import numpy as np

from ..errors import LinkBroken
from ..link import Link
from ._grpc import MAX_MESSAGE_BYTES, Stream, StreamError

SEGMENT_BYTES = 1 << 20

# What may be on its way in each direction before the sender has to wait.
_OUTBOX_BYTES = 8 << 20
_INBOX_BYTES = 8 << 20
_ALIGNMENT = 64


@final
class StreamLink(Link):
    """A link over one stream. Some thread has to run `pump` until it returns.

    Args:
        stream: For what goes out.
        messages: What comes in over it.
    """

    def __init__(self, stream: Stream, messages: Iterator[bytes]) -> None:
        super().__init__(SEGMENT_BYTES)
        stream.on_taken = self._note
        stream.max_joined_bytes = MAX_MESSAGE_BYTES
        self._stream = stream
        self._messages = messages
        self._moved = threading.Condition()
        self._inbox: deque[memoryview] = deque()
        self._num_bytes = 0
        self._position = 0
        self._asked_bytes = 1
        self._ended = ""
        self._is_ending = False

    def try_send(self, data: memoryview) -> int:
        if self._ended:
            raise LinkBroken(self._ended)
        room = _OUTBOX_BYTES - self._stream.pending_bytes
        num_bytes = min(len(data), room, MAX_MESSAGE_BYTES)
        if num_bytes <= 0:
            return 0
        self._stream.send(bytes(data[:num_bytes]))
        return num_bytes

    def try_peek(self, num_bytes: int) -> memoryview | None:
        # What has arrived counts, even if the stream ended right after it: hence this order.
        ended = self._ended
        if self._num_bytes < num_bytes:
            if ended:
                raise LinkBroken(ended)
            self._asked_bytes = num_bytes
            return None
        if len(self._inbox[0]) < num_bytes:
            self._join(num_bytes)
        return self._inbox[0][:num_bytes]

    def release(self, num_bytes: int) -> None:
        with self._moved:
            first = self._inbox.popleft()
            if num_bytes < len(first):
                self._inbox.appendleft(first[num_bytes:])
            self._num_bytes -= num_bytes
            self._moved.notify_all()

    def wait(self, timeout_secs: float, *, to_send: bool, to_receive: bool) -> None:
        with self._moved:
            if self._ended or (to_receive and self._num_bytes >= self._asked_bytes):
                return
            if to_send and self._stream.pending_bytes < _OUTBOX_BYTES:
                return
            self._moved.wait(timeout_secs)

    def close(self) -> None:
        self._stream.finish()
        self._end("this end is closed")

    def expect_end(self) -> None:
        """Take in everything that comes from now on: the other side waits for that and leaves."""
        with self._moved:
            self._is_ending = True
            self._moved.notify_all()

    def pump(self) -> None:
        """Take in what arrives until the stream ends."""
        try:
            for message in self._messages:
                self._take(memoryview(message))
            self._end("it has closed its end")
        except StreamError as error:
            self._end(str(error))

    def _take(self, message: memoryview) -> None:
        with self._moved:
            while self._num_bytes >= _INBOX_BYTES and not (self._is_ending or self._ended):
                self._moved.wait()
            if self._ended:
                return
            self._inbox.append(_joined([message], self._position % _ALIGNMENT))
            self._position += len(message)
            self._num_bytes += len(message)
            if self._num_bytes >= self._asked_bytes:
                self._moved.notify_all()

    def _end(self, reason: str) -> None:
        with self._moved:
            self._ended = self._ended or reason
            self._moved.notify_all()

    def _note(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def _join(self, num_bytes: int) -> None:
        """Make the first messages one that has ``num_bytes``."""
        with self._moved:
            start = self._position - self._num_bytes
            parts: list[memoryview] = []
            while sum(map(len, parts)) < num_bytes:
                parts.append(self._inbox.popleft())
            self._inbox.appendleft(_joined(parts, start % _ALIGNMENT))


def _joined(parts: list[memoryview], offset: int) -> memoryview:
    """Return ``parts`` as one, ``offset`` bytes behind an aligned address; bytes objects are."""
    if len(parts) == 1 and offset == 0:
        return parts[0]
    num_bytes = sum(map(len, parts))
    joined = np.empty(offset + num_bytes, np.uint8).data[offset:]
    start = 0
    for part in parts:
        joined[start : start + len(part)] = part
        start += len(part)
    return joined
