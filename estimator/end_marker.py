"""The mark that a finished run leaves beside its checkpoints, for an evaluator to find."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

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
    os.makedirs(model_dir, exist_ok=True)
    path = os.path.join(model_dir, _NAME)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as file:
        json.dump(asdict(marker), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_end_marker(model_dir: str) -> EndMarker | None:
    """The mark of the last run in `model_dir`; None where one is under way, or none was."""
    try:
        with open(os.path.join(model_dir, _NAME)) as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    return EndMarker(int(found["global_step"]), str(found["reason"]))


def remove_end_marker(model_dir: str) -> None:
    """Say that training goes on."""
    with suppress(FileNotFoundError):
        os.remove(os.path.join(model_dir, _NAME))
