"""The other ranks as an algorithm sees them: send, look, wait; and who is to blame if it fails.

All waiting over links happens here: a short spin for latency, then the link's own sleep in slices,
with a look at health, our own `close` and the deadline between them.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, final

from .calls import (
    HEADER_BYTES,
    NOTHING,
    RECORD_BYTES,
    RULE,
    Call,
    Header,
    Kind,
    record_text,
    unpack_header,
)
from .errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    LinkBroken,
    LinkError,
    MismatchError,
    PeerLostError,
)
from .link import MAX_WAIT_SECS, Health, Link, wait_for_links
from .members import Member
from .stacks import show_stacks

# Nobody else gets a turn during the first part of a spin.
_GREEDY_SECS = 50e-6
# A link may break a moment before the control channel has heard why.
_REASON_GRACE_SECS = 0.5
# Silence longer than this is worth a remark.
_SILENCE_SECS = 2.5
# A wait is reported after so long, then after twice that, and so on.
DEFAULT_REPORT_SECS = 30.0

_log = logging.getLogger("paceline")

# time.sleep(0) can take 0.1 ms.
give_way: Callable[[], object] = getattr(os, "sched_yield", partial(time.sleep, 0))


def log_wait(
    operation: str, who: Member, waiting: str, waited_secs: float, timeout_secs: float
) -> None:
    """Log that ``who`` has been ``waiting`` ("waiting for …") in an operation, and until when."""
    _log.warning(
        "%s: %s has been %s: %.3g s; it gives up after %.3g s (timeout_seconds)",
        operation,
        who.task,
        waiting,
        waited_secs,
        timeout_secs,
    )


@final
class World:
    """All ranks and the links to them, shared by a communicator and those split from it.

    Attributes:
        health: News of the other ranks, if there is a control channel.
        spin_secs: How long a wait polls before it sleeps.
        short_spin_secs: The same for what is short, where to sleep and wake up takes longer.
        report_secs: When a wait that goes on is first reported.
        failure: The first error, after which nothing is sent any more.
        closed: Whether this rank has left.
    """

    def __init__(
        self,
        members: Sequence[Member],
        rank: int,
        connect: Callable[[int], Link],
        health: Health | None,
        spin_secs: float,
        on_close: Callable[[], None] | None,
        report_secs: float = DEFAULT_REPORT_SECS,
        short_spin_secs: float = 0.0,
    ) -> None:
        self.members = tuple(members)
        self.rank = rank
        self.health = health
        self.spin_secs = spin_secs
        self.short_spin_secs = short_spin_secs
        self.report_secs = report_secs
        self.failure: CollectiveError | None = None
        self.closed = False
        self._connect = connect
        self._on_close = on_close
        self._links: dict[int, Link] = {}
        self._lock = threading.Lock()

    def link(self, rank: int) -> Link:
        """Return the link to ``rank``, made when first asked for."""
        link = self._links.get(rank)
        if link is None:
            link = self._connect(rank)  # may take a while, so not under the lock
            # `close` comes from other threads. Either it finds the link in the table, or this
            # thread finds that it has been closed meanwhile.
            with self._lock:
                self._links[rank] = link
                closed = self.closed
                # One such link is enough: its threads run whomever this rank waits for.
                if not link.spins:
                    self.spin_secs = self.short_spin_secs = 0.0
            if closed:
                link.close()
        return link

    def check_usable(self) -> None:
        """Raise if this rank has left, or, again, if an earlier operation failed."""
        if self.closed:
            raise ClosedError("this communicator is closed")
        if self.failure is not None:
            raise type(self.failure)(f"unusable since an earlier failure: {self.failure}")

    def fail(self, failure: CollectiveError) -> None:
        """Note the first failure and tell the other ranks why this one gives up."""
        if self.failure is None and not self.closed:
            self.failure = failure
            self._announce(str(failure))

    def _announce(self, reason: str) -> None:
        if self.health is not None:
            self.health.announce(reason)

    def close(self, reason: str) -> None:
        """Leave: close the links and the control channel, telling the reason if there is one."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            links = list(self._links.values())
        if reason and self.failure is None:
            self._announce(reason)
        for link in links:
            link.close()

    def release(self) -> None:
        """Let go of what lies below the links, when nothing uses them any more."""
        # Once, and after the links have been closed: nothing uses what lies below them any more.
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


