"""A training loop of one's own in a job with parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, final

from ...strategies import Strategy
from .rules import server_rules

T = TypeVar("T")


def train_or_serve(strategy: Strategy, train: Callable[[], T]) -> T | None:
    """Call `train` in a task that trains; in one that keeps variables, keep them until all have.

    Every task of the job calls it. Where there are no parameter servers this is `train()`.

    Args:
        strategy: Of this task.
        train: The loop, of no argument. Its `Checkpoint` reads and writes all by itself, and only
            where trainers at parameter servers make each step together: else an Estimator does.

    Returns:
        What `train` returns; None on a parameter server.
    """
    extended = strategy.extended
    if extended.server is not None:
        extended.server.serve(server_rules(), _NoCheckpoints(), lambda: False)
        return None
    result = train()
    # Before the others are done the servers, and with them the variables, must stay.
    extended.job.finish()
    extended.job.share_result("")
    return result


@final
class _NoCheckpoints:
    """What a server is asked for where nobody has said to which directory it may write."""

    def read(self, path: str, name: str, start: int, stop: int) -> NoReturn:
        raise RuntimeError(f"a server of a loop of one's own reads no checkpoint ({path})")

    def write(self, path: str, shard_index: int, slices: Sequence[Any]) -> NoReturn:
        raise RuntimeError(f"a server of a loop of one's own writes no checkpoint ({path})")
