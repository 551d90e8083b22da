"""From one rank to another. Only these two take part, so each message says in full what it is."""

from __future__ import annotations

from collections import Counter
from typing import final

from .agreement import receive_header
from .arrays import as_bytes
from .calls import RECORD_BYTES, Call, direct_call
from .communicator import Array
from .messages import Kind, pack_header, padding
from .peers import Peers


@final
class Direct:
    """Numbers the messages between this rank and each other one."""

    def __init__(self, peers: Peers, tag: int) -> None:
        self._peers = peers
        self._tag = tag
        self._num_sent: Counter[int] = Counter()
        self._num_received: Counter[int] = Counter()

    def send(self, array: Array, name: str, to: int) -> None:
        """Send ``array`` to rank ``to``."""
        peers = self._peers
        call = direct_call(name, array.dtype, len(array), peers.rank, to)
        peers.call = call
        self._num_sent[to] += 1
        header = self._header(call, self._num_sent[to])
        peers.send(to, memoryview(bytes(header) + call.record))
        peers.send(to, as_bytes(array))
        peers.send(to, memoryview(bytes(padding(array.nbytes))))

    def receive(self, array: Array, name: str, source: int) -> None:
        """Fill ``array`` with what rank ``source`` sends, if that is what it sends."""
        peers = self._peers
        call = direct_call(name, array.dtype, len(array), source, peers.rank)
        peers.call = call
        self._num_received[source] += 1
        receive_header(peers, source, self._header(call, self._num_received[source]))
        peers.peek(source, RECORD_BYTES)
        peers.release(source, RECORD_BYTES)
        data, segment_bytes = as_bytes(array), peers.link(source).segment_bytes
        for start in range(0, len(data), segment_bytes):
            segment = data[start : start + segment_bytes]
            segment[:] = peers.peek(source, len(segment))
            peers.release(source, len(segment))
        if num_zeros := padding(len(data)):
            peers.peek(source, num_zeros)
            peers.release(source, num_zeros)

    def _header(self, call: Call, number: int) -> bytearray:
        return pack_header(Kind.DIRECT, self._tag, number, call.digest, call.num_bytes)