@final
class Peers:
    """The ranks of one communicator.

    Attributes:
        ranks: Their ranks in the world.
        call, step: What is being done, for error texts.
        timeout_secs: How long a wait without progress may last.
        known_calls: All calls made before, by digest, to put a name to what others send.
    """

    def __init__(self, world: World, ranks: Sequence[int], timeout_secs: float) -> None:
        self.world = world
        self.ranks = tuple(ranks)
        self.timeout_secs = timeout_secs
        self.rank = self.ranks.index(world.rank)
        self.size = len(self.ranks)
        self.call = NOTHING
        self.step: int | None = None
        self.known_calls: dict[bytes, Call] = {}
        self._links: dict[int, Link] = {}

    def link(self, peer: int) -> Link:
        link = self._links.get(peer)
        if link is None:
            try:
                link = self._links[peer] = self.world.link(self.ranks[peer])
            except LinkError as error:
                self.raise_lost(peer, error)
        return link

    def send(self, peer: int, data: memoryview) -> None:
        """Send all of ``data`` (bytes), waiting as long as the peer takes some of it."""
        link, waiter = self.link(peer), None
        while len(data):
            try:
                sent = link.try_send(data)
            except LinkBroken as error:
                self.raise_lost(peer, error)
            if sent == len(data):  # as a rule
                return
            waiter = waiter or Waiter(self)
            if sent:
                data = data[sent:]
                waiter.restart()
            else:
                waiter.wait(to=peer)

    def peek(self, peer: int, num_bytes: int) -> memoryview:
        """Wait for the next ``num_bytes`` (at most the link's segment) and return them in place."""
        link, waiter = self.link(peer), None
        while True:
            try:
                view = link.try_peek(num_bytes)
            except LinkBroken as error:
                self.raise_lost(peer, error)
            if view is not None:
                return view
            waiter = waiter or Waiter(self)  # most of what is asked for has come
            waiter.wait(source=peer)

    def check_header(self, peer: int, data: memoryview, expected: bytearray | memoryview) -> None:
        """Raise a `MismatchError` with what both ranks called, if ``data`` is not as expected."""
        if data != expected:
            theirs, ours = unpack_header(data), unpack_header(memoryview(expected))
            assert ours is not None
            raise MismatchError(self._difference(peer, theirs, ours))

    def describe(self) -> str:
        """Return what is being done, such as "all_reduce 'bucket 3' (25.0 MB, step 1841)"."""
        return self.call.describe(self.step)

    def name(self, peer: int) -> str:
        return str(self.world.members[self.ranks[peer]])

    def check(self, waited_for: Sequence[int], waited_secs: float) -> None:
        """Raise if waiting has become pointless: closed, somebody lost, or too long."""
        if self.world.closed:
            raise ClosedError(f"{self.describe()} ended: this communicator was closed")
        lost = self.world.health.lost() if self.world.health else None
        if lost is not None:
            self._raise_gone(*lost, waited_for, waited_secs)
        if waited_secs > self.timeout_secs:
            raise CollectiveTimeoutError(
                f"{self.describe()} timed out after {waited_secs:.3g} s: "
                + self._waiting(waited_for)
            )

    def report(self, waited_for: Sequence[int], waited_secs: float) -> None:
        """Log whom this rank has been waiting for, in what, and when it will give up.

        Who has no limit is idle, such as a server whose client has nothing to ask: that is no news.
        """
        if math.isinf(self.timeout_secs):
            return
        me, waiting = self.world.members[self.world.rank], self._waiting(waited_for)
        log_wait(self.describe(), me, waiting, waited_secs, self.timeout_secs)
        why = f"{self.describe()}: {me.task} has been {waiting}"
        show_stacks(why)
        if self.world.health is not None:
            self.world.health.show_stacks(why)

    def fail(self, error: BaseException) -> None:
        """Note an error after which nobody knows how much of a message has gone out."""
        if not isinstance(error, CollectiveError):
            what = f"{type(error).__name__}: {error}"
            error = CollectiveError(f"{self.describe()} was interrupted by {what}")
        self.world.fail(error)

    def raise_lost(self, peer: int, error: LinkError) -> NoReturn:
        """Raise what a break of the link to ``peer`` means."""
        if self.world.closed:
            raise ClosedError(f"{self.describe()} ended: this communicator was closed") from error
        health, started = self.world.health, time.monotonic()
        while health and time.monotonic() - started < _REASON_GRACE_SECS:
            lost = health.lost()
            if lost is not None:
                self._raise_gone(*lost, [peer], 0.0)
            if health.left(self.ranks[peer]):
                raise PeerLostError(
                    f"{self.describe()} failed: {self.name(peer)} has left: it has closed its "
                    "communicator, or its program has ended, without making this call"
                ) from error
            time.sleep(0.01)
        raise PeerLostError(f"{self.describe()} failed: lost {self.name(peer)}: {error}") from error

    def _difference(self, peer: int, theirs: Header | None, ours: Header) -> str:
        who, here = self.name(peer), self.name(self.rank)
        if theirs is None:
            return (
                f"{self.describe()} failed: {who} sent something that is no message of ours: "
                "it is not the same version of paceline, or memory was damaged"
            )
        if theirs.tag != ours.tag:
            what = "a collective on another communicator"
        else:
            what = self._what_they_called(peer, theirs)
        text = f"{who} called {what} as call {theirs.sequence} of this communicator, while "
        return f"{text}{here} called {self.call.account} as call {ours.sequence}. {RULE}"

    def _what_they_called(self, peer: int, theirs: Header) -> str:
        if theirs.kind in (Kind.FIRST_USE, Kind.DIRECT):
            message = self.peek(peer, HEADER_BYTES + RECORD_BYTES)
            return record_text(bytes(message[HEADER_BYTES:]))
        if theirs.digest == self.call.digest:
            return self.call.account
        known = self.known_calls.get(theirs.digest)
        return "a collective that was never called here" if known is None else known.account

    def _raise_gone(
        self, world_rank: int, reason: str, waited_for: Sequence[int], waited_secs: float
    ) -> NoReturn:
        """Raise that a rank is gone; say whom we waited for, who may be behind it all."""
        after = f" after {waited_secs:.3g} s" if waited_secs >= 0.001 else ""
        others = [self.name(peer) for peer in waited_for if self.ranks[peer] != world_rank]
        waiting = f" waiting for {' and '.join(others)}" if others else ""
        who = self.world.members[world_rank]
        raise PeerLostError(f"{self.describe()} failed{after}{waiting}: lost {who}: {reason}")

    def _waiting(self, waited_for: Sequence[int]) -> str:
        names = " and ".join(self.name(peer) + self._silence(peer) for peer in waited_for)
        return f"waiting for {names}" + self._somebody_more_silent(waited_for)

    def _silence(self, peer: int) -> str:
        heard = self._last_heard(self.ranks[peer])
        return "" if heard is None else f", last heard of {heard:.3g} s ago"

    def _somebody_more_silent(self, waited_for: Sequence[int]) -> str:
        """Name the rank that everybody may really be waiting for."""
        others = [r for r in range(len(self.world.members)) if r != self.world.rank]
        silent = max(others, key=lambda rank: self._last_heard(rank) or 0.0)
        heard = self._last_heard(silent)
        if heard is None or heard < _SILENCE_SECS or silent in [self.ranks[p] for p in waited_for]:
            return ""
        return f" ({self.world.members[silent]} was last heard of {heard:.3g} s ago)"

    def _last_heard(self, world_rank: int) -> float | None:
        return self.world.health.last_heard(world_rank) if self.world.health else None


