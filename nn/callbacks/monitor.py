"""`Monitor`: whether a figure of the logs has become better."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, final

from ...observe import log_once
from ..arguments import check_choice

_LARGE_IS_GOOD = ("acc", "accuracy", "auc", "precision", "recall")


@final
class Monitor:
    """A figure of the logs by which a callback goes.

    Args:
        name: Of the figure, such as "val_loss".
        mode: "min" or "max": which is better; "auto" goes by the name, as Keras does.
        min_delta: By how much a better value must be better.

    Raises:
        ValueError: Another mode.
    """

    def __init__(self, name: str, mode: str = "auto", min_delta: float = 0.0) -> None:
        check_choice("mode", mode, ("auto", "min", "max"))
        self.name = name
        self.is_rising = mode == "max" or (mode == "auto" and name.endswith(_LARGE_IS_GOOD))
        self._min_delta = abs(min_delta)

    @property
    def worst(self) -> float:
        """What any value is better than."""
        return -math.inf if self.is_rising else math.inf

    def is_better(self, value: float, best: float) -> bool:
        """Whether a value is better than the best so far; what is no number never is."""
        gain = value - best if self.is_rising else best - value
        return gain > self._min_delta

    def value(self, logs: Mapping[str, Any] | None, callback: object) -> float | None:
        """The figure in some logs; None, and a warning, where there is none."""
        found = (logs or {}).get(self.name)
        if found is None:
            log_once(
                logging.WARNING,
                "%s goes by %r, which is not in the logs, so that it does nothing: there are %s.",
                type(callback).__name__,
                self.name,
                ", ".join(logs or {}) or "none",
            )
            return None
        return float(found)
