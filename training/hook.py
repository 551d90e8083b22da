"""What takes part in a run: hooks, what they are told of a step, and of which steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

Session: TypeAlias = Any
"""A `training.Session`, which stands above this file."""


class SessionRunArgs(NamedTuple):
    """What a hook wants to know after the step.

    Args:
        fetches: One of these, or any nesting of them in dicts, lists and tuples: the name of a
            variable, "loss", "global_step" (the steps made in all), "step" (the number of the step
            just made, from 0), in an evaluation that of a metric; a variable; the loss that
            `model_fn` returned; a metric, a tensor or an array that the hook holds in an attribute,
            where `model_fn` makes the hook.
        feed_dict, options: Of TensorFlow's sessions; must be None.
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@dataclass(frozen=True)
class SessionRunValues:
    """What a hook gets after the step: the values that it asked for, in the same structure."""

    results: Any = None


class SessionRunContext:
    """One step, as a hook sees it.

    The session keeps none of these: it would be in a cycle, and its arrays would stay in memory
    behind the run until Python looks for such garbage, which may be some models later.

    Args:
        original_args: What the step itself asks for: nothing, as no session runs a graph.
        session: The run.
    """

    __slots__ = ("original_args", "session")

    def __init__(self, original_args: SessionRunArgs | None, session: Session) -> None:
        self.original_args = original_args
        self.session = session

    @property
    def stop_requested(self) -> bool:
        return self.session.stop_requested

    def request_stop(self) -> None:
        """End the run after all hooks of this step were called."""
        self.session.stop_requested = True

    def should_stop(self) -> bool:
        """`stop_requested`, as a TensorFlow coordinator has it."""
        return self.session.stop_requested


class Rest(NamedTuple):
    """How long a hook need not be told of steps: until the first of these.

    Args:
        step: Until the step that leads to this global step, of which it is told.
        num_steps: For so many steps of this task.
        secs: For so many seconds.
    """

    step: float = math.inf
    num_steps: float = math.inf
    secs: float = math.inf


@dataclass(slots=True)
class Counts:
    """What a task has done in a run so far; hooks may keep it.

    Attributes:
        steps: The steps that it has taken part in, of which hooks were told or could have been.
        examples: Those of all these steps, of all workers that made them together.
    """

    steps: int = 0
    examples: int = 0


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

    def may_rest(self, session: Session) -> Rest | None:
        """How long `before_run` and `after_run` need not be called; None: they are, in each step.

        Asked after a step. All hooks are called behind a step in which something was agreed on, or
        whose loss is no finite number. They may be called earlier all the same, and `after_run`
        without `before_run` in front of it. Of no effect where a subclass overrides one of them.
        """
        return None

    def end(self, session: Session) -> None:
        """The run has ended in order."""


@final
class Audience:
    """Which hooks of a run are told of its next step: all but those that rest.

    Args:
        hooks: All, in the order in which they are told.

    Attributes:
        is_whole: Whether nobody rests.
        before, after: Those that are told before and after the step, by their places.
    """

    __slots__ = (
        "_all",
        "_counts",
        "_may_rest",
        "_wake_count",
        "_wake_step",
        "_wake_time",
        "after",
        "before",
        "is_whole",
    )

    def __init__(self, hooks: Sequence[SessionRunHook], counts: Counts) -> None:
        told = list(enumerate(hooks))
        self._counts = counts
        # Those that have anything to do; after it also who only asks: what cannot be answered is an
        # error.
        self._all = (
            [(place, hook) for place, hook in told if _has_its_own(("before_run",), hook)],
            [(place, hook) for place, hook in told if _has_its_own(_BOTH, hook)],
        )
        self._may_rest = [hook for hook in hooks if _rests_as_it_says(hook)]
        self.is_whole = True
        self._wake_step = self._wake_count = self._wake_time = math.inf
        self.before, self.after = self._all

    def gather(self, step: int, has_news: bool = False) -> None:
        """Call all together if it is time: for the step that leads to, or has led to, `step`.

        Args:
            step: A global step.
            has_news: Whether it is time in any case.
        """
        is_due = step >= self._wake_step or self._counts.steps >= self._wake_count
        if has_news or is_due or time.monotonic() >= self._wake_time:
            self.is_whole = True
            self.before, self.after = self._all

    def dismiss(self, session: Session) -> None:
        """Let rest who wants to, until the first of them is to be told; behind a step."""
        rests = [(hook, hook.may_rest(session)) for hook in self._may_rest]
        said = {id(hook): rest for hook, rest in rests if rest is not None}
        if not said:
            return
        step, num_steps, secs = [min(column) for column in zip(*said.values(), strict=True)]
        if step < session.global_step + _SHORTEST or num_steps < _SHORTEST:
            return
        self._wake_step, self._wake_count = step, self._counts.steps + num_steps
        self._wake_time = time.monotonic() + secs
        self.is_whole = False
        before, after = self._all
        self.before = [told for told in before if id(told[1]) not in said]
        self.after = [told for told in after if id(told[1]) not in said]


_BOTH = ("before_run", "after_run")
_SHORTEST = 4
"""Steps of a rest that is worth lying down for."""


def _has_its_own(names: Sequence[str], hook: SessionRunHook) -> bool:
    """Whether a hook does something in any of these methods."""
    usual = [getattr(SessionRunHook, name) for name in names]
    own = [getattr(getattr(hook, name), "__func__", None) for name in names]
    return any(mine is not theirs for mine, theirs in zip(own, usual, strict=True))


def _rests_as_it_says(hook: SessionRunHook) -> bool:
    """Whether its `may_rest` was written for what it does, and not for a class below it."""
    # One that only poses as a hook, as a mock does, has no class that says so, and is told always.
    if vars(hook).keys() & {*_BOTH} or SessionRunHook not in type(hook).__mro__:
        return False
    line = type(hook).__mro__
    rest, *others = [[name in vars(c) for c in line].index(True) for name in ("may_rest", *_BOTH)]
    return rest <= min(others) and line[rest] is not SessionRunHook
