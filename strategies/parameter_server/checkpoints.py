"""The servers' part of a checkpoint: they keep one moment of all, and write it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import final

from ...collectives.parameter_server import Held, Hold, ParameterClient, Snapped, Snapshot, Write
from ..variables.cell import ShardWriters
from .requests import ASK_AGAIN_SECS, ServerRequest
from .servers import Servers
from .waiting import ReportedWait

_logger = logging.getLogger("paceline")

_WRITE_SECS = 3600.0
_CONNECT_TO_WRITE_SECS = 10.0


def take_snapshot(servers: Servers) -> Mapping[int, str]:
    """Have all servers keep their values as they are now, for the next checkpoint.

    All stand still first and say which pushes they have; then each takes its snapshot with the
    pushes that any of them has. These are on their way to it, since a trainer begins a push only
    when all servers have answered the one before. Later ones wait meanwhile.

    Returns:
        What each trainer said of its input with the last step that is in it, by rank.
    """
    with servers.lock:
        wait = ReportedWait("the pushes that belong to a checkpoint", servers.absence_secs)
        snapped = None
        while snapped is None:
            snapped = _try_snapshot(servers, servers.ask_each(Hold()), wait)
        servers.has_snapshot = True
        return snapped[0].notes


@final
class ServerWriters(ShardWriters):
    """All servers: server i writes shard i + 1.

    What waits for them raises CollectiveError or RefusedRequest where one has died meanwhile.
    """

    def __init__(self, servers: Servers, lock: AbstractContextManager[object]) -> None:
        self._servers = servers
        self._lock = lock
        self._draft = ""

    @property
    def num(self) -> int:
        return len(self._servers.names)

    def begin(self, draft: str) -> None:
        with self._lock:
            if not self._servers.has_snapshot:
                take_snapshot(self._servers)
            self._servers.has_snapshot = False
        self._draft = draft

    def reports(self) -> Sequence[str]:
        """All write at once, over connections of this thread's own."""
        servers = self._servers
        connect_secs = min(_CONNECT_TO_WRITE_SECS, servers.absence_secs)
        with ExitStack() as stack:
            started = []
            for index in range(len(servers.names)):
                client = ParameterClient(servers.channel.connect(index, connect_secs))
                stack.enter_context(closing(client))
                started.append(client.start(Write(path=self._draft, shard_index=index + 1)))
            return [written.wait(_WRITE_SECS).record for written in started]


def cut_of(held: Sequence[Held]) -> tuple[int, list[dict[int, int]]]:
    """Which pushes belong to a snapshot of servers that stand still.

    A trainer has at most one push under way: the one that some of the servers have that it goes to,
    and others have not. It belongs to the snapshot of all of them.

    Returns:
        The version that all are to come to, where trainers are in step; and for each server, by
        rank, the number of the last push.
    """
    numbers: list[dict[int, int]] = [{} for _ in held]
    ranks = sorted({rank for one in held for rank in one.positions})
    for rank in ranks:
        known = [one.positions.get(rank) for one in held]
        newest = max((p for p in known if p is not None), key=lambda p: p.number)
        for server, position in enumerate(known):
            if server in newest.servers:
                numbers[server][rank] = newest.number
            elif position is not None:
                numbers[server][rank] = position.number
    return max(one.version for one in held), numbers


def _try_snapshot(
    servers: Servers, held: Sequence[Held], wait: ReportedWait
) -> list[Snapped] | None:
    """Have each server keep its values with the pushes that another one has already.

    Returns:
        Their replies; None if one does not stand still any more, as it was lost meanwhile.
    """
    version, numbers = cut_of(held)
    left = dict(enumerate(numbers))
    snapped: dict[int, Snapped] = {}
    while left:
        asked = {
            server: ServerRequest(
                Snapshot(version=version, numbers=number, wait_secs=ASK_AGAIN_SECS)
            )
            for server, number in left.items()
        }
        for server, reply in servers.ask_all(asked).items():
            name = servers.names[server]
            if not reply.is_held:
                return None
            if not reply.waiting_for:
                snapped[server] = reply
                del left[server]
            elif wait.left_secs:
                wait.report(f"{name} has none from {reply.waiting_for}")
            else:
                version, left[server] = 0, {}
                _logger.warning(
                    "The next checkpoint holds the last push of %s on some parameter servers "
                    "only: %s has not got it.",
                    ", ".join(reply.waiting_for),
                    name,
                )
    return [snapped[server] for server in range(len(held))]
