"""A job with parameter servers in which one thing happens at a time, in an order that is chosen.

Trainers are threads of which one runs at a time. Whatever takes time between processes is an
action of its own: a server handles a request, a reply comes, a connection is cut with the request
or the reply in it, and the server notices that, perhaps only when the trainer has long connected
anew. So each order of events that a busy machine may bring about can be brought about at will.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from paceline.collectives.errors import RefusedRequest
from paceline.collectives.parameter_server import ParameterServer, ServerLost
from paceline.collectives.parameter_server.frames import Message
from paceline.collectives.parameter_server.service import Ending
from paceline.collectives.parameter_server.serving import Clients
from paceline.nn.optimizers import server_rules
from paceline.strategies import VariableStore

from ...conftest import ServerJobInProcess

MAX_ACTIONS = 3_000
_LIMIT_SECS = 60


class StuckError(AssertionError):
    """Nobody comes any further."""


@dataclass(eq=False)
class SimulatedConnection:
    """A trainer's connection, and a request under way on it.

    Arrays lie in memory that both ends share. Those of a request are others from the next one on,
    and into those for replies who was lost may write as long as it has not noticed.
    """

    world: World
    server: SimulatedServer
    client: object
    what: str = ""
    request: Message | None = None
    reply: Message | RefusedRequest | None = None
    is_cut: bool = False
    has_ended: bool = False
    into: tuple = ()
    num_sent_bytes: int = 0
    num_received_bytes: int = 0
    sent: list = field(default_factory=list)
    given: list = field(default_factory=list)

    @property
    def incarnation(self):
        return self.server.incarnation

    def __str__(self):
        return f"{self.client} and {self.server.name}"

    def start(self, message, into=(), what=""):
        if self.is_cut:
            raise ServerLost(f"the connection of {self} was cut")
        self.what, self.into, self.reply = what, tuple(into), None
        spoil(self.sent)
        self.sent = [array.copy() for array in message.arrays]
        self.request = replace(message, arrays=[array.view() for array in self.sent])
        return self

    def empty(self, shape, dtype):
        self.given.append(np.empty(shape, dtype))
        return self.given[-1]

    def wait(self, timeout_secs=None):
        self.world.wait(self.client.rank, lambda: self.is_cut or self.reply is not None)
        if self.is_cut:
            raise ServerLost(f"the connection of {self} was cut")
        if isinstance(self.reply, RefusedRequest):
            raise self.reply
        return self.reply

    @property
    def may_be_cut(self):
        """Whether something is under way."""
        return self.request is not None or self.reply is not None

    def handle(self):
        """The server answers the request."""
        request, self.request = self.request, None
        try:
            reply = self.server.handler.handle(self.client, request)
        except (ValueError, KeyError, TypeError) as error:
            self.reply = RefusedRequest(str(error), type(error).__name__)
            return
        arrays = [array.copy() for array in reply.arrays]
        for place, array in zip(self.into, arrays, strict=False):
            if not self.is_cut:
                place[...] = array
        self.reply = Message(reply.verb, reply.body, arrays)

    def close(self):
        self.is_cut = True

    def end(self):
        """The server notices that it was cut, or closed; what came last is not handled any more."""
        self.has_ended, self.request = True, None
        spoil(self.given)
        self.server.clients.end(self.client, Ending(has_left=False, reason="cut"))


def spoil(arrays):
    """Have other values in memory that nobody may read any more."""
    for array in arrays:
        if array.dtype.kind == "f":
            array.fill(np.nan)


class SimulatedServer:
    """One server's life, and whom it serves."""

    def __init__(self, world, index, handler):
        self.world, self.name, self.handler = world, f"ps {index}", handler
        self.incarnation = f"{index}"
        self.clients = Clients(handler)

    def connect(self, client):
        connection = SimulatedConnection(self.world, self, client)
        self.clients.admit(client, "")
        self.clients.join(client)
        self.world.connections.append(connection)
        return connection

    def close(self, reason=""):
        self.clients.close()