@final
class Waiter:
    """One wait: it polls, then sleeps in slices until something moves or time is up."""

    __slots__ = ("_is_short", "_peers", "_report_at", "_since")

    def __init__(self, peers: Peers, *, is_short: bool = False) -> None:
        self._peers = peers
        self._is_short = is_short
        self._since = 0.0
        self._report_at = 0.0

    def restart(self) -> None:
        """Something has moved: the wait begins anew."""
        self._since = 0.0

    def wait(self, to: int | None = None, source: int | None = None) -> None:
        """Wait a little for room to send ``to`` a peer, for bytes from a ``source``, or either."""
        now, world = time.monotonic(), self._peers.world
        if not self._since:
            self._since, self._report_at = now, world.report_secs
        waited_secs = now - self._since
        if waited_secs < (world.short_spin_secs if self._is_short else world.spin_secs):
            # Where ranks share a processor, who is waited for gets it at once.
            if waited_secs >= min(_GREEDY_SECS, world.spin_secs):
                give_way()
            return
        waited_for = [peer for peer in (source, to) if peer is not None]
        self._peers.check(waited_for, waited_secs)
        if waited_secs >= self._report_at:
            self._peers.report(waited_for, waited_secs)
            self._report_at *= 2  # a wait that lasts does not fill the log
        wait_for_links(
            MAX_WAIT_SECS,
            None if to is None else self._peers.link(to),
            None if source is None else self._peers.link(source),
        )
