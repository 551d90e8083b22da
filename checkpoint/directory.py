"""The directory of checkpoints: tidied, listed, and searched for the one to resume from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .access import Hold, lease, only_writer, remove_unless_leased
from .errors import CheckpointError, explained
from .manifest import read_manifest
from .names import (
    ASIDE_PREFIX,
    MANIFEST,
    STATE_FILE,
    TEMPORARY_PREFIX,
    checkpoint_name,
    name_before_aside,
    step_of,
    tensorflow_indexes,
)
from .places import exists, steps_in, store_of
from .policies import Saved, keep_best
from .reading import CheckpointReader, load, whole_checkpoints, whole_manifest
from .small_files import MAX_TEXT_BYTES, State, read_metrics, read_state, state_or_none

_log = logging.getLogger("paceline")

Depth = Literal["sizes", "checksums", "arrays"]
"""How much of a checkpoint is looked at before it counts as whole."""


def clean_up(root: str) -> None:
    """Removes what killed saves left behind, and says so. Only for who holds the lock.

    That the lock is held proves that no save is under way. Small files are written without it
    (an evaluator's, say): who writes one holds a lock of its own (`LocalFiles.replace`).
    """
    for name in sorted(store_of(root).names(root)):
        path = os.path.join(root, name)
        if name.startswith(ASIDE_PREFIX):
            _put_back_or_remove(path, os.path.join(root, name_before_aside(name) or name))
        elif name.startswith(TEMPORARY_PREFIX):
            _remove_left_over(path)


@contextmanager
def tidied(root: str, *, for_run: bool = False) -> Iterator[Hold]:
    """`only_writer` of a directory, which is made where it is missing and cleaned up."""
    store_of(root).make_directory(root)
    with only_writer(root, for_run=for_run) as hold:
        # Without locks another job may be at work, whose temporaries these are.
        if hold.is_alone:
            clean_up(root)
        yield hold


def _remove_left_over(path: str) -> None:
    if remove_unless_leased(path):
        _log.info("removed '%s', left over from an interrupted save", path)


def _put_back_or_remove(aside: str, path: str) -> None:
    if os.path.lexists(path):
        _remove_left_over(aside)
    else:
        os.rename(aside, path)
        _log.info("put '%s' back, which an interrupted save was replacing", path)


def history_of(root: str, without: int | None = None) -> list[Saved]:
    """All checkpoints in the directory but that of one step, oldest to newest.

    Also those that the state file lost: their own manifests, which take longer to read, say when
    they were written.
    """
    state = state_or_none(root)
    listed = {saved.step: saved.time_secs for saved in state.history} if state else {}
    history = []
    for step in steps_in(root):
        path = os.path.join(root, checkpoint_name(step))
        if step != without and exists(os.path.join(path, MANIFEST)):
            time_secs = listed.get(step) or _created_secs(path)
            history.append(Saved(step, time_secs, read_metrics(path)))
    return sorted(history, key=lambda saved: (saved.time_secs, saved.step))


def _created_secs(path: str) -> float:
    """When a checkpoint was written; 0 where it is damaged, so that it is the first to go."""
    try:
        return read_manifest(path).created_secs
    except CheckpointError:
        return 0.0


def best_checkpoint(
    model_dir: str | os.PathLike[str], metric: str, mode: Literal["min", "max"] = "min"
) -> str | None:
    """The path of the best checkpoint in `model_dir`, of those that were evaluated and are kept.

    Args:
        model_dir: directory of the checkpoints.
        metric: its name, as `record_metrics` noted it; of equal ones it is the newer.
        mode: whether the smallest is the best, or the largest.

    Returns:
        None where no checkpoint has a finite value of the metric.

    Raises:
        CheckpointError: model_dir cannot be read.
        ValueError: mode is neither "min" nor "max".
    """
    root, choose = os.fspath(model_dir), keep_best(metric, 1, mode)
    with explained(root, "read model_dir"):
        best = choose(history_of(root))
    return os.path.join(root, checkpoint_name(best.pop())) if best else None


def fingerprint(model_dir: str | os.PathLike[str]) -> str:
    """A text that changes whenever a save or a deletion changes what is to be found in `model_dir`.

    Who looks again and again looks at this, which reads one small file and says nothing.

    Raises:
        CheckpointError: model_dir cannot be read.
    """
    root = os.fspath(model_dir)
    with explained(root, "read model_dir"):
        try:
            state = store_of(root).read(os.path.join(root, STATE_FILE), MAX_TEXT_BYTES)
        except (FileNotFoundError, ValueError):
            state = b""
        return f"{steps_in(root)} {hashlib.sha256(state).hexdigest()}"


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

    That is the one which the state file names, unless there is a whole one that was committed after
    those that it lists: then a save was killed between the two, and that one is taken, with a log
    line. If the file is missing or damaged, or names one that is not whole, it is the whole
    checkpoint of the highest step, with a warning.

    Args:
        model_dir: directory of the checkpoints.
        verify: whether whole means also that every byte fits its checksum, which takes reading
            the checkpoint.

    Raises:
        CheckpointError: there are checkpoints and none of them is whole. None would be wrong:
            training would silently start again from step 0.
    """
    found = _newest(os.fspath(model_dir), "checksums" if verify else "sizes")
    return found.path if found else None


def read_latest(
    model_dir: str | os.PathLike[str],
) -> tuple[CheckpointReader, dict[str, np.ndarray]] | None:
    """The checkpoint to resume from with all its arrays, read and verified at once.

    It is that of `latest_checkpoint(model_dir, verify=True)`, but read only once.

    Raises:
        CheckpointError: there are checkpoints and none of them is whole.
    """
    found = _newest(os.fspath(model_dir), "arrays")
    return (found.reader, found.arrays) if found else None


@dataclass(frozen=True, eq=False)
class _Found:
    """A checkpoint that is whole, and its arrays where they were read."""

    path: str
    reader: CheckpointReader
    arrays: dict[str, np.ndarray]


def _checked(path: str, depth: Depth) -> _Found:
    """The checkpoint at `path`, whole as far as was looked."""
    if depth == "sizes":
        return _Found(path, CheckpointReader(path, whole_manifest(path)), {})
    reader = load(path)
    if depth == "checksums":
        reader.verify()
    return _Found(path, reader, reader.arrays() if depth == "arrays" else {})


def _newest(root: str, depth: Depth) -> _Found | None:
    problem = ""
    with explained(root, "read model_dir"):
        state = _state_or_problem(root)
        while isinstance(state, State):
            problem = ""
            newer = _committed_since(root, state)
            for path in [*newer, os.path.join(root, checkpoint_name(state.latest_step))]:
                try:
                    found = _checked(path, depth)
                except CheckpointError as error:
                    problem = str(error)
                else:
                    _tell_of_choice(path, newer, problem)
                    return found
            # A save may have moved on while we looked.
            before, state = state, _state_or_problem(root)
            if state == before:
                break
    return _fallback(root, depth, problem or str(state or ""))


def _tell_of_choice(path: str, newer: Sequence[str], problem: str) -> None:
    if path in newer:
        _log.info("'%s' is newer than those that the state file lists, and is taken", path)
    if problem:
        _log.warning("skipped a damaged checkpoint: %s", problem)


def _committed_since(root: str, state: State) -> list[str]:
    """The whole checkpoints that a state file does not list and that are newer, newest first.

    What it does not list and is older is about to be deleted, or somebody reads it still. A file
    without times was written by hand, and meant.
    """
    times = [saved.time_secs for saved in state.history]
    listed = {state.latest_step, *(saved.step for saved in state.history)}
    found = []
    for step in set(steps_in(root) if times else ()) - listed:
        path = os.path.join(root, checkpoint_name(step))
        with suppress(CheckpointError):
            found.append((whole_manifest(path).created_secs, path))
    return [path for secs, path in sorted(found, reverse=True) if secs > max(times)]


@contextmanager
def lease_latest(model_dir: str | os.PathLike[str]) -> Iterator[str | None]:
    """`lease` of the newest checkpoint; one that is deleted while we look is not the newest.

    Yields:
        Its path; None where there is none.

    Raises:
        CheckpointError: as `latest_checkpoint`.
    """
    with ExitStack() as held:
        before = None
        while (path := latest_checkpoint(model_dir)) is not None:
            try:
                held.enter_context(lease(path))
                break
            except CheckpointError:
                if path == before:
                    raise
                before = path
        yield path


def _state_or_problem(root: str) -> State | str:
    path = os.path.join(root, STATE_FILE)
    try:
        return read_state(root) or f"there is no state file '{path}'"
    except ValueError as error:
        return f"state file '{path}' is unreadable: {error}"


def _fallback(root: str, depth: Depth, problem: str) -> _Found | None:
    whole = _whole_with_warnings(root)
    damaged: CheckpointError | None = None
    for step in sorted(whole, reverse=True):
        try:
            found = _checked(whole[step], depth)
        except CheckpointError as error:
            _log.warning("skipped a damaged checkpoint: %s", error)
            damaged = damaged or error
        else:
            _log.warning("%s; falling back to '%s'", problem, whole[step])
            return found
    with explained(root, "read model_dir"):
        others = whole_checkpoints(root)[1]
    if others and (damaged is None or max(others) > max(whole)):
        damaged = others[max(others)]
    if damaged:
        raise CheckpointError(
            f"no checkpoint in model_dir '{root}' is whole, the newest because "
            f"{damaged}; restore a copy of one, or delete them to start from step 0"
        )
    refuse_others_checkpoints(root)
    if exists(os.path.join(root, STATE_FILE)):
        _log.warning("%s; model_dir '%s' holds no checkpoint", problem, root)
    return None


def refuse_others_checkpoints(root: str) -> None:
    """Refuses a directory with checkpoints of TensorFlow's and none of ours.

    It would count as empty: training would begin at step 0, and overwrite the state file, which is
    called the same and is the only way in which TensorFlow knows of its checkpoints.
    """
    with explained(root, "read model_dir"):
        names = store_of(root).names(root)
    others = tensorflow_indexes(names)
    if others and not any(step_of(name) is not None for name in names):
        raise CheckpointError(
            f"model_dir '{root}' holds checkpoints of TensorFlow's ({others[-1]}), beside which "
            f"paceline does not save: choose another model_dir; to begin with their values pass "
            f"warm_start_from='{root}'"
        )


def _whole_with_warnings(root: str) -> dict[int, str]:
    with explained(root, "read model_dir"):
        whole, damaged = whole_checkpoints(root)
    for error in damaged.values():
        _log.warning("skipped a damaged checkpoint: %s", error)
    return whole
