"""`tf.io.gfile`: local files under TensorFlow's names."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from typing import Any

from .arguments import adapt_all

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


def exists(path: Any) -> bool:
    """Whether there is a file or directory."""
    return os.path.exists(path)


def isdir(path: Any) -> bool:
    """Whether there is a directory."""
    return os.path.isdir(path)


def join(path: Any, *paths: Any) -> str:
    """One path from its parts."""
    return os.path.join(path, *paths)


def listdir(path: Any) -> list[str]:
    """The names of what is in a directory."""
    return os.listdir(path)


def mkdir(path: Any) -> None:
    """A new directory."""
    os.mkdir(path)


def stat(path: Any) -> os.stat_result:
    """The size and times of a file."""
    return os.stat(path)


def remove(path: Any) -> None:
    """Delete a file."""
    os.remove(path)


def rmtree(path: Any) -> None:
    """Delete a directory with all that is in it."""
    shutil.rmtree(path)


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
adapt_all(globals(), "tf.gfile")
