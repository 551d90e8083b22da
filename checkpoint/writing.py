"""Writing: beside, flushed, made visible in one step; then the survivors listed, the rest deleted.

A checkpoint begins as a draft. Each writer puts its shard into it and reports what it wrote; one of
them, who also made the draft, commits it. A save by one process is the same with one writer.
"""

from __future__ import annotations

import json
import logging
import math
import operator
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final, Protocol, SupportsIndex, cast, final

import numpy as np
from pydantic import JsonValue, ValidationError

from .access import Hold, delete_unless_leased, remove_unless_leased
from .background import Background
from .directory import history_of, refuse_others_checkpoints, tidied
from .errors import CheckpointError, explained
from .manifest import (
    FileEntry,
    Manifest,
    Part,
    ShardEntry,
    SliceEntry,
    TensorEntry,
    first_problem,
    format_manifest,
)
from .names import checkpoint_name, shard_name
from .places import committer_of, exists, steps_in, store_of
from .policies import KeepPolicy, Saved, checkpoints_to_delete, keep_last
from .shard import block_crcs, read_header, write_shard_file
from .slices import Arrays, DType, Piece, is_unicode, pieces_of, plain
from .small_files import state_or_none, write_state

MAX_STATE_BYTES: Final = 16 << 20
# More than the rounding of a time in a manifest, which is in microseconds.
_TICK_SECS: Final = 2e-6
_log = logging.getLogger("paceline")


class OtherWriters(Protocol):
    """The processes that write the other shards of a checkpoint, for who commits it."""

    @property
    def num(self) -> int:
        """How many they are."""

    def begin(self, draft: str) -> None:
        """Has each of them copy what it holds and begin to write its shard of a draft.

        That is `write_shard(draft, index, 1 + num, copy)`, with an index from 1 to `num`.
        """

    def reports(self) -> Sequence[str]:
        """Waits for what they returned; called in the background, after each `begin`."""


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
    step, root = checked_step(step), os.fspath(model_dir)
    keep, content = keep_last(keep_max), plain_state(state or {})
    pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
    refuse_others_checkpoints(root)
    with explained(root, "save to model_dir"), tidied(root) as hold:
        return Draft(hold, step).finish(pieces, content, keep)


@final
class Draft:
    """An unfinished checkpoint; this process writes the first of its shards and commits it."""

    def __init__(self, hold: Hold, step: int, num_writers: int = 1) -> None:
        hold.require()
        self._hold = hold
        self._step = step
        self._num_writers = num_writers
        self._target = os.path.join(hold.model_dir, checkpoint_name(step))
        self.path = committer_of(hold.model_dir).make_draft(self._target)

    def finish(
        self,
        pieces: Mapping[str, Piece],
        state: dict[str, JsonValue],
        keep: KeepPolicy,
        others: OtherWriters | None = None,
    ) -> str:
        """Writes this process's shard, waits for the others' reports, commits, and tidies up.

        Returns the path of the checkpoint. If it fails, what was there before is untouched.
        """
        root = self._hold.model_dir
        with explained(root, "save to model_dir"):
            try:
                # The others may only write now, at the same time.
                with Background(tuple if others is None else others.reports) as reports:
                    parts = [write_part(self.path, shard_name(0, self._num_writers), pieces)]
                parts += map(_parse_report, reports.result())
                self._hold.require()  # writing takes long: is it still our directory?
                time_secs = _make_way(root, self._step)
                replaced = self._commit(parts, state, time_secs)
            except BaseException:
                self.abandon()
                raise
            # Committed: what fails from here on does not unsay that.
            _tidy_up(root, Saved(self._step, time_secs), keep, replaced)
        return self._target

    def abandon(self) -> None:
        committer_of(self.path).abandon(self.path)

    def _commit(
        self, parts: Sequence[Part], state: dict[str, JsonValue], time_secs: float
    ) -> list[str]:
        """Makes it visible, created at `time_secs`; the paths of what it replaced."""
        committer = committer_of(self.path)
        names = [shard_name(index, len(parts)) for index in range(len(parts))]
        paths = [committer.shard_path(self.path, name) for name in names]
        if sorted(part.shard for part in parts) != [os.path.basename(path) for path in paths]:
            raise CheckpointError(
                f"step {self._step} cannot be committed: its {len(parts)} reports are of the "
                f"shards {', '.join(part.shard for part in parts)}; each writer reports once"
            )
        manifest = manifest_of(self._step, parts, state, time_secs)
        for path in paths:
            size_bytes = manifest.shards[os.path.basename(path)].size_bytes
            if not exists(path) or store_of(path).size(path) != size_bytes:
                raise CheckpointError(
                    f"shard '{path}' was reported as written with {size_bytes} bytes and is not "
                    f"there so; model_dir must be on a file system that all writers share"
                )
        text = format_manifest(manifest)
        return committer.commit(self.path, self._target, text, list(manifest.shards))


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


