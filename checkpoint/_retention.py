"""Which checkpoints are kept: a pure function of their history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Saved:
    """One entry of a directory's history.

    Attributes:
        step: global step of the checkpoint.
        time_secs: when it was saved, seconds since the epoch.
    """

    step: int
    time_secs: float


def checkpoints_to_delete(history: Sequence[Saved], keep_max: int | None) -> list[Saved]:
    """The entries to delete so that at most `keep_max` remain, oldest first.

    Args:
        history: all checkpoints in the directory, oldest to newest, in the order of saving
            (not of steps: training may have gone back to an earlier one).
        keep_max: how many to keep; None or 0 keeps all.

    Raises:
        ValueError: keep_max is negative.
    """
    if keep_max is not None and keep_max < 0:
        raise ValueError(f"keep_max must be at least 0, or None to keep all; got {keep_max}")
    return list(history[: max(0, len(history) - keep_max)]) if keep_max else []
