"""The directory of checkpoints: made ready, tidied, searched."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ._errors import CheckpointError, explained
from ._files import make_directory
from ._lease import remove_unless_leased
from ._metrics import read_metrics
from ._names import (
    ASIDE_PREFIX,
    MANIFEST,
    STATE_FILE,
    TEMPORARY_PREFIX,
    checkpoint_name,
    name_before_aside,
    steps_in,
    temporary_name,
)
from ._only_writer import only_writer
from ._read import load, whole_checkpoints, whole_manifest
from ._retention import Saved
from ._state_file import State, read_state

_log = logging.getLogger("paceline")


def prepare_directory(model_dir: str | os.PathLike[str]) -> str:
    """Makes `model_dir` ready for saves: created, seen to be writable, free of left-overs.

    To be called by the one process that will save, before work is spent that could not be saved.

    Returns:
        The path as a string.

    Raises:
        CheckpointError: it cannot be created or written; names model_dir and the fix.
    """
    root = os.fspath(model_dir)
    with explained(root, "write to"):
        make_directory(root)
        with only_writer(root) as alone:
            # The lock file may have been writable where new entries are not.
            try_to_write(root)
            if alone:
                clean_up(root)
    return root


def try_to_write(root: str) -> None:
    """Raises the OSError that a later save would meet."""
    probe = os.path.join(root, temporary_name("probe"))
    os.mkdir(probe)
    os.rmdir(probe)


def clean_up(root: str) -> None:
    """Removes what killed saves left behind, and says so. Only for who holds the lock."""
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if name.startswith(ASIDE_PREFIX):
            _put_back_or_remove(path, os.path.join(root, name_before_aside(name) or name))
        elif name.startswith(TEMPORARY_PREFIX):
            _remove_left_over(path)


def _remove_left_over(path: str) -> None:
    if remove_unless_leased(path):
        _log.info("removed '%s', left over from an interrupted save", path)


def _put_back_or_remove(aside: str, path: str) -> None:
    if os.path.lexists(path):
        _remove_left_over(aside)
    else:
        os.rename(aside, path)
        _log.info("put '%s' back, which an interrupted save was replacing", path)


def history_of(root: str) -> list[Saved]:
    """All checkpoints in the directory, oldest to newest; also those the state file lost."""
    try:
        state = read_state(root)
    except ValueError:
        state = None
    listed = {saved.step: saved.time_secs for saved in state.history} if state else {}
    history = []
    for step in steps_in(root):
        manifest = os.path.join(root, checkpoint_name(step), MANIFEST)
        if os.path.isfile(manifest):
            time_secs = listed.get(step) or os.path.getmtime(manifest)
            history.append(Saved(step, time_secs, read_metrics(os.path.dirname(manifest))))
    return sorted(history, key=lambda saved: (saved.time_secs, saved.step))


def list_checkpoints(model_dir: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """(path, step) of every whole checkpoint in `model_dir`, by ascending step.

    Whole means: the manifest can be trusted and the files it lists have their sizes. Their
    contents are not read. Others are skipped with a warning.

    Raises:
        CheckpointError: model_dir cannot be listed (a missing one is empty).
    """
    return [(path, step) for step, path in _whole_with_warnings(os.fspath(model_dir)).items()]


def latest_checkpoint(model_dir: str | os.PathLike[str], *, verify: bool = False) -> str | None:
    """The path of the checkpoint to resume from; None if there is none.

    That is the one which the state file names. If the file is missing or damaged, or names one
    that is not whole, it is the whole checkpoint of the highest step, with a warning.

    Args:
        model_dir: directory of the checkpoints.
        verify: whether whole means also that every byte fits its checksum, which takes reading
            the checkpoint.

    Raises:
        CheckpointError: there are checkpoints and none of them is whole. None would be wrong:
            training would silently start again from step 0.
    """
    root = os.fspath(model_dir)
    check = _verified if verify else whole_manifest
    problem = ""
    with explained(root, "read"):
        state = _state_or_problem(root)
        while isinstance(state, State):
            path = os.path.join(root, checkpoint_name(state.latest_step))
            try:
                check(path)
                return path
            except CheckpointError as error:
                problem = str(error)
            # A save may have moved on while we looked.
            before, state = state, _state_or_problem(root)
            if state == before:
                break
    return _fallback(root, check, problem or str(state or ""))


def _verified(path: str) -> None:
    load(path).verify()


def _state_or_problem(root: str) -> State | str:
    path = os.path.join(root, STATE_FILE)
    try:
        return read_state(root) or f"there is no state file '{path}'"
    except ValueError as error:
        return f"state file '{path}' is unreadable: {error}"


def _fallback(root: str, check: Callable[[str], object], problem: str) -> str | None:
    whole = _whole_with_warnings(root)
    damaged: CheckpointError | None = None
    for step in sorted(whole, reverse=True):
        try:
            check(whole[step])
        except CheckpointError as error:
            _log.warning("skipped a damaged checkpoint: %s", error)
            damaged = damaged or error
        else:
            _log.warning("%s; falling back to '%s'", problem, whole[step])
            return whole[step]
    with explained(root, "read"):
        others = whole_checkpoints(root)[1]
    if others and (damaged is None or max(others) > max(whole)):
        damaged = others[max(others)]
    if damaged:
        raise CheckpointError(
            f"no checkpoint in model_dir '{root}' is whole, the newest because "
            f"{damaged}; restore a copy of one, or delete them to start from step 0"
        )
    if os.path.exists(os.path.join(root, STATE_FILE)):
        _log.warning("%s; model_dir '%s' holds no checkpoint", problem, root)
    return None


def _whole_with_warnings(root: str) -> dict[int, str]:
    with explained(root, "read"):
        whole, damaged = whole_checkpoints(root)
    for error in damaged.values():
        _log.warning("skipped a damaged checkpoint: %s", error)
    return whole
