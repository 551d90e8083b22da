"""`Servers`: all parameter servers of a job as one, seen from a trainer.

Each request goes to all servers that it concerns at once. One that has died is waited for and named
meanwhile; when it is back, the chief fills it from the last checkpoint, and everybody goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np

from ...collectives import CollectiveError
from ...collectives.parameter_server import (
    Asks,
    Body,
    Create,
    Done,
    Join,
    ParameterClient,
    Post,
    Pull,
    Pulled,
    Push,
    Pushed,
    Read,
    Status,
    TrainerStatus,
    Wait,
)
from ..variables.cell import SavedValue
from .channel import Channel
from .connections import ServerConnections, StartedRequests
from .placement import Layout
from .requests import (
    ASK_AGAIN_SECS,
    PullPart,
    RowLookup,
    ServerRequest,
    VariableChange,
    creations_of,
    pull_of_rows,
    pull_of_variables,
    shard_of,
    split_changes,
)
from .waiting import ChiefWatch, ReportedWait

_logger = logging.getLogger("paceline")

R = TypeVar("R", bound=Body)

_POLL_SECS = 0.2
_LAYOUT = "layout of "


@dataclass(frozen=True, kw_only=True)
class JobTerms:
    """What holds for this task of a job.

    Attributes:
        is_chief: Whether it writes checkpoints, and fills servers.
        is_synchronous: Whether all trainers make each step together.
        start_timeout_secs: How long tasks are waited for that have not been started yet.
        absence_secs: How long a task that has died is waited for.
    """

    is_chief: bool
    is_synchronous: bool
    start_timeout_secs: float
    absence_secs: float


@final
class Servers:
    """The parameter servers of a job.

    Args:
        channel: How they are reached.
        terms: What holds for this trainer.
        newest_checkpoint: Gives the path from which a server that was restarted is filled; None if
            nothing was saved.

    Attributes:
        channel: As given.
        absence_secs: See `JobTerms`.
        names: Of the servers, by index.
        lock: Held while servers are asked; several requests are one thing within it.
        note: What this trainer said of its input before it left the job; None if it is new.
        staleness: How many steps of others came between the pull and the push of the last step.
        num_dropped: How many steps of this trainer came too late to count.
        num_reconnects: How often a server was lost and is back: it may have older values, and what
            `empty` has given before may still be changed by the one that was lost.
        is_ending: Whether a trainer has said that all are to end.
        stop_step: The global step after which nothing is left to train, if one has said so.
        has_snapshot: Whether all servers keep their values as they were before the next push.
    """

    def __init__(
        self,
        channel: Channel,
        terms: JobTerms,
        newest_checkpoint: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.channel = channel
        self.absence_secs = terms.absence_secs
        self.lock = threading.RLock()
        self.staleness = 0
        self.num_dropped = 0
        self.num_reconnects = 0
        self.is_ending = False
        self.stop_step: int | None = None
        self.has_snapshot = False
        self._is_chief = terms.is_chief
        self._is_synchronous = terms.is_synchronous
        self._newest_checkpoint = newest_checkpoint
        self._layouts: dict[str, Layout] = {}
        self._posted: dict[str, str] = {}
        self._has_finished = False
        self._under_way: tuple[StartedRequests, dict[int, PullPart]] | None = None
        limits = terms.start_timeout_secs, terms.absence_secs
        self._chief_watch = ChiefWatch(self.chief_status, *limits)
        self._connections = ServerConnections(channel, *limits, self)
        self.names = self._connections.names
        self._versions: list[int] = []  # it has not joined all of them so far
        joined = [self._connections.ask(server, Join()) for server in range(len(self.names))]
        self.note = joined[0].note
        self._versions = [reply.version for reply in joined]
        self._number = max(reply.number for reply in joined)
        # A synchronous step that is under way is made without whoever comes during it.
        newest = max(self._versions)
        self._clock = newest + (newest > 0) if self._is_synchronous else joined[0].clock
        self._last_step = -2  # none so far
        self._contributes = not self._is_synchronous or newest == 0

    @property
    def num_bytes(self) -> int:
        """Bytes sent and received since the connections were made."""
        return self._connections.num_bytes

    def ask(self, server: int, request: Asks[R], arrays: Sequence[np.ndarray] = ()) -> R:
        """The reply of one server, however often it dies."""
        with self.lock:
            self.finish_push()
            return self._connections.ask(server, request, arrays)

    def ask_each(self, request: Asks[R]) -> list[R]:
        """The replies of all servers, asked one after the other."""
        return [self.ask(server, request) for server in range(len(self.names))]

    def tell(self, server: int, request: Asks[R]) -> None:
        """Say something at the end that a server that has died need not know."""
        with self.lock:
            self.finish_push()
            self._connections.tell(server, request)

    def ask_all(self, requests: Mapping[int, ServerRequest]) -> dict[int, Any]:
        """The replies of servers that are all asked at once.

        Those that die meanwhile give none; they are back, and filled, when this returns.
        """
        self.finish_push()
        return self._connections.finish(self._connections.start(requests))

    def check_chief(self) -> None:
        """Make sure, as another trainer, that the job still has its chief.

        Raises:
            CollectiveError: It has been gone for too long.
        """
        if self._is_chief:
            return
        try:
            self._chief_watch.check()
        except CollectiveError as error:
            self._connections.give_up(str(error))
            raise

    def chief_status(self) -> TrainerStatus:
        """How the first server sees the chief."""
        return self.ask(0, Status()).trainers[0]

    def create(self, layout: Layout, value: np.ndarray | SavedValue) -> None:
        """Put a new variable on its servers, unless it is there, and let the others know of it."""
        with self.lock:
            self._layouts[layout.name] = layout
            version = max(self._versions)  # where a server is new, and the others are not
            for server, creation in creations_of(layout, value, version):
                self.ask(server, creation.request, creation.arrays)
            self.post(_LAYOUT + layout.name, layout.model_dump_json())

    def find(self, name: str) -> Layout:
        """Where the chief has put a variable; waits until it has."""
        layout = Layout.model_validate_json(self.read(_LAYOUT + name))
        self._layouts[name] = layout
        return layout

    def empty(self, layout: Layout) -> np.ndarray:
        """An array for a variable's values, into which they come fastest where it can be shared.

        Once `num_reconnects` has risen values are to be read anew, into another array.
        """
        if len(layout.parts) == 1:
            client = self._connections.clients[layout.parts[0].server]
            return client.empty(layout.shape, np.dtype(layout.dtype))
        return np.empty(layout.shape, layout.dtype)

    def pull(self, wanted: Sequence[tuple[Layout, np.ndarray]]) -> None:
        """Fill arrays, each with the value of a whole variable."""
        with self.lock:
            self._contribute()
            self._pull(pull_of_variables(wanted))

    def pull_rows(self, lookups: Sequence[RowLookup]) -> None:
        """Find rows of variables, all in one exchange."""
        with self.lock:
            self._contribute()
            self._pull(pull_of_rows(lookups))

    def start_push(
        self,
        changes: Sequence[VariableChange],
        weight: float,
        note: str | None,
        wanted: Sequence[tuple[Layout, np.ndarray]],
        *,
        keeps_arrays: bool,
    ) -> None:
        """Begin a step: carry out changes, and fill arrays with the values that come of them.

        It goes on behind the caller's back until `finish_push`. What a server was to change that
        dies meanwhile is lost; where only the connection was lost it is sent again.

        Args:
            changes: What to do.
            keeps_arrays: Whether the arrays in `changes` stay as they are until `finish_push`.
                Otherwise they cannot be sent again.
            weight: How much it counts where the steps of several trainers become one.
            note: Where the input stands after it; kept with the step.
            wanted: Variables, each with an array for its new value.
        """
        # A trainer begins a push only when all servers have answered the one before: a snapshot of
        # several servers counts on there being one under way at most.
        by_server = pull_of_variables(wanted)
        parts = split_changes(changes, len(self.names))
        with self.lock:
            self.finish_push()
            self.check_chief()
            step, self._clock, self._last_step = self._clock, self._clock + 1, self._clock
            self._number += 1
            self.has_snapshot = False
            requests: dict[int, ServerRequest] = {}
            # In step all servers get each push, be it empty: each of them makes every step. The
            # first one keeps the notes.
            concerned = [
                server
                for server, part in enumerate(parts)
                if self._is_synchronous or server == 0 or part.updates or server in by_server
            ]
            for server in concerned:
                part, pull = parts[server], by_server.setdefault(server, PullPart())
                push = Push(
                    step=step,
                    number=self._number,
                    servers=tuple(concerned),
                    weight=weight,
                    pulled_version=self._versions[server],
                    plan=part.plan(pull.ids),
                    rates=tuple(part.rates),
                    note=note if server == 0 else None,
                    wait_secs=ASK_AGAIN_SECS if self._is_synchronous else 0.0,
                )
                requests[server] = ServerRequest(push, part.arrays, pull.into, keeps_arrays)
            self._under_way = self._connections.start(requests), by_server

    def finish_push(self) -> None:
        """Wait for the step that is under way, if there is one; its values are here then."""
        with self.lock:
            if self._under_way is None:
                return
            (started, by_server), self._under_way = self._under_way, None
            replies = self._connections.finish(started)
            if not self._take_note(replies):
                for server in [s for s, reply in replies.items() if not reply.waiting_for]:
                    del by_server[server]
            self._pull(by_server)

    def wait_for_others(self, staleness: int) -> None:
        """Return when this trainer is at most so many steps ahead of the slowest one."""
        wait = ReportedWait(f"a trainer that is more than {staleness} steps behind")
        while True:
            reply = self.ask(
                0, Wait(clock=self._clock, staleness=staleness, wait_secs=ASK_AGAIN_SECS)
            )
            if reply.ok:
                return
            wait.report(f"{reply.slowest} is at step {reply.clock}, this one at {self._clock}")
            self.check_chief()

    def post(self, key: str, text: str) -> None:
        """Let everybody read a text. The chief does so."""
        self._posted[key] = text
        self.ask(0, Post(key=key, text=text))

    def read(self, key: str) -> str:
        """The text that the chief has posted under a key; waits for it.

        Raises:
            CollectiveError: The chief is gone.
        """
        wait = ReportedWait(f"the chief to say the {key}")
        while True:
            text = self.ask(0, Read(key=key, wait_secs=ASK_AGAIN_SECS)).text
            if text is not None:
                return text
            wait.report("it has not come so far")
            self.check_chief()
            if self._has_finished:
                for server in range(1, len(self.names)):
                    self.ask(server, Status())  # one that was started anew is to know

    def finish(self) -> None:
        """Say that this trainer makes no more steps."""
        self._has_finished = True
        for server in range(len(self.names)):
            self.tell(server, Done())

    def close(self) -> None:
        """Say goodbye to all servers."""
        self._connections.close()

    def _contribute(self) -> None:
        """Let synchronous steps wait for this trainer from now on."""
        if not self._contributes:
            self._contributes = True
            self._join_at_clock()

    def _join_at_clock(self) -> None:
        """Contribute, on all servers, from a step on that none of them has begun."""
        # Otherwise one might wait for this trainer's part in a step that another has made without.
        while True:
            joined = self.ask_each(Join(from_version=self._clock))
            newest = max(reply.version for reply in joined)
            if newest < self._clock:
                return
            self._clock = newest + 1

    def _pull(self, by_server: Mapping[int, PullPart]) -> None:
        wait = ReportedWait("the others to make this step")
        left = dict(by_server)
        while left:
            min_version = self._clock if self._is_synchronous else 0
            replies = self.ask_all({s: wanted.request(min_version) for s, wanted in left.items()})
            self._note_stop(replies)
            for server, reply in replies.items():
                if not reply.waiting_for:
                    del left[server]
                elif reply.waiting_for == (self.names[server],) and reply.version < self._clock:
                    # Nobody else makes steps: this trainer begins with the step after the newest.
                    self._clock = max(r.version for r in replies.values())
                    self.ask_each(Join(from_version=self._clock))
                else:
                    wait.report(f"no word from {', '.join(reply.waiting_for)}")

    def _note_stop(self, replies: Mapping[int, Pushed | Pulled]) -> None:
        for reply in replies.values():
            self.stop_step = self.stop_step if reply.stop_step is None else reply.stop_step

    def _take_note(self, replies: Mapping[int, Pushed]) -> bool:
        """Keep what servers say of a push; return whether the values in them are too old now."""
        self.staleness = max((reply.staleness for reply in replies.values()), default=0)
        for server, reply in replies.items():
            self._versions[server] = reply.version
        self.is_ending |= any(reply.is_ending for reply in replies.values())
        self._note_stop(replies)
        is_dropped = any(reply.dropped for reply in replies.values())
        self.num_dropped += is_dropped
        if is_dropped or (self._is_synchronous and max(self._versions) > self._clock):
            # Go on with those who were faster.
            self._clock = max(self._clock, *self._versions)
            if min(self._versions) < max(self._versions):
                self._join_at_clock()
                return True
        return False

    def rejoin(self, server: int, client: ParameterClient, is_new: bool) -> None:
        """Join a server that is back, and see to it that it has its variables."""
        if not self._versions:  # it was lost with the first JOIN, which is said again
            return
        self.num_reconnects += 1
        client.ask(Join(returning=True))
        if is_new:
            if server == 0:  # it keeps the texts, and the others are waiting for them
                for key, text in self._posted.items():
                    client.ask(Post(key=key, text=text))
            if self._is_chief:
                self._fill(server, client)
            elif self._has_finished:
                client.ask(Done())
                return
            else:
                self._wait_until_filled(server, client)
        first_step = None
        if self._is_synchronous:
            # It may not have got the last push, which is then sent again. One that is new goes on
            # after the step of that push.
            sends_again = self._last_step == self._clock - 1 and not is_new
            first_step = self._clock - 1 if sends_again else self._clock
        number = self._number if is_new else 0  # whether it has got the last push it knows itself
        joined = client.ask(Join(from_version=first_step, returning=True, number=number))
        self._versions[server] = joined.version
        if server == 0 and not self._is_synchronous:
            self._clock = joined.clock
        _logger.warning("%s is back.", self.names[server])

    def _fill(self, server: int, client: ParameterClient) -> None:
        """Give a server that was started anew what it held, as it was saved last."""
        path = self._newest_checkpoint()
        parts = [(v, p) for v in self._layouts.values() for p in v.parts if p.server == server]
        if parts and path is None:
            raise CollectiveError(
                f"{self.names[server]} was started anew and its variables are lost: no checkpoint "
                f"was saved before; start the whole job again"
            )
        version = self._clock if self._is_synchronous else self._versions[server]
        for layout, part in parts:
            spec = shard_of(layout, part)
            client.ask(Create(id=part.id, spec=spec, checkpoint=path, version=version))
        client.ask(Pull(ids=()))  # says that all variables are there
        _logger.warning("%s goes on from %s.", self.names[server], path)

    def _wait_until_filled(self, server: int, client: ParameterClient) -> None:
        """Return when the chief has given a server that was started anew its variables, in time."""
        name = self.names[server]
        wait = ReportedWait(f"the chief to fill {name} again", self.absence_secs)
        while not client.ask(Join(returning=True)).is_ready:
            if not wait.left_secs:
                chief = client.ask(Status()).trainers[0].name
                raise CollectiveError(
                    f"{name} was started anew, and {chief}, the chief, has not filled it within "
                    f"{self.absence_secs:g} s"
                )
            wait.report("it is empty so far")
            time.sleep(_POLL_SECS)
