"""When to save: pure functions of the present moment and of that of the last save."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """A point of a run.

    Attributes:
        step: the global step.
        time_secs: of a clock that never goes back, such as `time.monotonic()`.
    """

    step: int
    time_secs: float


SavePolicy = Callable[[Moment, Moment], bool]
"""`policy(now, last)` says whether to save now, `last` being when the last save was, or the begin
of the run."""


def save_every_n_steps(num: int) -> SavePolicy:
    """Saves when `num` steps have gone by since the last save.

    Raises:
        ValueError: num is not positive.
    """
    if num < 1:
        raise ValueError(f"num must be at least 1; got {num}")
    return lambda now, last: now.step >= last.step + num


def save_every_n_secs(secs: float) -> SavePolicy:
    """Saves when so many seconds have gone by since the last save.

    Raises:
        ValueError: secs is not positive.
    """
    if not 0 < secs < math.inf:
        raise ValueError(f"secs must be > 0; got {secs}")
    return lambda now, last: now.time_secs >= last.time_secs + secs


def save_at_steps(steps: Collection[int]) -> SavePolicy:
    """Saves at chosen steps: `save_at_steps({100, 500})`."""
    return lambda now, last: now.step in steps and now.step != last.step


def save_when_any(*policies: SavePolicy) -> SavePolicy:
    """Saves when one of the policies says so."""
    return lambda now, last: any(policy(now, last) for policy in policies)
