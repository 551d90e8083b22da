"""A run and the hooks that take part in it: who is told what, and who may ask for what."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..autodiff import Tensor
from ..inputs import nest
from ..strategies import Strategy, Variable, VariableStore

_logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class SessionRunArgs:
    """What a hook wants to know after the step.

    Args:
        fetches: A name, or a list or dict of names: "loss", "global_step" (the steps made in all),
            "step" (the number of the step just made, from 0), or that of a variable. A variable
            stands for its name, and the loss that `model_fn` returned for "loss".
    """

    fetches: Any


@dataclass(frozen=True)
class SessionRunValues:
    """What a hook gets after the step: the values that it asked for, in the same structure."""

    results: Any = None


_NO_VALUES = SessionRunValues()


class SessionRunContext:
    """One step, as a hook sees it."""

    __slots__ = ("_stop_requested", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self._stop_requested = False

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    def request_stop(self) -> None:
        """End the run after all hooks of this step were called."""
        self._stop_requested = True

    def should_stop(self) -> bool:
        """`stop_requested`, as a TensorFlow coordinator has it."""
        return self._stop_requested


class SessionRunHook:
    """Takes part in a run: begin, then after_create_session, then before_run and after_run around
    each step, then end.

    `end` is called at the end of the data too, but not after an exception. Write the methods that
    you need.
    """

    def begin(self) -> None:
        """The run is about to begin; nothing exists yet."""

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        """All variables exist and have their first values.

        Args:
            session: The run.
            coord: Has `request_stop()` and `should_stop()`: the run's `SessionRunContext`.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """A step is about to be made; say which values to hand to `after_run`."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """A step was made."""

    def end(self, session: Session) -> None:
        """The run has ended in order."""


