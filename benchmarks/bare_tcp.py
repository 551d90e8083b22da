"""A ring of two ranks over a bare socket: what TCP on loopback takes here.

The algorithm is that of our own ring: each rank sends one half of the array and adds what comes to
the other one; then the halves that are summed up change places. There are no names, no checks, no
deadlines.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

# Both send a segment before they receive one: more would not fit into the system's buffers.
SEGMENT_BYTES = 256 << 10
PLACE = "127.0.0.1"


@contextmanager
def bare_tcp(rank: int, port: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield the all-reduce. Rank 0 listens at ``port``; rank 1 calls."""
    with _listen(port) if rank == 0 else _call(port) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield _reducing(connected, rank)


def _listen(port: int) -> socket.socket:
    with socket.create_server((PLACE, port)) as listening:
        return listening.accept()[0]


def _call(port: int) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection((PLACE, port))
        time.sleep(0.01)


def _reducing(connected: socket.socket, rank: int) -> Callable[[np.ndarray], None]:
    scratch = np.empty(SEGMENT_BYTES, np.uint8)

    def exchange(outgoing: np.ndarray, incoming: np.ndarray) -> None:
        connected.sendall(outgoing)
        data = incoming.view(np.uint8).data
        while data:
            data = data[connected.recv_into(data) :]

    def reduce(array: np.ndarray) -> None:
        halves = array[: len(array) // 2], array[len(array) // 2 :]
        given, kept = halves[rank], halves[1 - rank]
        step = SEGMENT_BYTES // array.itemsize
        starts = range(0, max(map(len, halves)), step)
        for segment in (slice(start, start + step) for start in starts):
            arrived = scratch[: kept[segment].nbytes].view(array.dtype)
            exchange(given[segment], arrived)
            kept[segment] += arrived
        for segment in (slice(start, start + step) for start in starts):
            exchange(kept[segment], given[segment])

    return reduce
