"""What `fit` goes through, the same on all workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...strategies import Strategy

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
        ValueError: On all workers, if one was given something else than the others.
    """
    found = strategy.extended.workers.texts(str(epochs), "the epochs of fit")
    if len(set(found)) > 1:
        given = "; ".join(f"{text} on worker {index}" for index, text in enumerate(found))
        raise ValueError(
            f"workers fit a model together, and were told differently how long: {given}. Give fit "
            f"the same on all of them"
        )
