"""`Servers`: all parameter servers of a job as one, seen from a trainer.

Each request goes to those servers that it concerns, to all of them at once. A server that has died
is waited for and named meanwhile; when it is back, the chief fills it again from the last
checkpoint, and everybody goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeVar, final

import numpy as np

from ...collectives import CollectiveError
from ...collectives.parameter_server import (
    ENDING_KEY,
    Asks,
    Connection,
    Create,
    Done,
    Held,
    Hold,
    Join,
    ParameterClient,
    Post,
    Pull,
    Push,
    Pushed,
    Read,
    Reply,
    Snapped,
    Snapshot,
    Status,
    TrainerStatus,
    Wait,
    WaitDone,
    Write,
)
from ..storage import SavedValue
from .changes import Change, parts_with_rows, split_changes
from .chief_watch import ChiefWatch, wait_until_filled
from .fleet import Fleet, UnderWay
from .layout import Layout
from .patience import Patience
from .questions import (
    ASK_AGAIN_SECS,
    Question,
    Wanted,
    cut_of,
    only_number,
    rows_to_send,
    spec_of,
    whole,
)

_logger = logging.getLogger("paceline")

R = TypeVar("R", bound=Reply)

_WRITE_SECS = 3600.0
_CONNECT_TO_WRITE_SECS = 10.0
_LOOK_SECS = 0.2
_LAYOUT = "layout of "


@final
class Servers:
    """The parameter servers of a job.

    Args:
        connect: Makes a connection to the server of an index within so many seconds; called again
            when one has died.
        names: Of the servers, by index.
        is_chief: Whether this trainer fills servers.
        is_synchronous: Whether all trainers make each step together.
        start_timeout_secs: How long servers are waited for that have not been started yet.
        absence_secs: How long a server that has died is waited for.
        newest_checkpoint: Gives the path from which a server that was restarted is filled; None if
            nothing was saved.

    Attributes:
        note: What this trainer said of its input before it left the job; None if it is new.
        staleness: How many steps of others came between the pull and the push of the last step.
        num_dropped: How many steps of this trainer came too late to count.
        num_restarts: How often a server was found to be a new one, with older values.
        is_ending: Whether a trainer has said that all are to end.
    """

    def __init__(
        self,
        connect: Callable[[int, float], Connection],
        names: Sequence[str],
        is_chief: bool,
        is_synchronous: bool,
        start_timeout_secs: float,
        absence_secs: float,
        newest_checkpoint: Callable[[], str | None],
    ) -> None:
        self._connect = connect
        self._names = names
        self._is_chief = is_chief
        self._is_synchronous = is_synchronous
        self._absence_secs = absence_secs
        self._newest_checkpoint = newest_checkpoint
        self._lock = threading.RLock()
        self._layouts: dict[str, Layout] = {}
        self._posted: dict[str, str] = {}
        self._chief_watch = ChiefWatch(self._chief_status, start_timeout_secs, absence_secs)
        self._has_finished = False
        self._fleet = Fleet(connect, names, start_timeout_secs, absence_secs, self._rejoin)
        joined = [client.ask(Join()) for client in self._fleet.clients]
        self._versions = [reply.version for reply in joined]
        self.note = joined[0].note
        self._number = max(reply.number for reply in joined)
        self._has_snapshot = False
        self._under_way: tuple[UnderWay, dict[int, Wanted]] | None = None
        self.staleness = 0
        self.num_dropped = 0
        self.num_restarts = 0
        self.is_ending = False
        # A synchronous step that is under way is made without whoever comes during it.
        newest = max(self._versions)
        self._clock = newest + (newest > 0) if is_synchronous else joined[0].clock
        self._last_step = -2  # none so far
        self._contributes = not is_synchronous or newest == 0

    @property
    def num_servers(self) -> int:
        """How many there are."""
        return len(self._names)

    @property
    def num_bytes(self) -> int:
        """Bytes sent and received since the connections were made."""
        return self._fleet.num_bytes

    def create(self, layout: Layout, value: np.ndarray | SavedValue) -> None:
        """Put a new variable on its servers, unless it is there, and let the others know of it.

        What is saved each server reads for itself; of one number everywhere only that travels.
        """
        path = value.path if isinstance(value, SavedValue) else None
        fill = None if isinstance(value, SavedValue) else only_number(value)
        with self._lock:
            self._layouts[layout.name] = layout
            version = max(self._versions)  # where a server is new, and the others are not
            for part in layout.parts:
                spec = spec_of(layout, part)
                create = Create(id=part.id, spec=spec, fill=fill, checkpoint=path, version=version)
                arrays = [] if fill is not None else rows_to_send(value, layout, part)
                self._ask(part.server, create, arrays)
            self.post(_LAYOUT + layout.name, layout.model_dump_json())

    def find(self, name: str) -> Layout:
        """Where the chief has put a variable; waits until it has."""
        layout = Layout.model_validate_json(self.read(_LAYOUT + name))
        self._layouts[name] = layout
        return layout

    def pull(self, wanted: Sequence[tuple[Layout, np.ndarray]]) -> None:
        """Fill arrays, each with the value of a whole variable."""
        with self._lock:
            self._contribute()
            self._pull(whole(wanted))

    def pull_rows(self, layout: Layout, rows: np.ndarray) -> np.ndarray:
        """Some rows of a variable.

        Args:
            rows: int64 numbers of any shape, from 0.

        Raises:
            IndexError: There is no such row.
        """
        unique, places = np.unique(rows, return_inverse=True)
        found = np.empty((len(unique), *layout.shape[1:]), layout.dtype)
        by_server: dict[int, Wanted] = {}
        for part, here in parts_with_rows(layout, unique):
            wanted = by_server.setdefault(part.server, Wanted())
            wanted.ids.append(part.id)
            wanted.rows[part.id] = unique[here] - part.start
            wanted.into.append(found[here])
        with self._lock:
            self._contribute()
            self._pull(by_server)
        return found[places.reshape(rows.shape)]

    def start_push(
        self,
        changes: Sequence[Change],
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
        by_server = whole(wanted)
        shares = split_changes(changes, self.num_servers)
        with self._lock:
            self.finish_push()
            self._look_for_chief()
            step, self._clock, self._last_step = self._clock, self._clock + 1, self._clock
            self._number += 1
            self._has_snapshot = False
            questions: dict[int, Question] = {}
            concerned = [
                server
                for server, share in enumerate(shares)
                if self._is_synchronous or server == 0 or share.updates or server in by_server
            ]
            for server in concerned:
                share, values = shares[server], by_server.setdefault(server, Wanted())
                push = Push(
                    step=step,
                    number=self._number,
                    servers=tuple(concerned),
                    weight=weight,
                    pulled_version=self._versions[server],
                    optimizers=tuple(share.optimizers),
                    updates=tuple(share.updates),
                    pull=tuple(values.ids),
                    note=note if server == 0 else None,
                    wait_secs=ASK_AGAIN_SECS if self._is_synchronous else 0.0,
                )
                questions[server] = Question(push, share.arrays, values.into, keeps_arrays)
            self._under_way = self._fleet.start(questions), by_server

    def finish_push(self) -> None:
        """Wait for the step that is under way, if there is one; its values are here then."""
        with self._lock:
            if self._under_way is None:
                return
            (started, by_server), self._under_way = self._under_way, None
            replies = self._fleet.finish(started)
            if not self._take_note(replies):
                for server in [s for s, reply in replies.items() if not reply.waiting_for]:
                    del by_server[server]
            self._pull(by_server)

    def wait_for_others(self, staleness: int) -> None:
        """Return when this trainer is at most so many steps ahead of the slowest one."""
        patience = Patience(f"a trainer that is more than {staleness} steps behind")
        while True:
            request = Wait(clock=self._clock, staleness=staleness, wait_secs=ASK_AGAIN_SECS)
            reply = self._ask(0, request)
            if reply.ok:
                return
            patience.report(f"{reply.slowest} is at step {reply.clock}, this one at {self._clock}")
            self._look_for_chief()

    def post(self, key: str, text: str) -> None:
        """Let everybody read a text. The chief does so."""
        self._posted[key] = text
        self._ask(0, Post(key=key, text=text))

    def post_everywhere(self, key: str, text: str) -> None:
        """The same, also for the servers themselves."""
        self.post(key, text)
        for server in range(1, self.num_servers):
            self._tell(server, Post(key=key, text=text))

    def posted(self, key: str) -> str:
        """The text that is posted under a key now; empty without any."""
        return self._ask(0, Read(key=key)).text or ""

    def read(self, key: str) -> str:
        """The text that the chief has posted under a key; waits for it.

        Raises:
            CollectiveError: The chief is gone.
        """
        patience = Patience(f"the chief to say the {key}")
        while True:
            text = self._ask(0, Read(key=key, wait_secs=ASK_AGAIN_SECS)).text
            if text is not None:
                return text
            patience.report("it has not come so far")
            self._look_for_chief()
            if self._has_finished:
                for server in range(1, self.num_servers):
                    self._ask(server, Status())  # one that was started anew is to know

    def share_checkpoint(self, draft: str) -> Callable[[], Sequence[str]]:
        """Have all servers write what they hold.

        Args:
            draft: The path of the unfinished checkpoint.

        Returns:
            A function, for another thread, that has them write, server i as shard i + 1, and
            returns their reports.
        """
        if not self._has_snapshot:
            self.snapshot()
        self._has_snapshot = False
        return partial(self._write_shards, draft)

    def snapshot(self) -> Mapping[int, str]:
        """Have all servers keep their values as they are now, for the next checkpoint.

        Returns:
            What each trainer said of its input with the last step that is in it, by rank.
        """
        with self._lock:
            patience = Patience("the pushes that belong to a checkpoint", self._absence_secs)
            snapped = None
            while snapped is None:
                snapped = self._try_snapshot(self._ask_each(Hold()), patience)
            self._has_snapshot = True
            return snapped[0].notes

    def _try_snapshot(self, held: Sequence[Held], patience: Patience) -> list[Snapped] | None:
        """Have each server keep its values with the pushes that another one has already.

        Returns:
            Their replies; None if one does not stand still any more, as it was lost meanwhile.
        """
        version, numbers = cut_of(held)
        left = dict(enumerate(numbers))
        snapped: dict[int, Snapped] = {}
        while left:
            asked = {
                server: Question(
                    Snapshot(version=version, numbers=number, wait_secs=ASK_AGAIN_SECS)
                )
                for server, number in left.items()
            }
            for server, reply in self._ask_all(asked).items():
                if not reply.is_held:
                    return None
                if not reply.waiting_for:
                    snapped[server] = reply
                    del left[server]
                elif patience.left_secs:
                    patience.report(f"{self._names[server]} has none from {reply.waiting_for}")
                else:
                    version, left[server] = 0, {}
                    _logger.warning(
                        "The next checkpoint holds the last push of %s on some parameter servers "
                        "only: %s has not got it.",
                        ", ".join(reply.waiting_for),
                        self._names[server],
                    )
        return [snapped[server] for server in range(self.num_servers)]

    def _write_shards(self, draft: str) -> Sequence[str]:
        """Have all servers write at once, over connections of this thread's own.

        Raises:
            CollectiveError, RefusedRequest: One has died since it kept its values.
        """
        connect_secs = min(_CONNECT_TO_WRITE_SECS, self._absence_secs)
        with ExitStack() as stack:
            started = []
            for index in range(len(self._names)):
                client = ParameterClient(self._connect(index, connect_secs))
                stack.enter_context(closing(client))
                started.append(client.start(Write(path=draft, shard_index=index + 1)))
            return [written.wait(_WRITE_SECS).record for written in started]

    def finish(self) -> None:
        """Say that this trainer makes no more steps."""
        self._has_finished = True
        for server in range(self.num_servers):
            self._tell(server, Done())

    def end_all(self, reason: str) -> None:
        """Have all trainers end after the step that they are making."""
        self.post(ENDING_KEY, reason)

    def wait_until_the_chief_has_finished(self) -> None:
        """Return when the chief has saved and makes no more steps.

        Raises:
            CollectiveError: It is gone.
        """
        patience = Patience("the chief to save and end")
        while self._chief_status().state != "done":
            self._look_for_chief()
            patience.report("it has not ended so far")
            time.sleep(_LOOK_SECS)

    def wait_until_all_have_finished(self) -> None:
        """Return when no other trainer makes steps any more, nor does this one."""
        patience = Patience("the other trainers to finish")
        while True:
            for server in range(1, self.num_servers):
                self._ask(server, WaitDone())  # also tells which one is to be filled
            names = self._ask(0, WaitDone(wait_secs=ASK_AGAIN_SECS)).waiting_for
            if not names:
                return
            patience.report(f"{', '.join(names)} still train(s)")

    def close(self) -> None:
        """Say goodbye to all servers."""
        self._fleet.close()

    def _contribute(self) -> None:
        """Let synchronous steps wait for this trainer from now on."""
        if not self._contributes:
            self._contributes = True
            self._join_at_clock()

    def _join_at_clock(self) -> None:
        """Contribute, on all servers, from a step on that none of them has begun.

        It may be later than the clock said. Otherwise one server might wait for this trainer's part
        in a step that another one has made without it.
        """
        while True:
            joined = self._ask_each(Join(from_version=self._clock))
            newest = max(reply.version for reply in joined)
            if newest < self._clock:
                return
            self._clock = newest + 1

    def _join_as_the_only_one(self, version: int) -> None:
        """Begin with the step after a version, since nobody else makes steps."""
        self._clock = version
        self._ask_each(Join(from_version=version))

    def _pull(self, by_server: Mapping[int, Wanted]) -> None:
        patience = Patience("the others to make this step")
        left = dict(by_server)
        while left:
            min_version = self._clock if self._is_synchronous else 0
            replies = self._ask_all({s: wanted.question(min_version) for s, wanted in left.items()})
            for server, reply in replies.items():
                if not reply.waiting_for:
                    del left[server]
                elif reply.waiting_for == (self._names[server],) and reply.version < self._clock:
                    self._join_as_the_only_one(max(r.version for r in replies.values()))
                else:
                    patience.report(f"no word from {', '.join(reply.waiting_for)}")

    def _take_note(self, replies: Mapping[int, Pushed]) -> bool:
        """Keep what servers say of a push; return whether the values in them are too old now."""
        self.staleness = max((reply.staleness for reply in replies.values()), default=0)
        for server, reply in replies.items():
            self._versions[server] = reply.version
        self.is_ending |= any(reply.is_ending for reply in replies.values())
        is_dropped = any(reply.dropped for reply in replies.values())
        self.num_dropped += is_dropped
        if is_dropped or (self._is_synchronous and max(self._versions) > self._clock):
            # Go on with those who were faster.
            self._clock = max(self._clock, *self._versions)
            if min(self._versions) < max(self._versions):
                self._join_at_clock()
                return True
        return False

    def _ask(self, server: int, request: Asks[R], arrays: Sequence[np.ndarray] = ()) -> R:
        """The reply of one server, however often it dies."""
        with self._lock:
            self.finish_push()
            return self._fleet.ask(server, request, arrays)

    def _ask_each(self, request: Asks[R]) -> list[R]:
        """The replies of all servers, asked one after the other."""
        return [self._ask(server, request) for server in range(self.num_servers)]

    def _tell(self, server: int, request: Asks[R]) -> None:
        """Say something at the end that a server that has died need not know."""
        with self._lock:
            self.finish_push()
            self._fleet.tell(server, request)

    def _ask_all(self, questions: Mapping[int, Question]) -> dict[int, Any]:
        """The replies of servers that are all asked at once.

        Those that die meanwhile give none; they are back, and filled, when this returns.
        """
        self.finish_push()
        return self._fleet.finish(self._fleet.start(questions))

    def _rejoin(self, server: int, is_new: bool) -> None:
        client = self._fleet.clients[server]
        client.ask(Join(returning=True))
        if is_new:
            self.num_restarts += 1
            if server == 0:
                for key, text in self._posted.items():
                    client.ask(Post(key=key, text=text))
            if self._is_chief:
                self._fill(server, client)
            elif self._has_finished:
                client.ask(Done())
                return
            else:
                wait_until_filled(client, self._names[server], self._absence_secs)
        first_step = self._first_step(is_new) if self._is_synchronous else None
        number = self._number if is_new else 0  # whether it has got the last push it knows itself
        joined = client.ask(Join(from_version=first_step, returning=True, number=number))
        self._versions[server] = joined.version
        if server == 0 and not self._is_synchronous:
            self._clock = joined.clock
        _logger.warning("%s is back.", self._names[server])

    def _first_step(self, is_new: bool) -> int:
        """From which step on a server that is back has to wait for this trainer.

        It may not have got the last push, which is then sent again. One that is new goes on after
        the step of that push.
        """
        was_pushed = self._last_step == self._clock - 1
        return self._clock - 1 if was_pushed and not is_new else self._clock

    def _fill(self, server: int, client: ParameterClient) -> None:
        """Give a server that was started anew what it held, as it was saved last."""
        path = self._newest_checkpoint()
        parts = [(v, p) for v in self._layouts.values() for p in v.parts if p.server == server]
        if parts and path is None:
            raise CollectiveError(
                f"{self._names[server]} was started anew and its variables are lost: no checkpoint "
                f"was saved before; start the whole job again"
            )
        version = self._clock if self._is_synchronous else self._versions[server]
        for layout, part in parts:
            spec = spec_of(layout, part)
            client.ask(Create(id=part.id, spec=spec, checkpoint=path, version=version))
        client.ask(Pull(ids=()))  # says that all variables are there
        _logger.warning("%s goes on from %s.", self._names[server], path)

    def _look_for_chief(self) -> None:
        """Make sure, as another trainer, that the job still has its chief.

        Raises:
            CollectiveError: It has been gone for too long.
        """
        if self._is_chief:
            return
        try:
            self._chief_watch.look()
        except CollectiveError as error:
            self._fleet.give_up(str(error))
            raise

    def _chief_status(self) -> TrainerStatus:
        return self._ask(0, Status()).trainers[0]
