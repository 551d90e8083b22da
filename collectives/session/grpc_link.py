"""Links over gRPC streams: slower than the others, but through the one port that is open anyway.

gRPC takes in tens of megabytes before it slows a sender down, hence limits of our own: a message is
a sequence of parts, each of them

    offset  bytes
         0      8   how many bytes the sender of this has released so far
         8      8   size of the data
        16    ...   the data, and zeros up to the next multiple of 16
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from queue import SimpleQueue
from typing import final

import numpy as np

from ..errors import LinkBroken
from ..link import Bell, Link
from .addresses import Address
from .frames import Attach, encode
from .grpc_stream import MAX_SEND_BYTES, Channel, Stream, StreamError

SEGMENT_BYTES = MAX_SEND_BYTES
# Nothing is sent while this much has not been released at the other end.
WINDOW_BYTES = 8 << 20

_PREFIX = struct.Struct("<QQ")
_ALIGNMENT = 16
_ZEROS = bytes(_ALIGNMENT)


@final
class StreamLink(Link):
    """A link over one stream. Some thread has to run `pump` until it returns.

    Args:
        stream: For what goes out.
        messages: What comes in over it.
    """

    def __init__(self, stream: Stream, messages: Iterator[bytes]) -> None:
        super().__init__(SEGMENT_BYTES, spins=False)
        stream.joins = True
        self._stream = stream
        self._messages = messages
        self._moved = threading.Lock()
        self._bell = Bell()
        self._inbox: deque[memoryview] = deque()
        self._num_bytes = 0
        self._position = 0
        self._asked_bytes = 1
        self._wants_room = False
        self._released = 0
        self._reported = 0
        self._sent = 0
        self._taken = 0
        self._ended = ""

    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        if self._ended:
            raise LinkBroken(self._ended)
        if not self._has_room():
            return 0
        num_bytes = min(len(data), SEGMENT_BYTES)
        self._sent += num_bytes
        self._say(data[:num_bytes])
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

    def try_receive(self, target: memoryview) -> int:
        if self.try_peek(1) is None:
            return 0
        message = self._inbox[0][: len(target)]
        target[: len(message)] = message
        self.release(len(message))
        return len(message)

    def release(self, num_bytes: int) -> None:
        with self._moved:
            first = self._inbox.popleft()
            if num_bytes < len(first):
                self._inbox.appendleft(first[num_bytes:])
            self._num_bytes -= num_bytes
            self._released += num_bytes
        if self._released - self._reported >= WINDOW_BYTES // 4:
            self._say(memoryview(b""))

    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        with self._moved:
            if self._ended or (to_receive and self._num_bytes >= self._asked_bytes):
                return None
            if to_send and self._has_room():
                return None
            self._wants_room = to_send
            return self._bell.begin_wait()

    def end_wait(self) -> None:
        with self._moved:
            self._bell.end_wait()

    def close(self) -> None:
        self._stream.finish()
        self._end("this end is closed")
        with self._moved:
            self._bell.close()

    def pump(self) -> None:
        """Take in what arrives until the stream ends."""
        try:
            for message in self._messages:
                self._take(memoryview(message))
            self._end("it has closed its end")
        except StreamError as error:
            self._end(str(error))
        except (struct.error, _OverrunError):
            self._end("it sent what this protocol does not allow")
            self._stream.cancel()

    def _say(self, data: memoryview) -> None:
        self._reported = self._released
        prefix = _PREFIX.pack(self._reported, len(data))
        self._stream.send(b"".join((prefix, data, _ZEROS[: -len(data) % _ALIGNMENT])))

    def _take(self, message: memoryview) -> None:
        while message:
            taken, num_bytes = _PREFIX.unpack_from(message)
            stop = _PREFIX.size + num_bytes
            data, message = message[_PREFIX.size : stop], message[stop + -stop % _ALIGNMENT :]
            with self._moved:
                self._note(taken, data)
                if len(data) != num_bytes or self._num_bytes > WINDOW_BYTES + SEGMENT_BYTES:
                    raise _OverrunError

    def _note(self, taken: int, data: memoryview) -> None:
        """Enter one part, and wake up whoever waits for it."""
        self._taken = taken
        if len(data):
            self._inbox.append(_joined([data], self._position % _ALIGNMENT))
            self._position += len(data)
            self._num_bytes += len(data)
        if self._num_bytes >= self._asked_bytes or (self._wants_room and self._has_room()):
            self._bell.ring()

    def _has_room(self) -> bool:
        return self._sent - self._taken < WINDOW_BYTES

    def _end(self, reason: str) -> None:
        with self._moved:
            self._ended = self._ended or reason
            self._bell.ring()

    def _join(self, num_bytes: int) -> None:
        """Make the first messages one that has ``num_bytes``."""
        with self._moved:
            start = self._position - self._num_bytes
            parts: list[memoryview] = []
            while sum(map(len, parts)) < num_bytes:
                parts.append(self._inbox.popleft())
            self._inbox.appendleft(_joined(parts, start % _ALIGNMENT))


@final
class DataStreams:
    """The data streams of an endpoint: those that it opens, and those that it expects.

    A stream is expected by a hash of the rank and of the proof that it will show, so that how long
    a look-up takes tells nothing about them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: dict[bytes, SimpleQueue[StreamLink | None]] = {}
        self._opened: set[Channel] = set()

    def expect(self, rank: int, proof: str) -> SimpleQueue[StreamLink | None]:
        """Return the queue into which the link over the stream of ``rank`` will be put."""
        arrivals: SimpleQueue[StreamLink | None] = SimpleQueue()
        with self._lock:
            self._expected[_key(rank, proof)] = arrivals
        return arrivals

    def forget(self, rank: int, proof: str) -> None:
        """Expect that stream no longer."""
        with self._lock:
            self._expected.pop(_key(rank, proof), None)

    def redeem(self, shown: Attach, stream: Stream, messages: Iterator[bytes]) -> StreamLink | None:
        """Return the link over a stream that was opened with a proof, or None if it is wrong."""
        with self._lock:
            arrivals = self._expected.pop(_key(shown.rank, shown.ticket), None)
            if arrivals is None:
                return None
            link = StreamLink(stream, messages)
            arrivals.put(link)  # before anybody can `forget` it, who then looks for what has come
        return link

    def open(self, address: Address, rank: int, proof: str) -> StreamLink:
        """Return the link over a new stream; heartbeats need not share its connection."""
        channel = Channel(str(address))
        with self._lock:
            self._opened.add(channel)
        stream = channel.open()
        link = StreamLink(stream, iter(stream))
        stream.send(encode(Attach(rank=rank, ticket=proof)))
        threading.Thread(
            target=self._pump, args=(link, channel), name="paceline-data", daemon=True
        ).start()
        return link

    def close(self) -> None:
        """Break all streams that were opened here."""
        with self._lock:
            channels = list(self._opened)
        for channel in channels:
            channel.close()

    def _pump(self, link: StreamLink, channel: Channel) -> None:
        link.pump()
        channel.close()
        with self._lock:
            self._opened.discard(channel)


class _OverrunError(Exception):
    """The other end has sent more than it may."""


def _joined(parts: list[memoryview], offset: int) -> memoryview:
    """Return ``parts`` as one, ``offset`` bytes behind an aligned address, as messages begin."""
    if len(parts) == 1 and offset == 0:
        return parts[0]
    num_bytes = sum(map(len, parts))
    joined = np.empty(offset + num_bytes, np.uint8).data[offset:]
    start = 0
    for part in parts:
        joined[start : start + len(part)] = part
        start += len(part)
    return joined


def _key(rank: int, proof: str) -> bytes:
    return blake2b(f"{rank} {proof}".encode(), digest_size=16).digest()
