"""Links over MPI messages, for networks on which MPI is faster than TCP.

MPI cannot be waited for without a processor, and it does not say that a peer is gone. So each link
has a TCP connection beside it, the bell. There the caller shows who it is, as for a link over TCP;
each message that goes over MPI is announced there by its size; and where it ends the link ends. An
end sleeps on the bell until something is under way, and only then looks at MPI.

    caller to called    hello (see `sockets`), then 4 bytes: the caller's rank in MPI's world
    both ways           4 bytes for each message: its size

All of MPI's calls return at once (Issend, Isend, Irecv, Test): whatever becomes of the other end,
no thread is ever held inside MPI, and whoever waits looks at the health of the session in between.
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any, final

import numpy as np

from ..errors import LinkBroken, LinkTimeout
from ..link import Link
from .links import Expected, LinkEnds, Transport
from .mpi_streams import SEGMENT_BYTES, WORD, Incoming, Outgoing, Path
from .sockets import Listener, call_listener, listen_for_caller

_SWAP_BYTES = 1 << 62

# A transfer is soon over: for so long a wait looks again and again, and lets others run in between.
_SPIN_SECS = 200e-6
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 50e-6, 2e-3
# What a closed end has sent is given so long to be taken.
_FAREWELL_SECS = 10.0
_EXIT_SECS = 2.0


@final
class MpiTransport(Transport):
    """Messages of MPI, for two ranks of one MPI job that have both joined."""

    def __init__(self) -> None:
        super().__init__("mpi", "MPI")
        self._world: _World | None = None

    def join(self, mpi: Any, comm: Any) -> None:
        """Let links of this process use MPI. All ranks of ``comm`` call this, at the same point.

        Args:
            mpi: The module ``mpi4py.MPI``.
            comm: The ranks. It is duplicated, not used.
        """
        name = np.frombuffer(secrets.token_bytes(16), np.uint8).copy()
        comm.Bcast(name)
        self._world = _World(mpi, comm.Dup(), name.tobytes().hex())

    def unavailable(self) -> str:
        if self._world is None:
            return "this process has joined no others over it"
        if self._world.mpi.Query_thread() < self._world.mpi.THREAD_MULTIPLE:
            return "it lets only one thread use it (no MPI_THREAD_MULTIPLE)"
        if not (hasattr(os, "eventfd") and hasattr(select, "epoll")):
            return "needs Linux"
        return ""

    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        assert self._world is not None
        return _ExpectedRank(self._world, listen_for_caller(ends, proof))

    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        assert self._world is not None
        job, rank, pair, port = _parse(address)
        if job != self._world.job:
            raise LinkBroken("it is a rank of another MPI job")
        path = self._world.path(rank, pair, is_caller=True)
        bell = call_listener(ends, port, proof)
        try:
            bell.sendall(WORD.pack(self._world.comm.rank))
        except OSError:
            bell.close()
            raise
        return MpiLink(path, bell, self._world.progress)


def _parse(address: str) -> tuple[str, int, int, str]:
    """Return what an offer says: the job, the rank, the pair's number, the port of the bell."""
    match address.split(" "):
        case job, rank, pair, port if rank.isdecimal() and pair.isdecimal():
            return job, int(rank), int(pair), port
    raise LinkBroken(f"an address {address!r}")


@final
class _ExpectedRank(Expected):
    def __init__(self, world: _World, listener: Listener) -> None:
        self._world = world
        self._listener = listener
        self._pair = next(world.pairs) % world.num_pairs
        super().__init__(f"{world.job} {world.comm.rank} {self._pair} {listener.port}")

    def accept(self, deadline: float) -> Link:
        bell, _ = self._listener.accept(deadline)
        try:
            bell.settimeout(max(0.001, deadline - time.monotonic()))
            said = bell.recv(WORD.size, socket.MSG_WAITALL)
            if len(said) < WORD.size:
                raise LinkBroken("it has closed its end")
            path = self._world.path(WORD.unpack(said)[0], self._pair, is_caller=False)
            return MpiLink(path, bell, self._world.progress)
        except BaseException as error:
            bell.close()
            if isinstance(error, TimeoutError):
                raise LinkTimeout("the other end has not said its rank") from None
            raise

    def close(self) -> None:
        self._listener.close()