class SimulatedJob(ServerJobInProcess):
    """As its base; its servers wait for nothing, and its connections are those of a `World`."""

    def __init__(self, world, *arguments, **options):
        self._world = world
        super().__init__(*arguments, **options)

    def _start(self, index):
        server = ParameterServer(
            name=f"ps {index}",
            trainers=[f"worker {i}" for i in range(self.num_trainers)],
            rules=server_rules(),
            storage=None,
            synchronous=self.max_staleness == 0,
            clock=lambda: 0.0,
        )
        self.servers.append(server)
        return SimulatedServer(self._world, index, server)


@dataclass
class World:
    """Runs trainers, one action after the other.

    Args:
        choose: Which of several actions, given as texts, is next.
        num_faults: How many connections are cut at most.

    Attributes:
        connections: All that were made.
        done: What has happened, one text an action.
    """

    choose: Callable[[list[str]], int]
    num_faults: int = 0
    connections: list[SimulatedConnection] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def wait(self, rank, is_so):
        """A trainer waits until it is so, and until it is chosen; called in its thread."""
        self._waits[rank] = is_so
        self._back.release()
        if not self._turns[rank].acquire(timeout=_LIMIT_SECS) or self._is_over:
            raise StuckError("the world has ended")

    def run(self, *calls):
        """Run trainers to their end; their results.

        Raises:
            StuckError: They do not come to it.
        """
        self._is_over = False
        self._back = threading.Semaphore(0)
        self._turns = [threading.Semaphore(0) for _ in calls]
        self._waits: dict[int, Callable[[], bool]] = {}
        results, errors = [None] * len(calls), []

        def trainer(rank):
            try:
                self.wait(rank, lambda: True)
                with VariableStore(seed=0).building():
                    results[rank] = calls[rank]()
            except BaseException as error:
                errors.append(error)
            finally:
                self._waits.pop(rank, None)
                self._back.release()

        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(trainer, i), daemon=True)
            for i in range(len(calls))
        ]
        for thread in threads:
            thread.start()
            assert self._back.acquire(timeout=_LIMIT_SECS)
        try:
            while self._waits and not errors:
                self._act()
        finally:
            self._is_over = True
            for turn, thread in zip(self._turns, threads, strict=True):
                turn.release()
                thread.join(_LIMIT_SECS)
        if errors:
            raise errors[0]
        return results

    def _act(self):
        if len(self.done) >= MAX_ACTIONS:
            raise StuckError("nobody comes any further:\n" + "\n".join(self.done[-40:]))
        actions = self._actions()
        text = list(actions)[self.choose(list(actions))]
        self.done.append(text)
        actions[text]()

    def _actions(self):
        """What may happen next, by a text for each."""
        found = {}
        for rank, is_so in sorted(self._waits.items()):
            if is_so():
                found[f"worker {rank} goes on"] = lambda rank=rank: self._go_on(rank)
        for number, one in enumerate(self.connections):
            name = f"{one} ({number})"
            if one.has_ended:
                continue
            if one.request is not None:
                found[f"{name}: {one.what} is handled"] = one.handle
            if one.is_cut:
                found[f"{name}: the end is noticed"] = one.end
            elif self.num_faults and one.may_be_cut:
                lost = "request" if one.request is not None else "reply"
                found[f"{name}: cut, {one.what}, {lost}"] = lambda one=one: self._cut(one)
        return found

    def _go_on(self, rank):
        del self._waits[rank]
        self._turns[rank].release()
        assert self._back.acquire(timeout=_LIMIT_SECS)

    def _cut(self, connection):
        self.num_faults -= 1
        connection.close()


def chosen_by(random: Random, fault_rate: float) -> Callable[[list[str]], int]:
    """Any of the actions; cuts are rarer, or all faults would come at the beginning."""

    def choose(actions):
        weights = [fault_rate if ": cut" in action else 1.0 for action in actions]
        return random.choices(range(len(actions)), weights)[0]

    return choose
