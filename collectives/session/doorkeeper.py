"""Limits on the connections to a port at which gRPC accepts whatever comes.

Each connection costs a file descriptor, and a stranger that opens a thousand and says nothing would
leave none for the next checkpoint. gRPC knows a limit for all connections together: that protects
files, but lets strangers keep members out. The rest is here: a thread that is woken by new
connections, counts those that have not proved that they belong here by where they come from
(`visitors.Strangers`), and shuts down those that are too many or take too long.

It looks at the kernel's table of connections, and shuts one down through a duplicate of its
descriptor, which is made first and then looked at, so that nothing else can be hit; to gRPC it is
as if the caller had gone. The bytes of members pass through no further hands: a proxy in front of
gRPC would need no look from outside, but makes links over gRPC 1.5 to 2 times slower.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import final

from .tcp_table import ESTABLISHED, LISTENING, Peer, plain_ip, sockets_about
from .visitors import Origin, Strangers, TurnedAway

# New connections that come in such a time are looked at together.
_SETTLE_SECS = 0.05
_AGAIN_SECS = 0.5
_TICK_SECS = 1.0
# The system's table may leave a connection out when it changes while it is read.
_LOOKS = 3
_JOIN_SECS = 5.0
_FILES = Path("/proc/self/fd")

_log = logging.getLogger("paceline")


@final
class Doorkeeper:
    """Sends strangers away from a port at which this process listens.

    Where a system does not show a process its own files (anywhere but on Linux) it does nothing.

    Args:
        where: The port, and its address.
        strangers: Which connections may stay that have proved nothing.
    """

    def __init__(self, where: Peer, strangers: Strangers[Peer]) -> None:
        self._port = where.port
        self._strangers = strangers
        self._crowds = TurnedAway(_log.warning)
        self._lock = threading.Lock()  # guards the members
        self._members: set[Peer] = set()
        self._seen: Set[int] = set()  # the sockets of this process at the last look
        self._num_same = 0  # looks since then that have found the same
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        listening = _listening_file(where) if sys.platform == "linux" else None
        if listening is None:
            return
        self._listening = listening
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC)
        self._epoll = select.epoll()
        # By edge: gRPC accepts what has come; this thread only hears that something has.
        self._epoll.register(listening, select.EPOLLIN | select.EPOLLET)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="paceline-door", daemon=True)
        self._thread.start()

    def identify(self, peer: Peer) -> None:
        """Note that the connection from ``peer`` is a member's: no limit holds, until `forget`."""
        with self._lock:
            self._members.add(peer)

    def forget(self, peer: Peer) -> None:
        """Note that its stream has ended: the connection should end soon, too."""
        with self._lock:
            self._members.discard(peer)

    def close(self) -> None:
        """Look no longer, so that gRPC can release the port."""
        if self._thread is None or self._closing.is_set():
            return
        self._closing.set()
        os.write(self._waker, b"\0")
        self._thread.join(_JOIN_SECS)
        self._epoll.close()
        for each in (self._listening, self._woken, self._waker):
            os.close(each)

    def _run(self) -> None:
        wait_secs = _TICK_SECS
        while not self._closing.is_set():
            # What gRPC has accepted before this thread could see it waits for the next tick.
            woken = self._epoll.poll(wait_secs)
            if self._closing.wait(_SETTLE_SECS):
                return
            with suppress(OSError):  # without a file descriptor left it cannot look: the next time
                self._look()
            # Soon again after what has come: gRPC may not have accepted all of it yet.
            wait_secs = _AGAIN_SECS if woken or self._strangers.callers else _TICK_SECS

    def _look(self) -> None:
        """Count the strangers that are connected now, and send some away."""
        files, users = _own_sockets(), dict[Peer, int]()
        self._num_same = self._num_same + 1 if files.keys() == self._seen else 0
        self._seen = files.keys()
        if self._num_same > _LOOKS and not self._strangers.callers:
            return
        connections = dict[Peer, int]()
        for each in sockets_about(self._port):
            if each.state == ESTABLISHED and each.remote.port == self._port:
                users[each.local] = each.user
            is_accepted = each.state != LISTENING and each.inode in files
            if each.local.port == self._port and is_accepted:
                connections[each.remote] = files[each.inode]
        with self._lock:
            strangers = connections.keys() - self._members
        for peer in self._victims(strangers, users):
            _shut_down(connections[peer], peer, self._port)

    def _victims(self, present: Set[Peer], users: dict[Peer, int]) -> list[Peer]:
        """Return those of the strangers that have to go."""
        now, known = time.monotonic(), self._strangers
        for peer in known.callers - present:  # gone, or a member
            known.discard(peer)
        victims = list[Peer]()
        for peer in present - known.callers:
            for victim, origin in known.add(peer, Origin(peer.ip, users.get(peer)), now):
                victims.append(victim)
                self._crowds.add(
                    f"port {self._port} closes connections from {origin}: too many are open that "
                    "have not proved that they belong to this job"
                )
        late = known.overdue(now)
        for peer in late:
            known.discard(peer)
        return victims + late


def _own_sockets() -> dict[int, int]:
    """Return the file descriptors of the sockets of this process, by the numbers of those."""
    found = {}
    for name in os.listdir(_FILES):
        with suppress(OSError):  # closed meanwhile
            kind, _, number = os.readlink(_FILES / name).partition(":")
            if kind == "socket":
                found[int(number[1:-1])] = int(name)
    return found


def _listening_file(where: Peer) -> int | None:
    """Return a duplicate of the descriptor at which this process listens, if it can be found."""
    files, where = _own_sockets(), Peer(plain_ip(where.ip), where.port)
    for each in sockets_about(where.port):
        if (each.local, each.state) == (where, LISTENING) and each.inode in files:
            return os.dup(files[each.inode])
    return None


def _shut_down(file: int, peer: Peer, port: int) -> None:
    """End the connection from ``peer`` to ``port``, if that is still what the descriptor means."""
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        ip, remote_port, *_ = connection.getpeername()
        if (plain_ip(ip), remote_port, connection.getsockname()[1]) == (*peer, port):
            connection.shutdown(socket.SHUT_RDWR)
