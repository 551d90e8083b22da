"""What the tasks of a job with parameter servers do for it: those that train, and the servers."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import final

from ...collectives.parameter_server import (
    ENDING_KEY,
    OUTCOME_KEY,
    STOPPING_KEY,
    ParameterServer,
    Post,
    Read,
    ShardStorage,
    UpdateRule,
    WaitDone,
)
from ..workers.job import Job, VariableServer
from .channel import Channel
from .checkpoints import take_snapshot
from .requests import ASK_AGAIN_SECS
from .servers import JobTerms, Servers
from .storage import ServerStorage
from .waiting import ReportedWait

_logger = logging.getLogger("paceline")

_POLL_SECS = 0.2


@final
class LazyServers:
    """Gives the servers when called, and connects to them when that is first done.

    Args:
        channel: How they are reached.
        terms: What holds for this trainer.

    Attributes:
        channel, terms: As given.
        newest_checkpoint: Gives the path of the newest checkpoint, None without any.
    """

    def __init__(self, channel: Channel, terms: JobTerms) -> None:
        self.channel = channel
        self.terms = terms
        self._lock = threading.Lock()
        self._servers: Servers | None = None
        self.newest_checkpoint: Callable[[], str | None] = lambda: None

    def __call__(self) -> Servers:
        """The servers.

        Raises:
            CollectiveError: One has not come in time.
        """
        with self._lock:
            if self._servers is None:
                self._servers = Servers(self.channel, self.terms, lambda: self.newest_checkpoint())
                atexit.register(self.leave)
            return self._servers

    def leave(self) -> None:
        """Say goodbye; the next call connects anew."""
        with self._lock:
            servers, self._servers = self._servers, None
        if servers is not None:
            atexit.unregister(self.leave)
            servers.close()


@final
class TrainerJob(Job):
    """The job of a task that trains: each makes its own steps, and all meet at the servers.

    Args:
        servers: Gives the servers.
        storage: Where the variables are.
    """

    def __init__(self, servers: LazyServers, storage: ServerStorage) -> None:
        channel, is_chief = servers.channel, servers.terms.is_chief
        super().__init__(
            len(channel.trainers), channel.rank, is_chief, is_chief, channel.can_leave_alone
        )
        self._servers = servers
        self._storage = storage
        self._is_over = False

    def texts(self, text: str, name: str) -> Mapping[int, str]:
        # The others may come later, or come back: each knows of the chief and itself.
        if self.is_over:  # each is alone
            return {0: text}
        if not self.is_chief:
            return {0: self._servers().read(name), self.trainer_index: text}
        self._servers().post(name, text)
        return {0: text}

    def tell_input_state(self, state: Callable[[], str]) -> None:
        self._storage.note = state
        self._servers().post(_input_key(self.trainer_index), state())

    def input_states(self) -> Sequence[str]:
        if not self.is_chief:
            return [""] * self.num_trainers
        servers = self._servers()
        notes = take_snapshot(servers)
        # A trainer without a step in the snapshot stands where it stood when it came.
        return [
            notes.get(index) or servers.ask(0, Read(key=_input_key(index))).text or ""
            for index in range(self.num_trainers)
        ]

    def latest_input_state(self) -> str:
        return self._servers().note or ""

    def tell_newest_checkpoint(self, find: Callable[[], str | None]) -> None:
        self._servers.newest_checkpoint = find

    def refresh(self) -> None:
        if not self.is_over:
            self._storage.refresh()

    def finish(
        self, account: str = "", while_others_train: Callable[[], None] = lambda: None
    ) -> Mapping[int, str]:
        servers = self._servers()
        if not self.is_chief:
            self._storage.come_to_rest()
            if account:
                servers.post(_account_key(self.trainer_index), account)
            servers.finish()
            return {}
        self._wait_for_other_trainers(while_others_train)
        self.refresh()
        others = {
            index: servers.ask(0, Read(key=_account_key(index))).text
            for index in range(1, self.num_trainers if account else 1)
        }
        return {0: account} | {index: text for index, text in others.items() if text}

    @property
    def is_ending(self) -> bool:
        return self._servers().is_ending

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def stop_step(self) -> int | None:
        return self._servers().stop_step

    def stop_all(self, step: int) -> None:
        servers = self._servers()
        servers.post(STOPPING_KEY, str(step))
        for server in range(1, len(servers.names)):
            servers.ask(server, Post(key=STOPPING_KEY, text=str(step)))

    def leave(self) -> None:
        if self.can_leave_alone:  # the others go on, and it may come back
            return
        servers = self._servers()
        servers.post(ENDING_KEY, f"trainer {self.trainer_index} was asked to end")
        servers.finish()
        if not self.is_chief:
            self._wait_for_chief()
        self._servers.leave()

    def share_result(self, text: str) -> str:
        servers = self._servers()
        if self.is_chief:
            servers.post(OUTCOME_KEY, text)
            for server in range(1, len(servers.names)):  # each returns it in its own task
                servers.tell(server, Post(key=OUTCOME_KEY, text=text))
            servers.finish()
        else:
            text = servers.read(OUTCOME_KEY)
        self._servers.leave()
        self._is_over = True
        return text

    def _wait_for_other_trainers(self, while_they_train: Callable[[], None]) -> None:
        """Return when no other trainer makes steps any more, nor does this one."""
        servers = self._servers()
        wait = ReportedWait("the other trainers to finish")
        while True:
            for server in range(1, len(servers.names)):
                servers.ask(server, WaitDone())  # also tells which one is to be filled
            names = servers.ask(0, WaitDone(wait_secs=ASK_AGAIN_SECS)).waiting_for
            if not names:
                return
            wait.report(f"{', '.join(names)} still train(s)")
            self.refresh()
            while_they_train()

    def _wait_for_chief(self) -> None:
        """Return when the chief has saved and makes no more steps.

        Raises:
            CollectiveError: It is gone.
        """
        servers = self._servers()
        wait = ReportedWait("the chief to save and end")
        while servers.chief_status().state != "done":
            servers.check_chief()
            wait.report("it has not ended so far")
            time.sleep(_POLL_SECS)


def _input_key(trainer: int) -> str:
    """Under it a trainer posts where its input stands when it comes."""
    return f"input of trainer {trainer}"


def _account_key(trainer: int) -> str:
    """Under it a trainer posts what it has done, when it makes no more steps."""
    return f"account of trainer {trainer}"


@final
class ServerTask(VariableServer):
    """The task of a parameter server, which keeps variables and makes no steps.

    Args:
        channel: How it is reached.
        terms: What holds for it.
        replicas_to_aggregate: How many trainers make a step in common; None for all.
    """

    def __init__(
        self, channel: Channel, terms: JobTerms, replicas_to_aggregate: int | None
    ) -> None:
        self._channel = channel
        self._terms = terms
        self._replicas_to_aggregate = replicas_to_aggregate

    def serve(
        self,
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        is_asked_to_end: Callable[[], bool],
    ) -> str:
        name = str(self._channel.servers[self._channel.rank])
        server = ParameterServer(
            name=name,
            trainers=[member.task for member in self._channel.trainers],
            rules=rules,
            storage=storage,
            synchronous=self._terms.is_synchronous,
            replicas_to_aggregate=self._replicas_to_aggregate,
            absence_secs=self._terms.absence_secs,
            start_timeout_secs=self._terms.start_timeout_secs,
        )
        with closing(self._channel.serve(server)):
            _logger.info("%s serves.", name)
            outcome = server.run(is_asked_to_end)
        self._channel.abandon(server.unfinished)
        _logger.info("%s has served: all trainers are done or gone.", name)
        return outcome
