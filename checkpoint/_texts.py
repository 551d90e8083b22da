"""Small texts beside checkpoints, in a directory or behind a URL."""

from __future__ import annotations

import os

from ._errors import explained
from ._storage import storage_of


def write_text(model_dir: str | os.PathLike[str], name: str, text: str) -> None:
    """Replaces a small file in `model_dir` durably and in one step: readers see all of it or none.

    Raises:
        CheckpointError: it cannot be written.
    """
    root = os.fspath(model_dir)
    with explained(root, "write to"):
        storage_of(root).make_directory(root)
        storage_of(root).replace(os.path.join(root, name), text)


def read_text(model_dir: str | os.PathLike[str], name: str) -> str | None:
    """What is in such a file; None where there is none.

    Raises:
        CheckpointError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    root = os.fspath(model_dir)
    with explained(root, "read"):
        try:
            return storage_of(root).read(os.path.join(root, name)).decode()
        except (FileNotFoundError, NotADirectoryError):
            return None


def remove_text(model_dir: str | os.PathLike[str], name: str) -> None:
    """Removes such a file; that it is missing is no error.

    Raises:
        CheckpointError: it cannot be removed.
    """
    root = os.fspath(model_dir)
    with explained(root, "write to"):
        storage_of(root).remove(os.path.join(root, name))
