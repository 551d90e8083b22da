"""Checkpoints that are kept apart: exports, and what is saved under a name of its own.

They are checkpoints like others for who reads them. They belong to no run: nothing lists them,
nothing is deleted for them. An export has other files in it, and ten digits as its name: the
seconds since 1970.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import SupportsIndex, final

from .access import Hold, delete_unless_leased, remove_unless_leased
from .directory import tidied
from .errors import CheckpointError, explained
from .manifest import FileEntry, format_manifest
from .names import check_relative, directory_of
from .other_files import write_file
from .places import committer_of, exists, store_of, tidy
from .reading import is_checkpoint, load
from .slices import Arrays, pieces_of, plain
from .storage import Committer
from .writing import checked_step, manifest_of, plain_state, write_part

_NAME = re.compile(r"[0-9]{10}")
_WEIGHTS = "weights.safetensors"

Files = Mapping[str, "bytes | str | os.PathLike[str]"]


def save_export(
    base: str | os.PathLike[str], step: SupportsIndex, arrays: Arrays, files: Files
) -> str:
    """Saves arrays and other files in a new directory under `base`, all of it or nothing.

    Args:
        base: directory or URL of the exports; created if missing. One process at a time writes.
        step: global step of the arrays.
        arrays: as for `save`; they go to `weights.safetensors`.
        files: relative path in the export to its content, or to the file that is copied.

    Returns:
        The path of the export. Its name is later than those of all others there.

    Raises:
        CheckpointError: it cannot be written; nothing is to be seen of it.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    root, content = os.fspath(base), _Content(step, arrays, files)
    with explained(root, "export to directory"), tidied(root) as hold:
        path = os.path.join(root, _next_name(root))
        content.write(path, hold)
    return path


def save_at(
    path: str | os.PathLike[str],
    arrays: Arrays,
    *,
    step: SupportsIndex = 0,
    state: Mapping[str, object] | None = None,
    overwrite: bool = True,
) -> None:
    """Saves arrays, and a little JSON, as the directory `path`: all of it or nothing.

    Whoever looks sees what was there before or what is there after, also if the process is killed.

    Args:
        path: a directory or URL; its parents are made where they are missing.
        arrays, step, state: as for `save`.
        overwrite: whether to replace what was saved there before.

    Raises:
        CheckpointError: it cannot be written; or something was saved there and is not to be
            overwritten; or something else is at that path, which is never replaced.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    path, content = tidy(path), _Content(step, arrays, {}, state)
    with explained(path, "save"), tidied(directory_of(path)) as hold:
        if exists(path):
            _require_replaceable(path, overwrite)
        for replaced in content.write(path, hold):
            remove_unless_leased(replaced)


def has_saved(path: str | os.PathLike[str]) -> bool:
    """Whether there is something that `save_at` has saved, damaged or not."""
    return is_checkpoint(tidy(path))


def delete_saved(path: str | os.PathLike[str]) -> None:
    """Deletes what `save_at` has saved, if it is there.

    Raises:
        CheckpointError: it cannot be deleted, or somebody reads it.
    """
    text = tidy(path)
    with explained(text, "delete"):
        if is_checkpoint(text) and not delete_unless_leased(text):
            raise CheckpointError(f"'{text}' is not deleted, since somebody reads it")


def newest_saved(directory: str | os.PathLike[str]) -> str | None:
    """The path of the newest of what `save_at` has put into a directory; None without any.

    Raises:
        CheckpointError: the directory cannot be read, or one that is in it.
    """
    root = os.fspath(directory)
    with explained(root, "read directory"):
        paths = [os.path.join(root, name) for name in sorted(store_of(root).names(root))]
    found = [path for path in paths if not os.path.basename(path).startswith(".")]
    saved = [(load(path).created, path) for path in found if is_checkpoint(path)]
    return max(saved)[1] if saved else None


@final
class _Content:
    """What is to be written, checked beforehand."""

    def __init__(
        self,
        step: SupportsIndex,
        arrays: Arrays,
        files: Files,
        state: Mapping[str, object] | None = None,
    ) -> None:
        self._step, self._files = checked_step(step), files
        self._pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
        self._state = plain_state(state or {})
        for name in files:
            check_relative(name)

    def write(self, path: str, hold: Hold) -> list[str]:
        """Write and commit it; the paths of what it has replaced, which are to be removed."""
        committer = committer_of(path)
        with _drafted(committer, path) as draft:
            files = {name: _write(draft, name, content) for name, content in self._files.items()}
            part = write_part(draft, _WEIGHTS, self._pieces)
            manifest = manifest_of(self._step, [part], self._state, time.time(), files)
            hold.require()
            return committer.commit(draft, path, format_manifest(manifest), [part.shard])


def _require_replaceable(path: str, overwrite: bool) -> None:
    if is_checkpoint(path):
        if not overwrite:
            raise CheckpointError(
                f"'{path}' is there already: choose another path, or pass overwrite=True"
            )
    elif os.path.isfile(path) or store_of(path).names(path):
        raise CheckpointError(
            f"'{path}' is there already and was not saved by paceline, so that it is not replaced: "
            f"choose another path, or remove it"
        )


def list_exports(base: str | os.PathLike[str]) -> list[str]:
    """The paths of the exports under `base`, from the oldest to the newest.

    Raises:
        CheckpointError: `base` cannot be listed (a missing one counts as empty).
    """
    root = os.fspath(base)
    with explained(root, "read directory"):
        names = sorted(filter(_NAME.fullmatch, store_of(root).names(root)))
    paths = [os.path.join(root, name) for name in names]
    return [path for path in paths if committer_of(path).is_committed(path)]


def delete_old_exports(base: str | os.PathLike[str], keep_max: int | None) -> None:
    """Deletes the oldest exports under `base` beyond `keep_max`, but none that is being read.

    Raises:
        CheckpointError: one cannot be deleted.
    """
    with explained(os.fspath(base), "delete from directory"):
        for path in list_exports(base)[:-keep_max] if keep_max else ():
            delete_unless_leased(path)


def _next_name(root: str) -> str:
    """The time in seconds; or later, where there is an export of this second already."""
    names = filter(_NAME.fullmatch, store_of(root).names(root))
    return f"{max([int(time.time()), *(int(name) + 1 for name in names)]):010d}"


@contextmanager
def _drafted(committer: Committer, path: str) -> Iterator[str]:
    draft = committer.make_draft(path)
    try:
        yield draft
    except BaseException:
        committer.abandon(draft)
        raise


def _write(draft: str, name: str, content: bytes | str | os.PathLike[str]) -> FileEntry:
    committer = committer_of(draft)
    with committer.staged(committer.file_path(draft, name)) as local_path:
        return write_file(local_path, content)
