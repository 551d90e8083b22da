"""The callers that nobody knows yet: how many there may be, and for how long.

Anybody can open a connection and say nothing. Until it has proved that it belongs here a caller has
little time, and there are few of its kind, of one origin and in all, so that strangers neither use
up the file descriptors of this process nor keep others from coming in.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Set
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from .grpc_stream import Stream

SILENCE_SECS = 2.0
"""How long a caller may take to say anything."""
CALL_SECS = 10.0
"""How long calling somebody, and proving who one is, may take: on a busy machine seconds."""

# Each process of a large job may call twice at the same time, and all from one address.
_AT_ONCE, _AT_ONCE_A_CALLER, _MOST_OF_ONE_ORIGIN = 64, 2, 256
_ORIGINS = 4
_FEWEST = 4
_OPEN_AT_START = 64
_REPORT_SECS = 60.0
_IPV6_NETWORK_BITS = 64


@dataclass(frozen=True)
class Origin:
    """From where a connection comes.

    Attributes:
        ip: The address of its other end.
        user: Whose process that is, if it is one of this host and the system tells that; else None.
    """

    ip: str
    user: int | None = None

    def __str__(self) -> str:
        return self.ip if self.user is None else f"{self.ip} (user {self.user})"

    @property
    def crowd(self) -> Hashable:
        """What all have in common that one stranger can come from: a host has 2^64 addresses."""
        address = ipaddress.ip_address(self.ip.partition("%")[0])
        if address.version == 6 and not getattr(address, "ipv4_mapped", None):
            return int(address) >> _IPV6_NETWORK_BITS, self.user
        return address, self.user


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows it to; return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS takes less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def num_open_files() -> int:
    """Return how many files this process has open; a guess where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return _OPEN_AT_START


def max_strangers(max_callers: int, max_files: int) -> tuple[int, int]:
    """Return how many strangers may come from one origin, and how many in all.

    Args:
        max_callers: How many processes may call, about.
        max_files: How many files this process may have open.
    """
    of_one = min(_MOST_OF_ONE_ORIGIN, _AT_ONCE + _AT_ONCE_A_CALLER * max_callers)
    in_all = max(_FEWEST, min(_ORIGINS * of_one, max_files // 4))
    return min(of_one, in_all), in_all


def max_connections(max_callers: int, max_files: int, num_open: int) -> int:
    """Return how many connections there may be in all; a quarter of all files is for others.

    Args:
        max_callers: How many processes may call, about.
        max_files: How many files this process may have open.
        num_open: How many it has open already.
    """
    return max(_FEWEST, min(max_streams(max_callers), max_files * 3 // 4 - num_open))


def max_streams(max_callers: int) -> int:
    """Return how many streams a server lets in at once at which so many processes may call."""
    _, strangers = max_strangers(max_callers, sys.maxsize)
    return 8 * max_callers + 16 + strangers


_CallerType = TypeVar("_CallerType", bound=Hashable)


@final
class Strangers(Generic[_CallerType]):
    """The callers that have not proved that they belong here. One thread at a time uses it.

    When there are too many one of them has to go, by chance: if it were the one that came first,
    whoever connects fast enough would leave nobody the time to prove anything.

    Args:
        of_one_origin: How many may come from one origin.
        in_all: How many there may be.
        limit_secs: How long each may take.
        choose: Picks the one that has to go.
    """

    def __init__(
        self,
        of_one_origin: int,
        in_all: int,
        limit_secs: float = SILENCE_SECS + CALL_SECS,
        choose: Callable[[list[_CallerType]], _CallerType] = random.choice,
    ) -> None:
        self._of_one_origin = of_one_origin
        self._in_all = in_all
        self._limit_secs = limit_secs
        self._choose = choose
        self._origins: dict[_CallerType, Origin] = {}
        self._ends: dict[_CallerType, float] = {}
        self._crowds: defaultdict[Hashable, list[_CallerType]] = defaultdict(list)

    @property
    def callers(self) -> Set[_CallerType]:
        """All that are counted."""
        return self._ends.keys()

    def add(
        self, caller: _CallerType, origin: Origin, now: float
    ) -> list[tuple[_CallerType, Origin]]:
        """Count ``caller``, which has come ``now``; return who has to go for it, and from where."""
        crowd = self._crowds[origin.crowd]
        crowd.append(caller)
        self._origins[caller] = origin
        self._ends[caller] = now + self._limit_secs
        if len(crowd) <= self._of_one_origin:
            if len(self._ends) <= self._in_all:
                return []
            crowd = max(self._crowds.values(), key=len)
        victim = self._choose(crowd)
        return [(victim, self.discard(victim))]

    def discard(self, caller: _CallerType) -> Origin:
        """Count ``caller`` no longer; return from where it came."""
        del self._ends[caller]
        origin = self._origins.pop(caller)
        crowd = self._crowds[origin.crowd]
        crowd.remove(caller)
        if not crowd:
            del self._crowds[origin.crowd]
        return origin

    def overdue(self, now: float) -> list[_CallerType]:
        """Return those that have taken too long."""
        return [caller for caller, end in self._ends.items() if now >= end]


@final
class OpenStreams:
    """The streams that are open, and by when each has to have shown whose it is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: set[Stream] = set()
        # When the handshake must have ended.
        self._handshakes: dict[Stream, float] = {}

    def add(self, stream: Stream, limit_secs: float = SILENCE_SECS) -> None:
        """Know of ``stream``, whose handshake may take ``limit_secs``."""
        with self._changed:
            self._open.add(stream)
            self._handshakes[stream] = time.monotonic() + limit_secs

    def remove(self, stream: Stream) -> None:
        """Note that ``stream`` has ended."""
        with self._changed:
            self._open.discard(stream)
            self._handshakes.pop(stream, None)
            self._changed.notify_all()

    def hear(self, stream: Stream) -> None:
        """Note that a stranger has said something: it is given as long as callers wait.

        Most likely it is a member whose proof takes long on a busy machine.
        """
        with self._changed:
            if self._handshakes.pop(stream, None) is not None:
                self._handshakes[stream] = time.monotonic() + CALL_SECS

    def identify(self, stream: Stream) -> None:
        """Note that ``stream`` is no stranger's: its handshake has ended."""
        with self._changed:
            self._handshakes.pop(stream, None)

    def cancel_overdue(self, secs: float = 0.0) -> None:
        """Break those whose handshake takes too long, or would within ``secs``."""
        now = time.monotonic() + secs
        with self._changed:
            overdue = [stream for stream, end in self._handshakes.items() if now > end]
        for stream in overdue:
            stream.cancel()

    def cancel_late(self, silent: Collection[Stream], timeout_secs: float) -> bool:
        """Wait until only ``silent`` ones are open; break what still is, and return if any was."""
        with self._changed:
            self._changed.wait_for(lambda: self._open <= {*silent}, timeout_secs)
            late = list(self._open)
        for stream in late:
            stream.cancel()
        return bool(late)


@final
class TurnedAway:
    """Reports callers who do not belong here, at most once a minute, with how many more there were.

    Args:
        report: Is told.
        clock: What tells seconds.
    """

    def __init__(
        self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_at = float("-inf")
        self._num_others = 0

    def add(self, text: str) -> None:
        """Note that somebody was turned away."""
        with self._lock:
            now = self._clock()
            if now - self._reported_at < _REPORT_SECS:
                self._num_others += 1
                return
            others, self._num_others, self._reported_at = self._num_others, 0, now
        self._report(text + (f" ({others} others since the last such line)" if others else ""))
