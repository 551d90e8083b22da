"""Saving: write, commit, list the survivors, delete the rest."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, SupportsIndex

from pydantic import JsonValue

from ._arguments import Arrays, Piece, checked_step, pieces_of, plain, plain_state
from ._background import Background
from ._directory import clean_up, history_of, refuse_others_checkpoints
from ._errors import explained
from ._lease import delete_unless_leased, remove_unless_leased
from ._names import checkpoint_name, shard_name
from ._only_writer import Hold, only_writer
from ._retention import KeepPolicy, Saved, checkpoints_to_delete, keep_last
from ._state_file import state_or_none, write_state
from ._storage import storage_of
from ._write import commit, make_draft, parse_report, write_part

# More than the rounding of a time in a manifest, which is in microseconds.
_TICK_SECS: Final = 2e-6
_log = logging.getLogger("paceline")

Reports = Callable[[], Sequence[str]]
"""Waits for what the other writers' calls of `write_shard` returned."""


def save(
    model_dir: str | os.PathLike[str],
    step: SupportsIndex,
    arrays: Arrays,
    *,
    state: Mapping[str, object] | None = None,
    keep_max: int | None = 5,
) -> str:
    """Saves a checkpoint `model.ckpt-<step>` and deletes the oldest ones beyond `keep_max`.

    Whoever looks sees the directory as it was before or as it is after, also if the process is
    killed at any instant. Blocks until all is on disk; a second save into the same directory
    (from any thread or process) waits for the first. Saving a step again replaces it. For many
    saves by one process see `Saver`.

    Args:
        model_dir: directory of the checkpoints; created if missing.
        step: global step, at least 0.
        arrays: name to array of dtype bool, (u)int8-64 or float16-64, any shape and layout; or to
            a list of `TensorSlice` that make up one. They must not change during the call. Names
            may hold slashes.
        state: small JSON to keep with the arrays: input iterators, random generators.
        keep_max: how many checkpoints remain, this one included; None or 0 keeps all.

    Returns:
        The path of the checkpoint.

    Raises:
        CheckpointError: the directory cannot be written, or holds checkpoints of TensorFlow's; what
            was there before is untouched.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    step, root, keep = checked_step(step), os.fspath(model_dir), keep_last(keep_max)
    pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
    content = plain_state(state or {})
    refuse_others_checkpoints(root)
    with explained(root, "save to"):
        storage_of(root).make_directory(root)
        with only_writer(root) as hold:
            if hold.is_alone:
                clean_up(root)
            return save_alone(root, hold, step, make_draft(root, step), pieces, content, keep)


def save_alone(
    root: str,
    hold: Hold,
    step: int,
    draft: str,
    pieces: Mapping[str, Piece],
    state: dict[str, JsonValue],
    keep: KeepPolicy,
    num_writers: int = 1,
    reports: Reports = tuple,
) -> str:
    """`save` for who has checked the arguments and has made the draft.

    Args:
        hold: the right to write, asked again at the moment of committing.
        num_writers, reports: of a checkpoint that others write, too (see `Saver.save`).

    Raises:
        CheckpointError: as `save`.
    """
    with explained(root, "save to"):
        try:
            with Background(reports) as others:  # who may only write now
                parts = [write_part(draft, shard_name(0, num_writers), pieces)]
            parts += map(parse_report, others.result())
            hold.require()
            time_secs = _make_way(root, step)
            replaced = commit(root, step, draft, parts, state, time_secs)
        except BaseException:
            storage_of(draft).abandon(draft)
            raise
        _keep(root, step, time_secs, keep, replaced)
    return os.path.join(root, checkpoint_name(step))


def _make_way(root: str, step: int) -> float:
    """Readies the state file for a checkpoint of `step`; the time to commit it with.

    Between the commit and the state file's new text a kill leaves a checkpoint that is not listed.
    Readers know it by that, and by a time after those that are listed (`latest_checkpoint`). So a
    step that is listed and is to be replaced leaves the list first, and where somebody went back to
    an earlier checkpoint, that one becomes the newest of the list. (The one that is to be resumed
    from is named before and after: whichever of the two is there is right.)
    """
    state = state_or_none(root)
    listed = state.history if state else ()
    now = max([time.time(), *(saved.time_secs + _TICK_SECS for saved in listed)])
    if state and step != state.latest_step:
        is_last = listed[-1:] == tuple(s for s in listed if s.step == state.latest_step)
        if not is_last or step in [saved.step for saved in listed]:
            others = [s for s in listed if s.step not in (step, state.latest_step)]
            write_state(root, [*others, Saved(state.latest_step, now)])
            now += _TICK_SECS
    return now


def _keep(
    root: str, step: int, time_secs: float, keep: KeepPolicy, replaced: Sequence[str]
) -> None:
    """Lists the survivors in the state file, then deletes the others.

    In this order nobody is ever sent to a checkpoint that is gone; what a kill or a reader leaves
    undeleted is found in the directory and deleted by the next save. The checkpoint is there: what
    cannot be deleted is no reason to say that it was not saved.
    """
    others = [saved for saved in history_of(root) if saved.step != step]
    # A clock that went back must not make the newest look old.
    now = max([time_secs, *(saved.time_secs for saved in others)])
    history = [*others, Saved(step, now)]
    doomed = checkpoints_to_delete(history, keep)
    write_state(root, [saved for saved in history if saved not in doomed])
    for path in replaced:
        _or_warn(remove_unless_leased, path)
    for saved in doomed:
        path = os.path.join(root, checkpoint_name(saved.step))
        if _or_warn(delete_unless_leased, path) is False:
            _log.info("did not delete '%s' yet: somebody reads it", path)
    for path in storage_of(root).left_overs(root, step):
        if _or_warn(remove_unless_leased, path):
            _log.info("removed '%s', left over from an interrupted save", path)


def _or_warn(remove: Callable[[str], bool], path: str) -> bool | None:
    """What `remove` says; None, and a warning, where it cannot."""
    try:
        return remove(path)
    except OSError as error:
        _log.warning("cannot delete '%s', which is not needed any more: %s", path, error)
        return None
