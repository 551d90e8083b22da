"""What `fit` goes through, the same on all workers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...strategies import Strategy

_logger = logging.getLogger("paceline")

Evaluate = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Epochs:
    """What `fit` goes through.

    Args:
        first, last: The number of the first epoch, and that of the one behind the last.
        steps: How many steps an epoch has; None: until the data end.
        evaluate: The validation; None for none.
        validated: After which epochs (their numbers from 1) it is made.
    """

    first: int
    last: int
    steps: int | None
    evaluate: Evaluate | None
    validated: Callable[[int], bool]

    def __str__(self) -> str:
        text = f"initial_epoch={self.first}, epochs={self.last}, steps_per_epoch={self.steps}"
        if self.evaluate is None:
            return f"{text}, no validation"
        numbers = range(self.first + 1, self.last + 1)
        return f"{text}, validation after epoch {next(filter(self.validated, numbers), None)}"


def require_same_epochs(epochs: Epochs, strategy: Strategy) -> None:
    """Workers make all batches together, and validate together; all of them call this.

    Raises:
        ValueError: On all workers, if one was given something else than the others; of those that
            train with parameter servers, on each that was given something else than the chief.
    """
    found = strategy.extended.job.texts(str(epochs), "the epochs of fit")
    if len(set(found.values())) > 1:
        given = "; ".join(f"{text} on worker {index}" for index, text in found.items())
        raise ValueError(
            f"workers fit a model together, and were told differently how long: {given}. Give fit "
            f"the same on all of them"
        )


def warn_of_end(epochs: Epochs) -> None:
    """Say that the data have ended before the epochs."""
    assert epochs.steps is not None
    _logger.warning(
        "Your input ran out of data; interrupting training. Make sure that your dataset or "
        "generator can generate at least `steps_per_epoch * epochs` batches (in this case, %d "
        "batches). You may need to use the repeat() function when building your dataset.",
        epochs.steps * (epochs.last - epochs.first),
    )


class BatchCount:
    """How many batches of each epoch this worker had, to be compared where nobody did so before.

    At parameter servers workers that share batches do not meet at the end of an epoch.
    """

    def __init__(self) -> None:
        self._of_epochs: dict[int, int] = {}

    def note(self, epoch: int, num_batches: int) -> None:
        """An epoch has ended, behind so many batches."""
        self._of_epochs[epoch] = num_batches

    def __str__(self) -> str:
        return json.dumps([[epoch, count] for epoch, count in self._of_epochs.items()])


def uneven_counts(counts: Mapping[int, str], takes_turns: bool) -> str:
    """Who had fewer batches than the others, in words; empty if all had theirs.

    Args:
        counts: `BatchCount`s as texts, by worker.
        takes_turns: Whether each batch is one worker's, worker 0 having the first, rather than
            divided among all.
    """
    had = {worker: dict(json.loads(text)) for worker, text in counts.items()}
    for epoch in sorted({epoch for one in had.values() for epoch in one}):
        found = [had[worker].get(epoch, 0) for worker in sorted(had)]
        may_differ = int(takes_turns and found == sorted(found, reverse=True))
        if max(found) - min(found) > may_differ:
            of_each = zip(found, sorted(had), strict=True)
            each = ", ".join(f"{number} on worker {worker}" for number, worker in of_each)
            return f"{each} in epoch {epoch + 1}"
    return ""
