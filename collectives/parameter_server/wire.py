"""Messages over a link: sent straight from the arrays' memory, received straight into their place.

Where both ends are on one host large arrays lie in memory that they share (`places`), and are not
sent. The trainer offers it in front of its first request, and uses it when the server has said that
it has found it.

Waiting, deadlines and the names in error texts are those of all links (`..peers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, final

import numpy as np

from ..calls import Call
from ..errors import LinkError
from ..link import SMALL_SEND_BYTES, Health, Link
from ..members import Member
from ..peers import Peers, World
from ..sealed_memory import OfferedMemory, found_memory
from ..session import FrameError
from .frames import (
    HEADER_BYTES,
    Array,
    ArrayEntry,
    ConnectionId,
    FrameKind,
    Header,
    Message,
    Table,
    check_elements,
    check_size,
    elements,
    pack,
    padded,
    unpack_header,
    unpack_table,
)
from .places import MEMORY_BYTES, Places

# What is short is copied together, so that it goes in one piece, and is looked at in one piece: to
# wake up the other end once more takes longer than the copy. Not longer than any link's segment.
_JOINED_BYTES = 96 << 10
# Copies up to this size are not worth a call of NumPy, which lets other threads run meanwhile.
_SMALL_COPY_BYTES = 32 << 10
_OTHER = 1
_NOWHERE: Sequence[int] = ()
_NOTHING: Mapping[int, tuple[Array, int]] = {}
_ZEROS = bytes(HEADER_BYTES)
# A wait sleeps at once: servers and trainers of one host have no processor to spare for polling.
_SPIN_SECS = 0.0


@final
class Wire:
    """One end of a connection. One thread at a time uses it; only `close` may come from another.

    Args:
        link: To the other end; owned from here on.
        me: This process.
        other: Who is at the other end.
        connection: What both say in every frame.
        health: News of the other end, if there are any beyond those of the link.
        timeout_secs: How long a message may stand still that has begun to be sent or received.
        max_frame_bytes: What is larger is not received.
        shares_memory: Whether large arrays may lie in memory that both ends have.
    """

    def __init__(
        self,
        link: Link,
        me: Member,
        other: Member,
        connection: ConnectionId,
        *,
        health: Health | None,
        timeout_secs: float,
        max_frame_bytes: int,
        shares_memory: bool = False,
    ) -> None:
        # The waits of all links, in a world of two: this end is rank 0, whoever calls it what.
        world = World((me, other), 0, lambda _: link, health, _SPIN_SECS, None)
        self._peers = Peers(world, (0, _OTHER), timeout_secs)
        self._link = self._peers.link(_OTHER)
        self._connection = connection
        self._timeout_secs = timeout_secs
        self._max_frame_bytes = max_frame_bytes
        self._shares_memory = shares_memory
        self._offered: OfferedMemory | None = None  # until the other end has answered
        self._places: Places | None = None
        # Where the reply to the request that came last is wanted.
        self._wanted: dict[int, tuple[int, Array]] = {}

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed."""
        return self._peers.world.closed

    def name(self, call: Call) -> None:
        """Say what is being done from now on, for error texts."""
        self._peers.call = call

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A new array into which replies are received with the fewest copies."""
        if self._places is None:
            return np.empty(shape, dtype)
        return self._places.empty(shape, dtype)

    def request(self, sequence: int, message: Message, into: Sequence[Array]) -> None:
        """Send a request.

        Args:
            sequence: Its number.
            message: What is in it.
            into: Where the arrays of the reply are to be put, in this order.

        Raises:
            TypeError, ValueError: The message cannot be sent; nothing has been.
            PeerLostError: The other end is gone.
            CollectiveTimeoutError: It takes nothing.
            ClosedError: This end was closed.
        """
        places, wanted = _NOWHERE, _NOTHING
        if self._places is not None:
            places = self._places.put(message.arrays)
            wanted = self._places.of(into)
        kind = FrameKind.REQUEST
        head = pack(kind, self._connection, sequence, message, places=places, wanted=wanted)
        if self._shares_memory:
            head = self._offer() + head
        self._send(head, message.arrays, places, self._timeout_secs)

    def reply(self, sequence: int, message: Message) -> None:
        """Answer the request that came last; who has asked may take its time.

        Args:
            sequence: Of the request.
            message: What is in the reply.

        Raises:
            TypeError, ValueError: The message cannot be sent; nothing has been.
            PeerLostError: The other end is gone.
            ClosedError: This end was closed.
        """
        places = self._fill(message.arrays) if self._wanted else _NOWHERE
        head = pack(
            FrameKind.REPLY,
            self._connection,
            sequence,
            message,
            places=places,
            has_memory=self._places is not None,
        )
        # A client that is alive may compute before it waits.
        self._send(head, message.arrays, places, math.inf)

    def refuse(self, sequence: int, message: Message) -> None:
        """Say why the request that came last was not done.

        Raises:
            PeerLostError, CollectiveTimeoutError, ClosedError: It could not be said.
        """
        has_memory = self._places is not None
        kind = FrameKind.REFUSAL
        head = pack(kind, self._connection, sequence, message, has_memory=has_memory)
        self._send(head, (), _NOWHERE, self._timeout_secs)

    def say(self, kind: FrameKind, reason: str = "") -> None:
        """Send a frame without arrays if that goes at once. Never waits, never raises."""
        message = Message(0, reason.encode()[: SMALL_SEND_BYTES // 2])
        with suppress(LinkError):
            self._link.try_send(memoryview(pack(kind, self._connection, 0, message)))

    def give_up(self, reason: str) -> None:
        """Tell the other end why this one is about to close."""
        self.say(FrameKind.CLOSING, reason)
        if self._peers.world.health is not None:
            self._peers.world.health.announce(reason)

    def find_memory(self, offer: bytes) -> None:
        """Use what the other end offers, if it can be found."""
        memory = found_memory(offer, MEMORY_BYTES) if self._shares_memory else None
        self._places = None if memory is None else Places(memory)

    def await_header(self, timeout_secs: float) -> Header:
        """Return the header of the next frame, which has to begin in time; `receive` follows.

        Raises:
            FrameError: It is none.
            PeerLostError, CollectiveTimeoutError, ClosedError: It has not come.
        """
        self._peers.timeout_secs = timeout_secs
        return self._take_header(self._peers.peek(_OTHER, HEADER_BYTES))

    def header_left_behind(self) -> Header | None:
        """Return the header of a frame that had come before the link broke, if there is one."""
        try:
            view = self._link.try_peek(HEADER_BYTES)
            return None if view is None else self._take_header(view)
        except (LinkError, FrameError):
            return None

    def receive(self, header: Header, into: Sequence[Array] = ()) -> Message:
        """Return the rest of the frame that begins with ``header``.

        Args:
            header: What came last.
            into: Where to put the arrays, in this order; one that does not fit is made anew.

        Raises:
            FrameError: It is malformed, or there is no memory for it.
            PeerLostError, CollectiveTimeoutError, ClosedError: It has not come as a whole.
        """
        self._peers.timeout_secs = self._timeout_secs
        num_bytes = HEADER_BYTES + header.num_head_bytes + header.num_array_bytes
        if num_bytes <= _JOINED_BYTES:
            return self._receive_short(header, num_bytes, into)
        self._link.release(HEADER_BYTES)
        head = memoryview(bytearray(header.num_head_bytes))
        self._scatter([head])
        table = self._take_table(head, header)
        arrays = self._arrays(table.entries, into)
        self._scatter([elements(array) for array in _in_frame(arrays, table.entries)])
        for array in arrays:
            check_elements(array)
        return Message(header.verb, bytes(head[: header.num_body_bytes]), arrays)

    def _receive_short(self, header: Header, num_bytes: int, into: Sequence[Array]) -> Message:
        """Return the rest of a frame that can be looked at as a whole."""
        start = HEADER_BYTES + header.num_head_bytes
        frame = self._peers.peek(_OTHER, start)
        table = self._take_table(frame[HEADER_BYTES:], header)
        if num_bytes > start:  # nobody waits for arrays that make no sense
            frame = self._peers.peek(_OTHER, num_bytes)
        arrays = self._short_arrays(table.entries, frame[start:], into)
        body = bytes(frame[HEADER_BYTES : HEADER_BYTES + header.num_body_bytes])
        self._link.release(num_bytes)
        return Message(header.verb, body, arrays)

    def _short_arrays(
        self, entries: Sequence[ArrayEntry], data: memoryview, into: Sequence[Array]
    ) -> list[Array]:
        """Return copies of the arrays that lie one after the other in ``data``."""
        arrays, start = list[Array](), 0
        copied: bytearray | None = None  # of all, for those that have no place of their own
        for index, entry in enumerate(entries):
            if entry.place:
                arrays.append(self._at(entry))
                continue
            if index < len(into) and entry.fits(into[index]):
                array = into[index]
                elements(array)[:] = data[start : start + entry.num_bytes]
            else:
                copied = copied or bytearray(data)
                array = np.ndarray(entry.shape, entry.dtype, copied, start)
            if entry.dtype.kind == "b":
                check_elements(array)
            arrays.append(array)
            start += entry.num_padded_bytes
        return arrays

    def close(self) -> None:
        """Close this end; whoever waits at it or at the other end is told."""
        self._peers.world.close("")
        if self._offered is not None:
            self._offered.close()

    def _offer(self) -> bytearray:
        """What offers memory to the other end, once."""
        self._shares_memory = False
        self._offered = OfferedMemory("paceline-arrays", MEMORY_BYTES)
        return pack(FrameKind.OFFER, self._connection, 0, Message(0, self._offered.offer))

    def _send(
        self,
        head: bytearray,
        arrays: Sequence[Array],
        places: Sequence[int],
        timeout_secs: float,
    ) -> None:
        """Send a frame: what precedes the arrays, and those that are in it."""
        self._peers.timeout_secs = timeout_secs
        small = head
        for array, place in zip(arrays, places or repeat(0), strict=False):
            if place:
                continue
            num_bytes = array.nbytes
            if len(small) + num_bytes > _JOINED_BYTES:
                self._peers.send(_OTHER, memoryview(small))
                self._peers.send(_OTHER, elements(array))
                small = bytearray(-num_bytes % HEADER_BYTES)
            else:
                small += array.data
                small += _ZEROS[: -num_bytes % HEADER_BYTES]
        self._peers.send(_OTHER, memoryview(small))

    def _fill(self, arrays: Sequence[Array]) -> list[int]:
        """Copy arrays of a reply to where they are wanted; return where each is, 0 for nowhere."""
        places = [0] * len(arrays)
        for index, (place, target) in self._wanted.items():
            array = arrays[index] if index < len(arrays) else None
            if array is None or array.dtype != target.dtype or array.shape != target.shape:
                continue
            np.copyto(target, array)
            places[index] = place
        return places

    def _take_header(self, view: memoryview) -> Header:
        header = unpack_header(view, self._connection, self._max_frame_bytes)
        if self._offered is not None:  # now it is known whether it was found
            memory = self._offered.memory
            if header.has_memory and memory is not None:
                self._places = Places(memory)
            self._offered.close()
            self._offered = None
        return header

    def _take_table(self, head: memoryview, header: Header) -> Table:
        """Return what is to come, none of it more than is allowed; note what is wanted back."""
        table = unpack_table(head, header)
        check_size(header.num_head_bytes + table.num_bytes, self._max_frame_bytes)
        wanted = table.wanted.items() if table.wanted else ()
        self._wanted = {index: (entry.place, self._at(entry)) for index, entry in wanted}
        return table

    def _arrays(self, entries: Sequence[ArrayEntry], into: Sequence[Array]) -> tuple[Array, ...]:
        """Return arrays for what is to come: those given, where they fit, and others."""
        return tuple([self._array(i, entry, into) for i, entry in enumerate(entries)])

    def _array(self, index: int, entry: ArrayEntry, into: Sequence[Array]) -> Array:
        if entry.place:
            return self._at(entry)
        if index < len(into) and entry.fits(into[index]):
            return into[index]
        return _new_array(entry)

    def _at(self, entry: ArrayEntry) -> Array:
        if self._places is None:
            raise FrameError("an array in memory that was not shared")
        return self._places.at(entry)

    def _scatter(self, buffers: Sequence[memoryview]) -> None:
        """Fill buffers one after the other; in the stream there are zeros behind each."""
        pieces = self._pieces(sum([padded(len(buffer)) for buffer in buffers]))
        piece, start = memoryview(b""), 0
        for buffer in buffers:
            filled = 0
            while filled < len(buffer):
                if start == len(piece):
                    piece, start = next(pieces), 0
                stop = min(start + len(buffer) - filled, len(piece))
                _copy(buffer[filled : filled + stop - start], piece[start:stop])
                filled, start = filled + stop - start, stop
            start = padded(start)  # pieces end where zeros do
        for _ in pieces:
            pass

    def _pieces(self, num_bytes: int) -> Iterator[memoryview]:
        """The next so many bytes in pieces, each of which is valid until the next one.

        They do not stop where arrays do: one look at the link brings many small arrays.
        """
        while num_bytes:
            size = min(num_bytes, self._link.segment_bytes)
            yield self._peers.peek(_OTHER, size)
            self._link.release(size)
            num_bytes -= size


def _copy(target: memoryview, source: memoryview) -> None:
    if len(source) <= _SMALL_COPY_BYTES:
        target[:] = source
    else:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


def _in_frame(arrays: Sequence[Array], entries: Sequence[ArrayEntry]) -> list[Array]:
    """Return those that are not in shared memory."""
    return [array for array, entry in zip(arrays, entries, strict=True) if not entry.place]


def _new_array(entry: ArrayEntry) -> Array:
    try:
        return np.empty(entry.shape, entry.dtype)
    except MemoryError:
        problem = f"an array of {entry.num_bytes} bytes, for which there is no memory"
        raise FrameError(problem) from None
