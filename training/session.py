"""A run and the hooks that take part in it: who is told what, and who may ask for what."""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..autodiff import Tensor
from ..checkpoint import PendingCopies
from ..inputs import nest
from ..observe import Stopwatch
from ..strategies import Strategy, Variable, VariableStore
from ..summary import Summaries, collect_for_good
from .fetches import Figure, HeldValues, over_workers
from .hook import (
    Audience,
    Counts,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

_logger = logging.getLogger("paceline")
_NO_ARGS = SessionRunArgs(None)
_NO_VALUES = SessionRunValues()


class Saver(Protocol):
    """What saves a run, of which it is one of the hooks."""

    def save_if_due(self, session: Session) -> None:
        """The chief makes no more steps, and others do: `session.global_step` counts theirs."""


class Session(ABC):
    """A run: training, an evaluation or a prediction. Its loop tells hooks of each step.

    Args:
        strategy: How it is distributed.
        store: Its variables.
        hooks: Those of the call that began the run; those that `model_fn` brings follow.
        own_hooks: Those of the package, which are told first of everything.

    Attributes:
        loss: Of the latest step, the mean over all its examples; None before the first. In an
            evaluation on several workers it is this worker's part: ask for "loss" there.
        workers_with_bad_loss: Where there are several, whose own loss was no finite number in the
            latest step.
        wants_save: A hook may set this before a step to ask all workers for a checkpoint after it.
        saver: What saves the run; None where nothing does.
        save_is_agreed: Whether a worker has asked for one after the step that was just made.
        wants_end: A hook may set this before a step to have all workers save after it and end, so
            that the run can be continued later.
        end_is_agreed: Whether a worker has asked for such an end after the step just made.
        stop_requested: Whether a hook has asked for the end of the run.
        wants_stop: Whether a hook has called `stop_all`.
        will_stop: A hook that is sure to ask for the end after a step may say so here before it.
            Where all workers say so, none computes another step for the others' sake.
        wants_summaries: A hook may set this before a step to have `summaries` after it.
        wants_gradient_norm: Whether the norm of the gradients belongs to `summaries`.
        summaries: What the model has shown in the latest step for which a hook wanted to know it,
            over all replicas of the workers whose hooks did.
        num_examples: Those of the latest step, of all workers that made it together.
        counts: What this task has done so far.
        end_reason: Why the run ends, once that is known.
        stopwatches: How long each replica of this worker is in each phase of a step.
    """

    def __init__(
        self,
        strategy: Strategy,
        store: VariableStore,
        hooks: Sequence[SessionRunHook],
        own_hooks: Sequence[SessionRunHook] = (),
    ) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.workers_with_bad_loss: list[str] = []
        self.saver: Saver | None = None
        self.wants_save = self.save_is_agreed = False
        self.wants_end = self.end_is_agreed = False
        self.stop_requested = self.wants_stop = False
        self.will_stop = False
        self.wants_summaries = self.wants_gradient_norm = False
        self.summaries = Summaries()
        self.num_examples = 0
        self.counts = Counts()
        self.end_reason = ""
        num_replicas = strategy.extended.num_local_replicas
        self.stopwatches = [Stopwatch() for _ in range(num_replicas)]
        self._shown: dict[int, tuple[Summaries, int]] = {}
        self._logs: Sequence[tuple[int, Mapping[str, Any]]] = ()
        self._is_alone = strategy.extended.num_workers == 1
        self._requests: dict[int, SessionRunArgs] = {}
        self._held = HeldValues(strategy)
        # Values that all workers must read together, although hooks of only some of them ask.
        self._wanted: list[str] = []
        self._read_together: dict[str, Any] = {}
        self._asked_at_end: list[Any] = []
        self._num_own_hooks = len(own_hooks)
        self._hooks = _begun([*own_hooks, *hooks])
        self._audience = Audience((), self.counts)

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

    def logs(self) -> dict[str, Any]:
        """What callbacks are told after the latest step, over all replicas; all workers call this.

        Figures are read as they are now; other values are means over the examples of the step.
        """
        if not self._logs:
            return {}
        names = self._logs[0][1]
        return {name: self._log(name, value) for name, value in names.items()}

    def _log(self, name: str, value: Any) -> Any:
        if isinstance(value, Figure):
            with self.strategy.scope():
                return value.result()
        parts = [(n, logs[name]) for n, logs in self._logs]
        found = over_workers(parts, self.strategy, f"{name!r} of the logs")
        return found.item() if np.ndim(found) == 0 else found

    def ask_at_end(self, fetches: Any) -> None:
        """Announce, before a run has ended, what a hook will want to `run` at its `end`."""
        self._asked_at_end.append(fetches)

    def values(self) -> dict[str, Any]:
        """The values of all variables that belong into a checkpoint, by name.

        What lies in host memory is not copied: the next step changes it.
        """
        with self.strategy.scope():
            return self.store.saved_values()

    def arrays(self) -> dict[str, Any]:
        """The same where they lie, on cards for instance; the next step changes them."""
        with self.strategy.scope():
            return self.store.saved_arrays()

    def lend(self, copies: PendingCopies) -> None:
        """Let no step change a value before it was copied."""
        self.store.lend(copies)

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

    def stop_all(self) -> None:
        """Before a step: let all workers end after it, together.

        `request_stop` does so after a step, at the price of a call of the model that comes to
        nothing, but it is no matter of tasks that make steps of their own: here these, the workers
        of parameter servers, end as soon as the global step is the one that this step leads to.
        """
        self.wants_stop = True
        self.strategy.extended.job.stop_all(self.global_step + 1)

    def created(
        self, hooks: Sequence[SessionRunHook], chief_hooks: Sequence[SessionRunHook] = ()
    ) -> None:
        """Tell the hooks that all variables exist, and what the first call of `model_fn` made.

        Args:
            hooks: Which hooks it brought. They begin only now, since nobody knew of them before.
            chief_hooks: Those of this task that come before the ones of the call, as they do in
                TensorFlow.
        """
        self._held.begin(self.figures)
        place = self._num_own_hooks
        self._hooks[place:place] = _begun(chief_hooks)
        self._hooks += _begun(hooks)
        context = SessionRunContext(_NO_ARGS, self)
        for hook in self._hooks:
            hook.after_create_session(self, context)
        self._audience = Audience(self._hooks, self.counts)

    def before_run(self) -> None:
        """Tell the hooks that a step is about to be made."""
        self.wants_summaries = False
        audience = self._audience
        if not audience.is_whole:
            audience.gather(self.global_step + 1)
        context = SessionRunContext(_NO_ARGS, self)
        self._requests = requests = {}
        for place, hook in audience.before:
            request = hook.before_run(context)
            if request is not None:
                requests[place] = _checked(hook, request)
        self._announce([request.fetches for request in requests.values()])

    def after_run(self) -> None:
        """Tell the hooks that it was made; each gets what it asked for before."""
        audience, counts = self._audience, self.counts
        if not audience.is_whole:
            is_bad = self.loss is not None and not math.isfinite(self.loss)
            audience.gather(self.global_step, is_bad or self.save_is_agreed or self.end_is_agreed)
        counts.steps, counts.examples = counts.steps + 1, counts.examples + self.num_examples
        context, requests = SessionRunContext(_NO_ARGS, self), self._requests
        for place, hook in audience.after:
            asked = requests.get(place)
            values = _NO_VALUES if asked is None else SessionRunValues(self.run(asked.fetches))
            hook.after_run(context, values)
        if audience.is_whole:
            audience.dismiss(self)

    def end(self) -> None:
        """Tell the hooks that the run has ended in order."""
        self._announce(self._asked_at_end)
        # A hook of the chief alone may ask for what all must read: so all hear of it.
        if self.strategy.extended.num_workers > 1:
            self._read_shared()
        for hook in self._hooks:
            hook.end(self)

    def _show_for_good(self, replica: int, num_examples: int) -> None:
        """Note what the model shows from here on, in a step for which hooks want to know it.

        Args:
            replica: The local index of the caller, whose context ends with the step.
            num_examples: Those of its batch.
        """
        if self._shown:
            self._shown.pop(replica, None)
        if self.wants_summaries:
            self._shown[replica] = Summaries(), num_examples
            collect_for_good(self._shown[replica][0])

    def _share_summaries(self) -> None:
        """Put together what all replicas have shown; all workers call this if hooks of any want."""
        shown = sorted(self._shown.items()) if self.wants_summaries else []
        own = Summaries.together([summaries.of_examples(n) for _, (summaries, n) in shown])
        texts = self.strategy.extended.workers.texts(own.added_up_as_text(), "summaries")
        added_up = map(Summaries.from_text, texts)
        self.summaries = Summaries.together([own.shown_once(), *added_up])

    @property
    def _wants_shared(self) -> bool:
        """Whether hooks of this worker want to know, after the step, what all must read.

        That is what is aggregated over the copies of all workers. Each worker says so with the
        step; if hooks of any want something, all call `_read_shared`, whatever their own ask for.
        """
        return bool(self._wanted)

    def _announce(self, fetches: Sequence[Any]) -> None:
        """Note what hooks ask for that all workers must read together."""
        self._read_together = {}
        # A worker that is alone reads whatever it likes when it is asked for.
        if not self._is_alone:
            names = {self._name_of(fetch) for fetch in nest.flatten(list(fetches))}
            self._wanted = sorted(filter(self._is_shared, names))

    def _is_shared(self, name: str) -> bool:
        if name in self.figures:
            return False
        variable = self.store.variables.get(name)
        return name in self._held if variable is None else variable.differs_between_replicas

    def _read_shared(self) -> None:
        """Read what hooks of any worker want to know; all workers call this."""
        wanted = self.strategy.extended.workers.texts(json.dumps(self._wanted), "wanted by hooks")
        names = sorted({name for text in wanted for name in json.loads(text)})
        # All workers read the same names in the same order: each reading is a common call.
        self._read_together = {name: self._read(name) for name in names}
        self._wanted = []

    def _value(self, fetch: Any) -> Any:
        name = self._name_of(fetch)
        if name == "global_step":
            return self.global_step
        if name in self.figures:
            return self.figures[name]
        if name in self._read_together:
            return self._read_together[name]
        return self._read(name)

    def _read(self, name: str) -> Any:
        variable = self.store.variables.get(name)
        if variable is not None:
            with self.strategy.scope():
                return variable.numpy()
        if name in self._held:
            return self._held.read(name)
        known = [*self.figures, "global_step", *self._held, *sorted(self.store.variables)]
        raise ValueError(
            f"a hook asks for {name!r}; there are {', '.join(dict.fromkeys(known))}. A tensor of "
            f"model_fn has a name where an operation of paceline.compat.tf is given name=..."
        )

    def _name_of(self, fetch: Any) -> str:
        """The name of what a hook asks for.

        Raises:
            TypeError: It is of one call of `model_fn`, and nobody can say what stands for it in
                the next one.
        """
        if isinstance(fetch, str):
            return fetch.removesuffix(":0")  # TensorFlow's first output of an operation
        owner = fetch.owner if isinstance(fetch, Tensor) else fetch
        if isinstance(owner, Variable):
            return owner.name
        place = self._held.place_of(fetch)
        if place is not None:
            return place
        raise TypeError(
            f"a hook asks for {type(fetch).__name__} {fetch!r}, which belongs to one call of "
            f"model_fn; ask for a name ('loss', 'global_step', or that of a variable), for a "
            f"variable, or for a tensor or metric that is an attribute of a hook which model_fn "
            f"makes in each call"
        )


def _begun(hooks: Sequence[SessionRunHook]) -> list[SessionRunHook]:
    """The hooks, each of which has begun.

    Raises:
        TypeError: One is no hook.
    """
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(
                f"hooks must be objects of SessionRunHook or of a subclass, one is {hook!r}; "
                f"give an instance of such a class"
            )
        hook.begin()
    return list(hooks)


def _checked(hook: SessionRunHook, request: Any) -> SessionRunArgs:
    """What a hook's `before_run` has returned, if not None."""
    if not isinstance(request, SessionRunArgs):
        raise TypeError(
            f"before_run of {type(hook).__name__} must return SessionRunArgs(fetches) or None, it "
            f"returned {request!r}"
        )
    if request.feed_dict is not None or request.options is not None:
        raise ValueError(
            f"{type(hook).__name__} gives SessionRunArgs a feed_dict or options, and there is no "
            f"session to take them: let input_fn give what the model needs"
        )
    return request
