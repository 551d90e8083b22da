"""`Job`: what the tasks that train one model tell each other, apart from the arrays of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, final

from .workers import Workers

if TYPE_CHECKING:  # a job without parameter servers does without their protocol
    from ...collectives.parameter_server import ShardStorage, UpdateRule


class Job(ABC):
    """The tasks that train one model, seen from one of them.

    They need not go in step with each other: that is a matter of the `Workers` of one strategy,
    which may be all of these tasks, or this one alone.

    Args:
        num_trainers: How many tasks feed data to the model.
        trainer_index: This task's number among them.
        is_chief: Whether this is the task that writes files. There is exactly one.
        has_chief_in_step: Whether the chief makes the same steps as this task.
        can_leave_alone: Whether this task may end while the others go on, without harm to them.
    """

    def __init__(
        self,
        num_trainers: int,
        trainer_index: int,
        is_chief: bool,
        has_chief_in_step: bool,
        can_leave_alone: bool = True,
    ) -> None:
        self.num_trainers = num_trainers
        self.trainer_index = trainer_index
        self.is_chief = is_chief
        self.has_chief_in_step = has_chief_in_step
        self.can_leave_alone = can_leave_alone

    def text_from_chief(self, text: str, name: str) -> str:
        """The chief's text, on every task; nobody gets it before the chief has called."""
        return self.texts(text, name)[0]

    @abstractmethod
    def texts(self, text: str, name: str) -> Mapping[int, str]:
        """What tasks say that must say the same, by trainer: this one, the chief, and maybe others.

        All call it with the same names in the same order; nobody returns before the chief.
        """

    @abstractmethod
    def tell_input_state(self, state: Callable[[], str]) -> None:
        """Let others find out where this task's input stands, by calling `state` when needed."""

    @abstractmethod
    def input_states(self) -> Sequence[str]:
        """Where the input of each task stood when the variables had their saved values.

        An empty text for a task that has not said. All workers of a strategy call this.
        """

    @abstractmethod
    def latest_input_state(self) -> str:
        """Where this task's input stood when it left a job that has gone on since; else empty."""

    @abstractmethod
    def tell_newest_checkpoint(self, find: Callable[[], str | None]) -> None:
        """Let those that keep variables begin again from what `find` returns when they must."""

    @abstractmethod
    def refresh(self) -> None:
        """Have variables read anew that other tasks may have changed."""

    @abstractmethod
    def finish(
        self, account: str = "", while_others_train: Callable[[], None] = lambda: None
    ) -> Mapping[int, str]:
        """This task makes no more steps. The chief returns when nobody does.

        Args:
            account: What this one has done.
            while_others_train: Called by the chief now and then, as long as somebody does.

        Returns:
            On the chief the accounts of all that have given one, by trainer.
        """

    @abstractmethod
    def share_result(self, text: str) -> str:
        """The chief's account of how the job ended, on every task; `text` is this task's own."""

    @property
    def is_ending(self) -> bool:
        """Whether a task that cannot leave alone has asked all to end.

        Tasks that make all steps together hear of that, and of `stop_all`, with the sums of a step.
        """
        return False

    @property
    def is_over(self) -> bool:
        """Whether tasks that keep variables for others have been told that they may end."""
        return False

    @property
    def stop_step(self) -> int | None:
        """The global step at which all tasks stop, if one that makes its own steps has said so."""
        return None

    @abstractmethod
    def stop_all(self, step: int) -> None:
        """Before this task's next step: let all tasks stop once the global step is `step`."""

    @abstractmethod
    def leave(self) -> None:
        """This task was asked to end, and has saved if it is the chief.

        Returns when it may end without harm to the others: where a task cannot leave alone all end
        with it, and none before the chief has saved.
        """


class VariableServer(ABC):
    """A task that trains nothing: it keeps variables for those that do."""

    @abstractmethod
    def serve(
        self,
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        is_asked_to_end: Callable[[], bool],
    ) -> str:
        """Keep variables for the trainers until they are all done.

        Args:
            rules: What optimizers do, by name.
            storage: Reads and writes this server's part of checkpoints.
            is_asked_to_end: Whether to wait only for trainers that are connected.

        Returns:
            The chief's account of how the job ended; empty if it gave none.
        """


@final
class WorkersJob(Job):
    """The job of workers that make all steps together."""

    def __init__(self, workers: Workers) -> None:
        # Each may leave alone: they have all agreed on the step after which they end.
        super().__init__(workers.size, workers.rank, workers.rank == 0, has_chief_in_step=True)
        self._workers = workers
        self._state: Callable[[], str] = str

    def texts(self, text: str, name: str) -> Mapping[int, str]:
        return dict(enumerate(self._workers.texts(text, name)))

    def tell_input_state(self, state: Callable[[], str]) -> None:
        self._state = state

    def input_states(self) -> Sequence[str]:
        return self._workers.texts(self._state(), "states of the input")

    def latest_input_state(self) -> str:
        return ""

    def tell_newest_checkpoint(self, find: Callable[[], str | None]) -> None:
        """Nobody keeps variables but the workers."""

    def refresh(self) -> None:
        """Nobody changes them but the workers together."""

    def finish(
        self, account: str = "", while_others_train: Callable[[], None] = lambda: None
    ) -> Mapping[int, str]:
        """All have made the same steps, and so have ended together."""
        return {}

    def share_result(self, text: str) -> str:
        return text

    def stop_all(self, step: int) -> None:
        """They hear of it in the sums of the step."""

    def leave(self) -> None:
        """All leave together."""
