"""The mark that a finished run leaves beside its checkpoints, for an evaluator to find."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, final

from ..checkpoint import read_text, remove_text, write_text
from .session import Session, SessionRunHook

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
    """The mark of the last run in `model_dir`; None where one is under way, or none was.

    Raises:
        ValueError: It is damaged.
        CheckpointError: It cannot be read.
    """
    try:
        text = read_text(model_dir, _NAME)
        if text is None:
            return None
        found = json.loads(text)
        return EndMarker(int(found["global_step"]), str(found["reason"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{_NAME} in {model_dir} is damaged ({type(error).__name__}: {error}), so that nobody "
            f"can say whether training has ended; delete it, or start training again"
        ) from error


def remove_end_marker(model_dir: str) -> None:
    """Say that training goes on."""
    remove_text(model_dir, _NAME)


@final
class Unended(SessionRunHook):
    """Takes the mark of an earlier run away from `model_dir`, for a run that goes on there.

    Entered as a context by who has been given the right to write. A run that ends before its first
    step (it was refused, say) puts the mark back.
    """

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self._text: str | None = None

    def __enter__(self) -> Unended:
        self._text = read_text(self._model_dir, _NAME)
        remove_end_marker(self._model_dir)
        return self

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._text = None

    def __exit__(self, *error: object) -> None:
        if self._text is not None:
            write_text(self._model_dir, _NAME, self._text)
