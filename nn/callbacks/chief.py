"""What one of several workers does, or decides, for all."""

from __future__ import annotations

import sys
from typing import Any

from ...strategies import Job


def is_chief(model: Any) -> bool:
    """Whether this is the worker that prints and writes files."""
    return _job_of(model).is_chief


def say(model: Any, text: str) -> None:
    """Print a line, on the chief only."""
    if is_chief(model):
        print(text)
        sys.stdout.flush()


def number_of_chief(model: Any, number: float, name: str) -> float:
    """The chief's number, where all workers make the same steps; else one's own."""
    job = _job_of(model)
    if job.num_trainers == 1 or not model.distribute_strategy.extended.num_workers > 1:
        return number
    return float.fromhex(job.text_from_chief(float(number).hex(), name))


def _job_of(model: Any) -> Job:
    job: Job = model.distribute_strategy.extended.job
    return job