@final
class _World:
    """The ranks of an MPI job that have joined.

    Attributes:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator that nobody else uses.
        job: A random name, the same at all ranks: numbers of ranks mean nothing to another job.
        pairs: Numbers of links that were offered here.
        num_pairs: So many numbers there are.
        progress: Looks after the links of this process.
    """

    def __init__(self, mpi: Any, comm: Any, job: str) -> None:
        self.mpi = mpi
        self.comm = comm
        self.job = job
        self.pairs = itertools.count()
        self.num_pairs: int = comm.Get_attr(mpi.TAG_UB) // 2
        self.progress = Progress()

    def path(self, peer: int, pair: int, *, is_caller: bool) -> Path:
        """Return the way to the rank ``peer``, by a link that one of both has numbered.

        Raises:
            LinkBroken: There is no such rank or link.
        """
        if not (0 <= peer < self.comm.size and 0 <= pair < self.num_pairs):
            raise LinkBroken(f"link {pair} with rank {peer} of {self.comm.size}")
        # Whoever was called has chosen the number: it receives by even tags, which are its own, and
        # the caller by odd ones, which are its own together with the rank that they come from.
        tags = (2 * pair, 2 * pair + 1)
        send_tag, receive_tag = tags if is_caller else tags[::-1]
        return Path(self.mpi, self.comm, peer, send_tag, receive_tag)


@final
class MpiLink(Link):
    """One end of a link over MPI.

    Args:
        path: How its messages go.
        bell: The connected socket beside them, owned from here on.
        progress: Looks after them.
    """

    def __init__(self, path: Path, bell: socket.socket, progress: Progress) -> None:
        super().__init__(SEGMENT_BYTES, _SWAP_BYTES)
        bell.setblocking(False)
        bell.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._path = path
        self._bell = bell
        self._progress = progress
        self._out = Outgoing(path, bell)
        self._in = Incoming(path, bell)
        self._broken = ""
        self._has_failed = self._is_released = False
        self._closed_at = 0.0
        self._asked_bytes = 1
        self._moved_at = time.monotonic()
        self._lock = threading.Lock()  # the thread that uses this end, and the one of `Progress`
        # Two things wake up this end: the bell, and its own process, of what MPI has done.
        self._own_bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bells = select.epoll()
        self._bells.register(bell, select.EPOLLIN)
        self._bells.register(self._own_bell, select.EPOLLIN)
        self._is_waited_for = False
        self._waiting = threading.Lock()  # held while descriptors are polled, which must stay open

    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        with self._lock:
            self._advance()
            if self._broken or self._in.is_ended:
                raise LinkBroken(self._broken or "it has closed its end")
            num_bytes = self._out.take(data)
            self._advance()
            if self._out.is_moving:
                self._progress.watch(self)
        return num_bytes

    def try_peek(self, num_bytes: int) -> memoryview | None:
        if self._in.num_bytes < num_bytes:
            with self._lock:
                self._advance()
            if self._in.num_bytes < num_bytes:
                if self._broken or self._in.is_over:
                    raise LinkBroken(self._broken or "it has closed its end")
                self._asked_bytes = num_bytes
                return None
        return self._in.view(num_bytes)

    def try_receive(self, target: memoryview) -> int:
        if self.try_peek(1) is None:
            return 0
        num_bytes = min(self._in.num_bytes, len(target), SEGMENT_BYTES)
        target[:num_bytes] = self._in.view(num_bytes)
        self.release(num_bytes)
        return num_bytes

    def release(self, num_bytes: int) -> None:
        with self._lock:
            self._in.release(num_bytes)
            self._advance()  # the other end may be waiting for this room

    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        self._waiting.acquire()
        with self._lock:
            self._advance()
            if self._broken or self._can_go_on(to_send, to_receive):
                return None
            if not self._is_moving:
                return self._sleep()
            if time.monotonic() - self._moved_at >= _SPIN_SECS:
                self._progress.watch(self)
                return self._sleep()
        os.sched_yield()
        return None

    def end_wait(self) -> None:
        with self._lock:
            self._is_waited_for = False
            if not self._is_released:  # or its number may be another file's by now
                with suppress(BlockingIOError):
                    os.eventfd_read(self._own_bell)
        self._waiting.release()

    def close(self) -> None:
        with self._lock:
            if self._closed_at:
                return
            self._closed_at = time.monotonic()
            self._broken = self._broken or "this end is closed"
            self._ring()
            self._progress.watch(self)

    def look_after(self, now: float) -> float | None:
        """Go on with what is under way; return how long nothing has moved, None if nothing is.

        Called by `Progress`, again and again, until there is nothing to do.
        """
        with self._lock:
            self._advance()
            if self._closed_at:
                self._say_goodbye()
                if self._may_release(now):
                    self._release()
            if self._is_released or not (self._closed_at or self._is_moving):
                return None
            return max(0.0, now - self._moved_at)

    @property
    def _is_moving(self) -> bool:
        return self._in.is_moving or self._out.is_moving

    def _sleep(self) -> tuple[int, int]:
        self._is_waited_for = True
        return self._bells.fileno(), select.POLLIN

    def _can_go_on(self, to_send: bool, to_receive: bool) -> bool:
        if to_receive and (self._in.num_bytes >= self._asked_bytes or self._in.is_over):
            return True
        return to_send and (self._out.room > 0 or self._in.is_ended)

    def _advance(self) -> None:
        """Do all that can be done now, in both directions; never waits, never raises."""
        if self._has_failed or self._is_released:
            return
        try:
            has_moved = self._exchange()
        except (LinkBroken, OSError, self._path.mpi.Exception) as error:
            self._has_failed = has_moved = True
            self._broken = self._broken or str(error).lower()
        if has_moved:
            self._moved_at = time.monotonic()
            self._ring()

    def _exchange(self) -> bool:
        if not self._in.is_ended:
            self._in.hear()
            if self._in.is_ended:  # or it would wake us up all the time
                self._bells.unregister(self._bell)
        if self._closed_at:  # what still comes is received, so that the other end is rid of it
            self._in.release(self._in.num_bytes)
        self._in.ask()
        has_moved = self._in.settle() | self._out.settle()
        if not self._in.is_ended:
            self._out.give()
        return has_moved | self._out.settle()  # a short message is over at once

    def _ring(self) -> None:
        """Wake up the thread that waits at this end."""
        if self._is_waited_for:
            self._is_waited_for = False
            os.eventfd_write(self._own_bell, 1)

    def _say_goodbye(self) -> None:
        """Let the other end know that no more comes than was announced."""
        if self._out.is_given and not self._is_released:
            with suppress(OSError):
                self._bell.shutdown(socket.SHUT_WR)

    def _may_release(self, now: float) -> bool:
        """Whether both ends have what was sent to them, or nothing helps any more."""
        is_through = self._in.is_over and not self._out.is_moving
        return is_through or self._has_failed or now - self._closed_at > _FAREWELL_SECS

    def _release(self) -> None:
        """Let go of all, unless somebody is only about to notice that this end is closed."""
        # Not waited for: who wakes up wants our lock first. And it is looked after once more where
        # `watch` was called while it was looked at.
        if self._is_released or not self._waiting.acquire(blocking=False):
            return
        self._is_released = True
        if self._is_moving:
            _left_with_mpi.append((self._in, self._out))
        self._bells.close()
        os.close(self._own_bell)
        self._bell.close()
        self._waiting.release()