def _tidy_up(root: str, saved: Saved, keep: KeepPolicy, replaced: Sequence[str]) -> None:
    """Lists the survivors of a commit in the state file, then deletes the others.

    In this order nobody is ever sent to a checkpoint that is gone; what a kill or a reader leaves
    undeleted is found in the directory and deleted by the next save. The checkpoint is there: what
    cannot be deleted is no reason to say that it was not saved.
    """
    others = history_of(root, without=saved.step)
    # A clock that went back must not make the newest look old.
    now = max([saved.time_secs, *(other.time_secs for other in others)])
    history = [*others, Saved(saved.step, now)]
    doomed = checkpoints_to_delete(history, keep)
    # First unlisted, then deleted: killed in between, a checkpoint is there that nobody is sent to.
    write_state(root, [other for other in history if other not in doomed])
    for path in replaced:
        _or_warn(remove_unless_leased, path)
    for other in doomed:
        path = os.path.join(root, checkpoint_name(other.step))
        if _or_warn(delete_unless_leased, path) is False:
            _log.info("did not delete '%s' yet: somebody reads it", path)
    for step in steps_in(root):
        path = os.path.join(root, checkpoint_name(step))
        # An upload that was killed leaves shards and no manifest.
        is_left = step < saved.step and not committer_of(path).is_committed(path)
        if is_left and _or_warn(remove_unless_leased, path):
            _log.info("removed '%s', left over from an interrupted save", path)


def _or_warn(remove: Callable[[str], bool], path: str) -> bool | None:
    """What `remove` says; None, and a warning, where it cannot."""
    try:
        return remove(path)
    except OSError as error:
        _log.warning("cannot delete '%s', which is not needed any more: %s", path, error)
        return None


