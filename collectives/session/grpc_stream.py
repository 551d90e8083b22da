"""Two-way streams of byte messages over gRPC: the only module that knows the library.

One method, opened by either side any number of times; messages are raw bytes. The synchronous API
is used because its streams are several times faster than those of `grpc.aio`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from queue import SimpleQueue
from typing import Any, final
from urllib.parse import unquote

# Longer messages leave less to do at the same time.
MAX_SEND_BYTES = 1 << 20
# Shorter ones wait for what is queued behind them: a message costs more than its bytes.
_JOINED_BYTES = 64 << 10

MAX_QUOTED_CHARACTERS = 500
"""Of what a stranger says, in an error or a log line."""

_SERVICE = "paceline.Session"
_METHOD = "Open"
_OPTIONS = (
    # Whoever sends more is cut off before the memory is taken.
    ("grpc.max_receive_message_length", MAX_SEND_BYTES + 2 * _JOINED_BYTES),
    ("grpc.max_send_message_length", MAX_SEND_BYTES + 2 * _JOINED_BYTES),
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
_SERVER_OPTIONS = (
    *_OPTIONS,
    # Otherwise a second process could listen on the same port, and each get some of the calls.
    ("grpc.so_reuseport", 0),
    # Each caller has a connection for each stream, so that limits of those are limits of these.
    ("grpc.max_concurrent_streams", 1),
)


class StreamError(Exception):
    """The stream broke; the other end may be gone."""


@final
class Stream:
    """One end of a two-way stream. One thread iterates over what comes in; any thread sends.

    Iteration ends when the other side has finished, and raises `StreamError` if the stream breaks.

    Attributes:
        peer_ip: From where it was opened; empty at the end that opened it.
        peer_port: The same; 0 at the end that opened it.
        joins: Whether short messages that wait to be sent may become one.
    """

    def __init__(self, peer_ip: str = "", peer_port: int = 0) -> None:
        self.peer_ip = peer_ip
        self.peer_port = peer_port
        self.joins = False
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
        """Queue ``message``, of at most `MAX_SEND_BYTES` and a little.

        Never waits, never raises; lost if the stream is broken.
        """
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
        except _library().RpcError as error:
            raise StreamError(_reason(error)) from None
        finally:
            self.finish()

    def _connect(self, received: Iterator[bytes], cancel: Callable[[], object]) -> None:
        self._received = received
        self._cancel = cancel

    def _messages(self) -> Iterator[bytes]:
        while (message := self._outgoing.get()) is not None:
            parts, num_bytes = [message], len(message)
            while self.joins and num_bytes < _JOINED_BYTES and not self._outgoing.empty():
                if (message := self._outgoing.get()) is None:
                    self.finish()
                    break
                parts.append(message)
                num_bytes += len(message)
            self._taken_bytes += num_bytes
            yield b"".join(parts)


@final
class Server:
    """Listens at one address; each stream opened by others is served by a thread of its own.

    Args:
        address: "host:port" of this machine.
        max_streams: More than these at a time are turned away.
        max_connections: More than these at a time are closed at once.
        serve: Called with each stream, which ends when it returns, after what has been sent.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(
        self,
        address: str,
        max_streams: int,
        serve: Callable[[Stream], None],
        max_connections: int = 1 << 20,
    ) -> None:
        self._serve = serve
        self._server = _library().server(
            _DaemonThreads(),
            handlers=[_handler(self._open)],
            options=(
                *_SERVER_OPTIONS,
                ("grpc.max_allowed_incoming_connections", max_connections),
            ),
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
        try:
            stopped = self._server.stop(grace_secs)
        except RuntimeError:
            # Python 3.12.0 and 3.12.1 start no thread while they end, and gRPC, which has begun to
            # stop by now, wants one to keep the time.
            self._server.wait_for_termination(grace_secs)
            stopped = self._server.stop(None)
        stopped.wait(grace_secs + 1.0)

    def _open(self, received: Iterator[bytes], context: Any) -> Iterator[bytes]:
        stream = Stream(*_address(context.peer()))
        stream._connect(received, context.cancel)
        if not context.add_callback(stream.finish):
            return iter(())
        threading.Thread(
            target=self._run, args=(stream,), name="paceline-serve", daemon=True
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
        self._channel = _library().insecure_channel(address, options=_CHANNEL_OPTIONS)
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

        threading.Thread(target=work, name="paceline-send", daemon=True).start()
        return future


def _handler(behaviour: Callable[..., Iterator[bytes]]) -> Any:
    method = _library().stream_stream_rpc_method_handler(behaviour)
    return _library().method_handlers_generic_handler(_SERVICE, {_METHOD: method})


def _reason(error: Any) -> str:
    """Return what broke a stream, in a few words; a server learns no more than that it did.

    The words may be those of a stranger at the other end: they stay on one line.
    """
    with contextlib.suppress(AttributeError):
        details = str(error.details()).rpartition(": ")[2][:MAX_QUOTED_CHARACTERS]
        return details if details.isprintable() else ascii(details)
    return "its connection broke"


def _address(peer: str) -> tuple[str, int]:
    """Return the IP address and the port in gRPC's name for a peer, "ipv4:10.0.0.1:1234"."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _library() -> Any:
    """Return gRPC, which is loaded when it is first needed and not with this package.

    Raises:
        ImportError: It is not installed; the text says what to do.
    """
    try:
        import grpc  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            f"processes cannot find each other over gRPC here ({error}): pip install grpcio. "
            "Where there is none for this Python, start workers with mpirun: they then need MPI "
            "alone (pip install 'paceline[mpich]')"
        ) from error
    return grpc


def _do_nothing() -> None:
    """Nothing to cancel yet."""