class Session(ABC):
    """A run: training, an evaluation or a prediction. Its loop tells hooks of each step.

    Args:
        strategy: How it is distributed.
        store: Its variables.
        hooks: What takes part in it, in this order; those that `model_fn` brings follow.

    Attributes:
        loss: Of the latest step, the mean over all its examples; None before the first.
        workers_with_bad_loss: Where there are several, whose own loss was no finite number in the
            latest step.
        wants_save: A hook may set this before a step to ask all workers for a checkpoint after it.
        save_is_agreed: Whether a worker has asked for one after the step that was just made.
        wants_end: A hook may set this before a step to have all workers save after it and end, so
            that the run can be continued later.
        end_is_agreed: Whether a worker has asked for such an end after the step just made.
        will_stop: A hook that is sure to ask for the end after a step may say so here before it.
            Where all workers say so, none computes another step for the others' sake.
    """

    def __init__(
        self, strategy: Strategy, store: VariableStore, hooks: Sequence[SessionRunHook]
    ) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.workers_with_bad_loss: list[str] = []
        self.wants_save = self.save_is_agreed = False
        self.wants_end = self.end_is_agreed = False
        self.will_stop = False
        self._context = SessionRunContext(self)
        self._hooks: list[SessionRunHook] = []
        self._requests: list[SessionRunArgs | None] = []
        self._loss_of_model: Tensor | None = None
        # Values that all workers must read together, although hooks of only some of them ask.
        self._wanted: list[str] = []
        self._read_together: dict[str, np.ndarray] = {}
        self._begin(hooks)

    @property
    @abstractmethod
    def global_step(self) -> int:
        """The number of steps made so far, those of earlier runs included."""

    @property
    @abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """What hooks can ask for by name besides the global step and variables."""

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches`; see `SessionRunArgs`.

        On several workers, what was not announced by `before_run` and is aggregated over replicas
        (an `ON_READ` variable) must be asked for by all workers alike.
        """
        return nest.map_structure(self._value, fetches)

    def values(self) -> dict[str, Any]:
        """The values of all variables that belong into a checkpoint, by name.

        They are not copies: the next step changes them.
        """
        with self.strategy.scope():
            return self.store.saved_values()

    def tell_input_state(self, state: Callable[[], dict[str, Any]]) -> None:
        """Let checkpoints hold where this worker's input stands."""
        self.strategy.extended.job.tell_input_state(lambda: json.dumps(state()))

    def input_states(self) -> list[dict[str, Any]]:
        """Where the input of each worker stands after the latest step; all workers call this."""
        job = self.strategy.extended.job
        texts = job.input_states()
        if all(texts):
            return [json.loads(text) for text in texts]
        if job.is_chief:  # which saves
            _logger.info("It is not known yet where the input of all workers stands.")
        return []

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked for the end of the run."""
        return self._context.stop_requested

    def created(self, loss: Tensor | None, hooks: Sequence[SessionRunHook]) -> None:
        """Tell the hooks that all variables exist.

        Args:
            loss: What the first call of `model_fn` returned.
            hooks: Which hooks it brought. They begin only now, since nobody knew of them before.
        """
        # Who asks for the loss itself holds it; nobody else should keep a batch's graph.
        self._loss_of_model = loss if hooks else None
        self._begin(hooks)
        for hook in self._hooks:
            hook.after_create_session(self, self._context)

    def before_run(self) -> None:
        """Tell the hooks that a step is about to be made."""
        self._requests = [hook.before_run(self._context) for hook in self._hooks]
        # A worker that is alone reads what is aggregated over workers whenever it likes.
        if self.strategy.extended.num_workers > 1:
            self._note_wanted([r.fetches for r in self._requests if r is not None])

    def after_run(self) -> None:
        """Tell the hooks that it was made; each gets what it asked for before."""
        for hook, request in zip(self._hooks, self._requests, strict=True):
            values = _NO_VALUES if request is None else SessionRunValues(self.run(request.fetches))
            hook.after_run(self._context, values)

    def end(self) -> None:
        """Tell the hooks that the run has ended in order."""
        for hook in self._hooks:
            hook.end(self)

    def _begin(self, hooks: Sequence[SessionRunHook]) -> None:
        for hook in hooks:
            if not isinstance(hook, SessionRunHook):
                raise TypeError(
                    f"hooks must be objects of SessionRunHook or of a subclass, one is {hook!r}; "
                    f"give an instance of such a class"
                )
            hook.begin()
            self._hooks.append(hook)

    @property
    def _wants_shared(self) -> bool:
        """Whether hooks of this worker want to know, after the step, what all must read.

        That is what is aggregated over the copies of all workers. Each worker says so with the
        step; if hooks of any want something, all call `_read_shared`, whatever their own ask for.
        """
        return bool(self._wanted)

    def _note_wanted(self, fetches: Sequence[Any]) -> None:
        self._read_together = {}
        variables = self.store.variables
        known = {self._name_of(fetch) for fetch in nest.flatten(list(fetches))} & variables.keys()
        self._wanted = sorted([name for name in known if variables[name].differs_between_replicas])

    def _read_shared(self) -> None:
        """Read what hooks of any worker want to know; all workers call this."""
        wanted = self.strategy.extended.workers.texts(json.dumps(self._wanted), "wanted by hooks")
        names = sorted({name for text in wanted for name in json.loads(text)})
        # All workers read the same names in the same order: each reading is a common call.
        with self.strategy.scope():
            self._read_together = {name: self.store.variables[name].numpy() for name in names}
        self._wanted = []

    def _value(self, fetch: Any) -> Any:
        name = self._name_of(fetch)
        if name == "global_step":
            return self.global_step
        figures = self.figures
        if name in figures:
            return figures[name]
        if name in self._read_together:
            return self._read_together[name]
        if name not in self.store.variables:
            there_are = ", ".join([*figures, "global_step", *sorted(self.store.variables)])
            raise ValueError(f"a hook asks for {name!r}; there are {there_are}")
        with self.strategy.scope():
            return self.store.variables[name].numpy()

    def _name_of(self, fetch: Any) -> str:
        """The name of what a hook asks for: a name, a variable, or the loss of the first batch.

        Raises:
            TypeError: It is something else. Most likely a tensor, which belongs to one batch: the
                next call of `model_fn` makes another one, and nothing says which that would be.
        """
        if isinstance(fetch, str):
            return fetch
        if isinstance(fetch, Variable):
            return fetch.name
        if fetch is self._loss_of_model and fetch is not None:
            return "loss"
        raise TypeError(
            f"a hook asks for {type(fetch).__name__} {fetch!r}, which belongs to one call of "
            f"model_fn; ask for a name ('loss', 'global_step', or that of a variable), for a "
            f"variable, or for the loss of the EstimatorSpec. Other values can be logged in "
            f"model_fn itself"
        )
