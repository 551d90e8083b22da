"""An all-reduce of two ranks over a bare gRPC stream: what the library itself takes here.

Each rank sends the whole array in messages of 1 MiB and adds what comes. There are no names, no
checks, no deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import numpy as np

MESSAGE_BYTES = 1 << 20
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
]


@contextmanager
def bare_grpc(rank: int, port: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield the all-reduce. Rank 0 listens at ``port``; rank 1 calls."""
    import grpc

    outgoing: SimpleQueue[bytes | None] = SimpleQueue()
    messages = iter(outgoing.get, None)
    address = f"127.0.0.1:{port}"
    if rank == 0:
        streams: SimpleQueue[Iterator[bytes]] = SimpleQueue()

        def serve(incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
            streams.put(incoming)
            return messages

        handler = grpc.stream_stream_rpc_method_handler(serve)
        handlers = grpc.method_handlers_generic_handler("Bare", {"Open": handler})
        server = grpc.server(ThreadPoolExecutor(1), handlers=[handlers], options=OPTIONS)
        server.add_insecure_port(address)
        server.start()
        yield _reducing(outgoing, streams.get())
        outgoing.put(None)
        server.stop(5.0).wait()
    else:
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            grpc.channel_ready_future(channel).result()
            incoming = channel.stream_stream("/Bare/Open")(messages)
            yield _reducing(outgoing, incoming)
            outgoing.put(None)
            incoming.result()


def _reducing(
    outgoing: SimpleQueue[bytes | None], incoming: Iterator[bytes]
) -> Callable[[np.ndarray], None]:
    def reduce(array: np.ndarray) -> None:
        data = array.view(np.uint8).data
        for start in range(0, len(data), MESSAGE_BYTES):
            outgoing.put(bytes(data[start : start + MESSAGE_BYTES]))
        num_done = 0
        while num_done < len(array):
            arrived = np.frombuffer(next(incoming), array.dtype)
            part = array[num_done : num_done + len(arrived)]
            np.add(part, arrived, out=part)
            num_done += len(arrived)

    return reduce
