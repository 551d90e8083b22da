"""Two-way streams of byte messages over gRPC: the only module that knows the library.

One method, opened by either side any number of times; messages are raw bytes. The synchronous API
is used because its streams are several times faster than those of `grpc.aio`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from queue import Empty, SimpleQueue
from typing import Any, final
from urllib.parse import unquote

import grpc  # type: ignore[import-untyped]

MAX_MESSAGE_BYTES = 4 << 20

_NOTHING = b""
_SERVICE = "paceline.Ring"
_METHOD = "Open"
_OPTIONS = (
    # Whoever sends more is cut off before the memory is taken.
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.optimization_target", "throughput"),
)
_CHANNEL_OPTIONS = (
    *_OPTIONS,
    # A proxy set for the web is no way to another worker.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
)
# Otherwise a second process could listen on the same port, and each get some of the calls.
_SERVER_OPTIONS = (*_OPTIONS, ("grpc.so_reuseport", 0))


class StreamError(Exception):
    """The stream broke; the other end may be gone."""


@final
class Stream:
    """One end of a two-way stream. One thread iterates over what comes in; any thread sends.

    Iteration ends when the other side has finished, and raises `StreamError` if the stream breaks.

    Attributes:
        peer_ip: From where it was opened; empty at the end that opened it.
        on_taken: Called by the sending thread for each message that it has taken up.
        max_joined_bytes: Messages that wait to be sent become one, up to this size: what costs
            time is less their bytes than their number. 0 where they have to stay what they are.
    """

    def __init__(self, peer_ip: str = "") -> None:
        self.peer_ip = peer_ip
        self.on_taken: Callable[[], None] | None = None
        self.max_joined_bytes = 0
        self._received: Iterator[bytes] = iter(())
        self._cancel: Callable[[], object] = _do_nothing
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._queued_bytes = 0
        self._taken_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes handed to `send` that gRPC has not asked for yet."""
        return self._queued_bytes - self._taken_bytes

    def send(self, message: bytes) -> None:
        """Queue ``message``. Never waits, never raises; lost if the stream is broken."""
        self._queued_bytes += len(message)
        self._outgoing.put(message)

    def finish(self) -> None:
        """Send nothing more after what is queued."""
        self._outgoing.put(None)

    def cancel(self) -> None:
        """Break the stream now, at both ends."""
        self._cancel()
        self.finish()

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._received
        except grpc.RpcError as error:
            raise StreamError(_reason(error)) from None
        finally:
            self.finish()

    def _connect(self, received: Iterator[bytes], cancel: Callable[[], object]) -> None:
        self._received = received
        self._cancel = cancel

    def _messages(self) -> Iterator[bytes]:
        first = self._outgoing.get()
        while first is not None:
            parts, num_bytes, then = [first], len(first), self._next_if_there()
            while then and num_bytes + len(then) <= self.max_joined_bytes:
                parts.append(then)
                num_bytes += len(then)
                then = self._next_if_there()
            self._taken_bytes += num_bytes
            yield first if len(parts) == 1 else b"".join(parts)
            if self.on_taken is not None:
                self.on_taken()
            first = self._outgoing.get() if then == _NOTHING else then

    def _next_if_there(self) -> bytes | None:
        """Return the next message, None for the end, or `_NOTHING` if none is queued."""
        try:
            return self._outgoing.get_nowait()
        except Empty:
            return _NOTHING


@final
class Server:
    """Listens at one address; each stream opened by others is served by a thread of its own.

    Args:
        address: "host:port" of this machine.
        max_streams: More than these at a time are turned away.
        serve: Called with each stream, which ends when it returns, after what has been sent.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, address: str, max_streams: int, serve: Callable[[Stream], None]) -> None:
        self._serve = serve
        self._server = grpc.server(
            _DaemonThreads(),
            handlers=[_handler(self._open)],
            options=_SERVER_OPTIONS,
            maximum_concurrent_rpcs=max_streams,
        )
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address}") from error
        if port == 0:
            raise OSError(f"cannot listen at {address}")
        self._server.start()

    def stop(self, grace_secs: float) -> None:
        """Stop listening; streams still open after the grace period are broken. Waits for it."""
        self._server.stop(grace_secs).wait(grace_secs + 1.0)

    def _open(self, received: Iterator[bytes], context: Any) -> Iterator[bytes]:
        stream = Stream(_ip(context.peer()))
        stream._connect(received, context.cancel)
        if not context.add_callback(stream.finish):
            return iter(())
        threading.Thread(
            target=self._run, args=(stream,), name="paceline-ring-serve", daemon=True
        ).start()
        return stream._messages()

    def _run(self, stream: Stream) -> None:
        try:
            self._serve(stream)
        finally:
            stream.finish()


@final
class Channel:
    """A connection to a `Server`, made when needed; each channel has its own.

    Args:
        address: "host:port".
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._method = self._channel.stream_stream(f"/{_SERVICE}/{_METHOD}")

    def open(self) -> Stream:
        """Return a new stream; if nobody answers, iterating over it says so."""
        stream = Stream()
        call = self._method(stream._messages())
        stream._connect(call, call.cancel)
        return stream

    def close(self) -> None:
        """Break what is open and close the connection."""
        self._channel.close()


@final
class _DaemonThreads(futures.Executor):
    """A thread a task, none of which keeps the interpreter from ending."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name="paceline-ring-send", daemon=True).start()
        return future


def _handler(behaviour: Callable[..., Iterator[bytes]]) -> Any:
    method = grpc.stream_stream_rpc_method_handler(behaviour)
    return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method})


def _reason(error: grpc.RpcError) -> str:
    """Return what broke a stream, in a few words; a server learns no more than that it did."""
    with contextlib.suppress(AttributeError):
        return str(error.details()).rpartition(": ")[2]
    return "its connection broke"


def _ip(peer: str) -> str:
    """Return the IP address in gRPC's name for a peer, "ipv4:10.0.0.1:1234"."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0]
    return host.removeprefix("[").removesuffix("]")


def _do_nothing() -> None:
    """Nothing to cancel yet."""
