"""`tf.io.gfile`: local files under TensorFlow's names."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from typing import Any

__all__ = [
    "Exists",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "Open",
    "Remove",
    "copy",
    "exists",
    "glob",
    "isdir",
    "join",
    "listdir",
    "makedirs",
    "mkdir",
    "remove",
    "rename",
    "rmtree",
    "stat",
]

exists, isdir, join, listdir, mkdir, stat = (
    os.path.exists,
    os.path.isdir,
    os.path.join,
    os.listdir,
    os.mkdir,
    os.stat,
)
remove, rmtree = os.remove, shutil.rmtree


def GFile(name: Any, mode: str = "r") -> Any:  # noqa: N802
    """An open file."""
    return open(name, mode)


def makedirs(path: Any) -> None:
    """The directory and those above it, if they are not there."""
    os.makedirs(path, exist_ok=True)


def glob(pattern: Any) -> list[str]:
    """The files that match one pattern or several, sorted."""
    patterns = [pattern] if isinstance(pattern, str | os.PathLike) else pattern
    return sorted(path for p in patterns for path in _glob.glob(os.fspath(p)))


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """A copy of a file.

    Raises:
        FileExistsError: `dst` is there, and not to be overwritten.
    """
    if os.path.exists(dst) and not overwrite:
        raise FileExistsError(f"{dst} is there; pass overwrite=True")
    shutil.copyfile(src, dst)


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Another name for a file.

    Raises:
        FileExistsError: `dst` is there, and not to be overwritten.
    """
    if os.path.exists(dst) and not overwrite:
        raise FileExistsError(f"{dst} is there; pass overwrite=True")
    os.replace(src, dst)


Open, Exists, Glob, IsDirectory, ListDirectory, MakeDirs, Remove = (
    GFile,
    exists,
    glob,
    isdir,
    listdir,
    makedirs,
    remove,
)
