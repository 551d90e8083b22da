"""Which checkpoints are kept: pure functions.

A `KeepPolicy` is given all checkpoints of a directory and says which of them it wants kept; those
of several are combined by `keep_any`, and whatever they say, the newest is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Saved:
    """One entry of a directory's history.

    Attributes:
        step: global step of the checkpoint.
        time_secs: when it was saved, seconds since the epoch.
        metrics: what `record_metrics` noted beside it.
    """

    step: int
    time_secs: float
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


History = Sequence[Saved]
KeepPolicy = Callable[[History], set[int]]
"""From a history (oldest to newest, in the order of saving, not of steps: training may have gone
back to an earlier one) to the steps to keep."""


def keep_all(history: History) -> set[int]:
    """Keeps everything."""
    return {saved.step for saved in history}


def keep_last(num: int | None) -> KeepPolicy:
    """Keeps the `num` newest; None or 0 keeps all, as TensorFlow has it.

    Raises:
        ValueError: num is negative.
    """
    if num is not None and num < 0:
        raise ValueError(f"the number to keep must be at least 0, or None to keep all; got {num}")
    if not num:
        return keep_all
    return lambda history: {saved.step for saved in history[-num:]}


def keep_one_every_n_hours(hours: float) -> KeepPolicy:
    """Keeps the last checkpoint of every past span of so many hours, counted from the epoch.

    So it depends on nothing but the times, and says the same whatever other policies deleted.

    Raises:
        ValueError: hours is not positive.
    """
    if not 0 < hours < math.inf:
        raise ValueError(f"hours must be > 0; got {hours}")

    def keep(history: History) -> set[int]:
        spans = [saved.time_secs // (hours * 3600) for saved in history]
        pairs = zip(history, spans, spans[1:], strict=False)
        return {saved.step for saved, span, next_span in pairs if span != next_span}

    return keep


def keep_best(metric: str, num: int = 1, mode: Literal["min", "max"] = "min") -> KeepPolicy:
    """Keeps the `num` best by a metric that `record_metrics` noted; of equal ones the newer.

    Raises:
        ValueError: num is not positive, or mode is neither "min" nor "max".
    """
    if num < 1:
        raise ValueError(f"num must be at least 1; got {num}")
    if mode not in ("min", "max"):
        raise ValueError(f"mode must be 'min' or 'max'; got {mode!r}")
    sign = -1 if mode == "max" else 1

    def keep(history: History) -> set[int]:
        found = [
            (sign * saved.metrics[metric], -i, saved.step)
            for i, saved in enumerate(history)
            if math.isfinite(saved.metrics.get(metric, math.nan))
        ]
        return {step for *_, step in sorted(found)[:num]}

    return keep


def keep_steps(steps: Collection[int]) -> KeepPolicy:
    """Keeps chosen steps: `keep_steps({100, 500})`, or `keep_steps(range(0, 10**9, 1000))`."""
    return lambda history: {saved.step for saved in history if saved.step in steps}


def keep_any(*policies: KeepPolicy) -> KeepPolicy:
    """Keeps what one of the policies wants kept."""
    return lambda history: set().union(*(policy(history) for policy in policies))


def checkpoints_to_delete(history: History, keep: KeepPolicy) -> list[Saved]:
    """What a policy does not want kept, however much, oldest first; never the newest."""
    kept = keep(history)
    return [saved for saved in history[:-1] if saved.step not in kept]
