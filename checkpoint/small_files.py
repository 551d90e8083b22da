"""Small files beside checkpoints: the state file, metrics, and texts of others.

The state file `checkpoint` says which checkpoints there are, for programs and people to read:

    model_checkpoint_path: "model.ckpt-10"
    all_model_checkpoint_paths: "model.ckpt-5"
    all_model_checkpoint_paths: "model.ckpt-10"
    # model.ckpt-5 was saved at 2026-01-01 00:00:00 UTC
    all_model_checkpoint_timestamps: 1767225600.25
    # model.ckpt-10 was saved at 2026-01-01 00:01:00 UTC
    all_model_checkpoint_timestamps: 1767225660.5

The form is TensorFlow's (CheckpointState as text proto), with names relative to the directory.
Paths run from the oldest to the newest. Editing the first line by hand goes back to an earlier
checkpoint. Fields that we do not know are left alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .access import lease
from .errors import CheckpointError, explained
from .names import METRICS, STATE_FILE, checkpoint_name, step_of
from .places import exists, store_of
from .policies import Saved

MAX_TEXT_BYTES: Final = 64 << 20
_LATEST = "model_checkpoint_path"
_PATHS = "all_model_checkpoint_paths"
_TIMES = "all_model_checkpoint_timestamps"


@dataclass(frozen=True)
class State:
    """What the state file says: the step to resume from, and what is kept, oldest first."""

    latest_step: int
    history: tuple[Saved, ...]


def format_state(history: Sequence[Saved]) -> str:
    """The text of a state file whose latest checkpoint is the last of `history`."""
    names = [json.dumps(checkpoint_name(saved.step)) for saved in history]
    lines = [f"{_LATEST}: {names[-1]}"]
    lines += [f"{_PATHS}: {name}" for name in names]
    for saved in history:
        lines += [_remark(saved), f"{_TIMES}: {saved.time_secs!r}"]
    return "\n".join(lines) + "\n"


def _remark(saved: Saved) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(saved.time_secs))
    return f"# {checkpoint_name(saved.step)} was saved at {when}"


def parse_state(text: str) -> State:
    fields: dict[str, list[str]] = {_LATEST: [], _PATHS: [], _TIMES: []}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, value = line.partition(":")
        if line.strip() and not line.lstrip().startswith("#") and not colon:
            raise ValueError(f"line {number} is not of the form 'field: value': {line!r}")
        fields.setdefault(key.strip(), []).append(value.strip())
    if len(fields[_LATEST]) != 1:
        raise ValueError(f"it must hold {_LATEST} once, found {len(fields[_LATEST])}")
    if len(fields[_PATHS]) != len(fields[_TIMES]):
        raise ValueError(f"{len(fields[_PATHS])} paths but {len(fields[_TIMES])} timestamps")
    pairs = zip(fields[_PATHS], fields[_TIMES], strict=True)
    history = tuple(Saved(_parse_name(path), _parse_time(secs)) for path, secs in pairs)
    return State(_parse_name(fields[_LATEST][0]), history)


def _parse_name(value: str) -> int:
    # A name, never a path: a state file must not lead readers out of its directory.
    step = step_of(value[1:-1]) if value[:1] == value[-1:] == '"' else None
    if step is None:
        raise ValueError(f'a checkpoint\'s name must look like "model.ckpt-10", found {value}')
    return step


def _parse_time(value: str) -> float:
    secs = float(value)
    if not 0 <= secs < 1e11:  # the year 5138
        raise ValueError(f"a timestamp must be in seconds since 1970, found {value}")
    return secs


def read_state(model_dir: str) -> State | None:
    """What the state file says; None where there is none, a ValueError where it is no such file."""
    try:
        text = store_of(model_dir).read(os.path.join(model_dir, STATE_FILE), MAX_TEXT_BYTES)
        return parse_state(text.decode())
    except FileNotFoundError:
        return None


def state_or_none(model_dir: str) -> State | None:
    """What the state file says; None where it says nothing that can be read."""
    try:
        return read_state(model_dir)
    except ValueError:
        return None


def write_state(model_dir: str, history: Sequence[Saved]) -> None:
    """Replaces the state file in one step; the last of `history` becomes the latest."""
    path = os.path.join(model_dir, STATE_FILE)
    store_of(model_dir).replace(path, format_state(history))


def record_metrics(path: str | os.PathLike[str], metrics: Mapping[str, float]) -> None:
    """Notes what an evaluation found, in the directory of the checkpoint at `path`.

    Replaces what was noted before. The checkpoint itself stays as it is.

    Raises:
        CheckpointError: the checkpoint is not there, or cannot be written to.
    """
    plain = {str(name): float(value) for name, value in metrics.items()}
    with lease(path) as directory:
        try:
            text = json.dumps(plain, indent=1) + "\n"
            store_of(directory).replace(os.path.join(directory, METRICS), text)
        except OSError as error:
            raise CheckpointError(f"cannot write metrics to '{directory}': {error}") from error


def read_metrics(path: str | os.PathLike[str]) -> dict[str, float]:
    """What was noted beside the checkpoint at `path`; empty if nothing was, or it is damaged.

    Raises:
        CheckpointError: it cannot be read. (Empty would be wrong: the best would be deleted.)
    """
    path = os.fspath(path)
    try:
        found = json.loads(store_of(path).read(os.path.join(path, METRICS), MAX_TEXT_BYTES))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except OSError as error:
        raise CheckpointError(f"cannot read the metrics in '{path}': {error}") from error
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def write_text(model_dir: str | os.PathLike[str], name: str, text: str) -> None:
    """Replaces a small file in `model_dir` durably and in one step: readers see all of it or none.

    Raises:
        CheckpointError: it cannot be written.
    """
    root = os.fspath(model_dir)
    with explained(root, "write to directory"):
        store_of(root).make_directory(root)
        store_of(root).replace(os.path.join(root, name), text)


def read_text(model_dir: str | os.PathLike[str], name: str) -> str | None:
    """What is in such a file; None where there is none.

    Raises:
        CheckpointError: it cannot be read.
        ValueError: it is no UTF-8, or larger than such a file may be.
    """
    root = os.fspath(model_dir)
    with explained(root, "read directory"):
        try:
            return store_of(root).read(os.path.join(root, name), MAX_TEXT_BYTES).decode()
        except (FileNotFoundError, NotADirectoryError):
            return None


def read_json(model_dir: str | os.PathLike[str], name: str) -> Any:
    """The content of such a file of JSON; None where there is none.

    Raises:
        CheckpointError: it cannot be read.
        ValueError: it is no JSON, for whatever reason: no text, too large, nested too deeply.
    """
    try:
        text = read_text(model_dir, name)
        return None if text is None else json.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply ({error})") from error


def has_text(model_dir: str | os.PathLike[str], name: str) -> bool:
    """Whether there is such a file, whatever is in it.

    Raises:
        CheckpointError: that cannot be told.
    """
    root = os.fspath(model_dir)
    with explained(root, "read directory"):
        return exists(os.path.join(root, name))


def remove_text(model_dir: str | os.PathLike[str], name: str) -> None:
    """Removes such a file; that it is missing is no error.

    Raises:
        CheckpointError: it cannot be removed.
    """
    root = os.fspath(model_dir)
    with explained(root, "write to directory"):
        store_of(root).remove(os.path.join(root, name))
