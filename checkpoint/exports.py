"""Exports: checkpoints that are kept apart, each with other files in it and named by the time.

An export is a checkpoint like others for who reads it. It belongs to no run: nothing lists it,
nothing is deleted for it, and its name is ten digits, the seconds since 1970.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import SupportsIndex

from .access import delete_unless_leased
from .directory import tidied
from .errors import CheckpointError, explained
from .manifest import format_manifest
from .places import committer_of, store_of
from .slices import Arrays, pieces_of, plain
from .storage import Committer
from .writing import checked_step, manifest_of, write_part

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
    root, step = os.fspath(base), checked_step(step)
    pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
    for name in files:
        _check_relative(name)
    with explained(root, "export to"), tidied(root) as hold:
        path = os.path.join(root, _next_name(root))
        with _drafted(committer_of(root), path) as draft:
            for name, content in files.items():
                _write_file(draft, name, content)
            part = write_part(draft, _WEIGHTS, pieces)
            manifest = format_manifest(manifest_of(step, [part], {}, time.time()))
            hold.require()
            committer_of(root).commit(draft, path, manifest, [part.shard])
    return path


def list_exports(base: str | os.PathLike[str]) -> list[str]:
    """The paths of the exports under `base`, from the oldest to the newest.

    Raises:
        CheckpointError: `base` cannot be listed (a missing one counts as empty).
    """
    root = os.fspath(base)
    with explained(root, "read"):
        names = sorted(filter(_NAME.fullmatch, store_of(root).names(root)))
    paths = [os.path.join(root, name) for name in names]
    return [path for path in paths if committer_of(path).is_committed(path)]


def delete_old_exports(base: str | os.PathLike[str], keep_max: int | None) -> None:
    """Deletes the oldest exports under `base` beyond `keep_max`, but none that is being read.

    Raises:
        CheckpointError: one cannot be deleted.
    """
    with explained(os.fspath(base), "delete from"):
        for path in list_exports(base)[:-keep_max] if keep_max else ():
            delete_unless_leased(path)


def read_file(export: str | os.PathLike[str], name: str, max_bytes: int) -> bytes:
    """The content of one of an export's other files.

    Raises:
        CheckpointError: it is missing, larger than `max_bytes`, or cannot be read.
    """
    path = os.path.join(os.fspath(export), name)
    try:
        num_bytes = store_of(path).size(path)
        if num_bytes <= max_bytes:
            return store_of(path).read(path)
        problem = f"it has {num_bytes} bytes and may have {max_bytes}"
    except (FileNotFoundError, NotADirectoryError):
        problem = "it does not exist"
    except OSError as error:
        problem = error.strerror or str(error)
    raise CheckpointError(f"cannot read '{path}': {problem}")


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


def _write_file(draft: str, name: str, content: bytes | str | os.PathLike[str]) -> None:
    committer = committer_of(draft)
    with committer.staged(committer.file_path(draft, name)) as local_path:
        os.makedirs(os.path.dirname(local_path), exist_ok=True)
        if isinstance(content, bytes):
            with open(local_path, "wb") as file:
                file.write(content)
        else:
            shutil.copyfile(content, local_path)


def _check_relative(name: str) -> None:
    parts = name.split("/")
    if os.path.isabs(name) or {"", ".", ".."} & set(parts) or "\\" in name:
        raise ValueError(
            f"a file of an export is named by its relative path, as 'vocabularies/words.txt', "
            f"without '..'; got {name!r}"
        )
