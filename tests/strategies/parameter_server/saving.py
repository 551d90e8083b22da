"""Checkpoints of servers, as the chief has them written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def written(strategy: Any, draft: str) -> Sequence[str]:
    """The servers' reports of a checkpoint, which all of them have written."""
    writers = strategy.extended.remote_storage.writers
    writers.begin(draft)
    return writers.reports()