_left_with_mpi: list[tuple[Incoming, Outgoing]] = []
"""What MPI may still read or write, because the other end was lost in the midst of it."""


@final
class Progress:
    """A thread that goes on with what is under way over MPI, whatever its users do meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._links: set[MpiLink] = set()
        self._stop_at = math.inf
        self._thread = threading.Thread(target=self._run, name="paceline-mpi-links", daemon=True)
        self._thread.start()
        atexit.register(self._stop)  # before MPI is finalised

    def watch(self, link: MpiLink) -> None:
        """Look after ``link`` until nothing of it is under way."""
        with self._changed:
            self._links.add(link)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._links and self._stop_at == math.inf:
                    self._changed.wait()
                # Taken out before they are looked at: one that has something to do again after
                # that look, but before we note it, comes back by `watch`.
                links, self._links = self._links, set()
            now = time.monotonic()
            if not links or now > self._stop_at:
                return
            looked_after = ((link, link.look_after(now)) for link in links)
            still = {link: secs for link, secs in looked_after if secs is not None}
            if still:
                with self._changed:
                    self._links |= still.keys()
                # What has not moved for a while need not be looked at so often.
                pause_secs = min(still.values()) / 4
                time.sleep(min(max(pause_secs, _FIRST_PAUSE_SECS), _LONGEST_PAUSE_SECS))

    def _stop(self) -> None:
        """Give what was closed a little time to arrive, and end the thread."""
        with self._changed:
            self._stop_at = time.monotonic() + _EXIT_SECS
            self._changed.notify()
        self._thread.join()


MPI_LINKS = MpiTransport()
"""MPI, of which a process has one."""