def write_shard(draft: str | os.PathLike[str], index: int, count: int, arrays: Arrays) -> str:
    """Writes one writer's shard of a checkpoint that several write together. Blocks.

    Args:
        draft: the directory that the committing process was given by its `Saver`; on a file
            system that both see.
        index, count: which writer this is (0 is the one that commits) and of how many.
        arrays: what this writer has: whole tensors, or lists of `TensorSlice`.

    Returns:
        A report, to be sent to the committing process.

    Raises:
        CheckpointError: it cannot be written.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    if not 0 <= index < count:
        raise ValueError(f"index must be from 0 to count - 1; got index={index}, count={count}")
    pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
    with explained(os.fspath(draft), "write to draft"):
        part = write_part(os.fspath(draft), shard_name(index, count), pieces)
    return part.model_dump_json()


def _parse_report(report: str) -> Part:
    try:
        return Part.model_validate_json(report)
    except ValidationError as error:
        raise CheckpointError(
            f"a report of a written shard is odd: {first_problem(error)}"
        ) from error


def write_part(draft: str, shard: str, pieces: Mapping[str, Piece]) -> Part:
    """Writes and flushes one shard of row-major, little-endian pieces."""
    path = committer_of(draft).shard_path(draft, shard)
    arrays = {key: piece.array for key, piece in pieces.items()}
    with ExitStack() as beside_the_flush, committer_of(draft).staged(path) as local_path:
        write_shard_file(local_path, arrays)
        header, size_bytes = read_header(local_path), os.path.getsize(local_path)
        # While the disk works the processor is free: no more than one core is taken from the
        # run. So the checksums begin here, and the block ends with the flush or the upload.
        crcs = beside_the_flush.enter_context(
            Background(lambda: {key: block_crcs(array) for key, array in arrays.items()})
        )
    entry = ShardEntry(size_bytes=size_bytes, header_crc32=header.crc32)
    tensors: dict[str, TensorEntry] = {}
    for key, piece in pieces.items():
        stored = SliceEntry(
            start=piece.start,
            shape=piece.array.shape,
            shard=os.path.basename(path),
            offset_bytes=header.places[key].offset_bytes,
            crc32=crcs.result()[key],
        )
        dtype = cast(DType, piece.array.dtype.name)
        one = TensorEntry(shape=piece.full_shape, dtype=dtype, slices=(stored,))
        tensors[piece.name] = _merged(piece.name, tensors.get(piece.name), one)
    return Part(shard=os.path.basename(path), entry=entry, tensors=tensors)


def manifest_of(
    step: int,
    parts: Sequence[Part],
    state: dict[str, JsonValue],
    time_secs: float,
    files: Mapping[str, FileEntry] | None = None,
) -> Manifest:
    tensors: dict[str, TensorEntry] = {}
    for part in parts:
        for name, entry in part.tensors.items():
            tensors[name] = _merged(name, tensors.get(name), entry)
    try:
        return Manifest(
            global_step=step,
            created=datetime.fromtimestamp(time_secs, UTC).isoformat(),
            versions=_versions(),
            shards={part.shard: part.entry for part in parts},
            tensors=tensors,
            state=state,
            files=dict(files or {}),
        )
    except ValidationError as error:
        raise CheckpointError(
            f"what was given for step {step} is no whole checkpoint: {first_problem(error)}"
        ) from error


def _merged(name: str, one: TensorEntry | None, other: TensorEntry) -> TensorEntry:
    if one is None:
        return other
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        raise CheckpointError(
            f"tensor {name!r} is given as {one.dtype} of shape {one.shape} and as {other.dtype} of "
            f"shape {other.shape}: its slices must agree"
        )
    return one.model_copy(update={"slices": one.slices + other.slices})


def _versions() -> dict[str, str]:
    import importlib.metadata  # slow to import, and needed by savers only

    try:
        own = importlib.metadata.version("paceline")
    except importlib.metadata.PackageNotFoundError:
        own = "source tree"
    python = ".".join(map(str, sys.version_info[:3]))
    return {"paceline": own, "numpy": np.__version__, "python": python}


def checked_step(step: SupportsIndex) -> int:
    """`step` as an int at least 0."""
    value = operator.index(step)
    if isinstance(step, bool) or not 0 <= value < 10**18:
        raise ValueError(f"step must be an integer from 0 to 10**18 - 1; got {step!r}")
    return value


def plain_state(state: Mapping[str, object]) -> dict[str, JsonValue]:
    """A deep copy of `state`, which must come back from JSON as it went in, and be small."""
    plain = plain_json("state", dict(state))
    assert isinstance(plain, dict)
    num_bytes = len(json.dumps(plain))
    if num_bytes > MAX_STATE_BYTES:
        raise ValueError(
            f"state has {num_bytes} bytes as JSON and may have {MAX_STATE_BYTES}: "
            f"save what is large as arrays"
        )
    return plain


def plain_json(where: str, value: Any) -> JsonValue:
    match value:
        case dict() if all(isinstance(key, str) and is_unicode(key) for key in value):
            return {key: plain_json(f"{where}[{key!r}]", inner) for key, inner in value.items()}
        case list():
            return [plain_json(f"{where}[{i}]", inner) for i, inner in enumerate(value)]
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str() if is_unicode(value):
            return value
    raise TypeError(
        f"{where} must be JSON (dict with string keys, list, str, int, finite float, bool, None), "
        f"so that it comes back as it is; got {type(value).__name__} {str(value)[:80]!r}: "
        f"convert it, or save it as an array"
    )
