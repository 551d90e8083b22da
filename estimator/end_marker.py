"""The mark that a finished run leaves beside its checkpoints, for an evaluator to find."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..checkpoint import read_text, remove_text, write_text

_NAME = "training_ended.json"


@dataclass(frozen=True)
class EndMarker:
    """A run has ended.

    Args:
        global_step: The step of its last checkpoint.
        reason: Why it ended, in words.
    """

    global_step: int
    reason: str


def write_end_marker(model_dir: str, marker: EndMarker) -> None:
    """Say in `model_dir` that training has ended; readers see all of it or nothing."""
    write_text(model_dir, _NAME, json.dumps(asdict(marker)))


def read_end_marker(model_dir: str) -> EndMarker | None:
    """The mark of the last run in `model_dir`; None where one is under way, or none was."""
    text = read_text(model_dir, _NAME)
    if text is None:
        return None
    found = json.loads(text)
    return EndMarker(int(found["global_step"]), str(found["reason"]))


def remove_end_marker(model_dir: str) -> None:
    """Say that training goes on."""
    remove_text(model_dir, _NAME)
