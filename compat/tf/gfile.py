"""`tf.io.gfile`: local files under TensorFlow's names."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from collections.abc import Iterator
from stat import S_ISDIR
from typing import IO, Any, NamedTuple

from .arguments import adapt_all

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "FastGFile",
    "FileStatistics",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Open",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
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
    "walk",
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


class FileStatistics(NamedTuple):
    """What `stat` gives: the size in bytes, the time of the last change, and the kind."""

    length: int
    mtime_nsec: int
    is_directory: bool


def stat(path: Any) -> FileStatistics:
    """The size and the time of the last change of a file."""
    found = os.stat(path)
    return FileStatistics(found.st_size, found.st_mtime_ns, S_ISDIR(found.st_mode))


def remove(path: Any) -> None:
    """Delete a file."""
    os.remove(path)


def rmtree(path: Any) -> None:
    """Delete a directory with all that is in it."""
    shutil.rmtree(path)


class GFile:
    """An open file of text, or with "b" in its mode of bytes.

    Args:
        name: Its path.
        mode: As of Python's `open`.
    """

    def __init__(self, name: Any, mode: str = "r") -> None:
        self._file: IO[Any] = open(name, mode)  # noqa: SIM115  # closed by close
        self.name = name
        self.mode = mode

    def size(self) -> int:
        """The number of bytes of the file, those written so far among them."""
        if self._file.writable():
            self._file.flush()
        return os.stat(self.name).st_size

    def read(self, n: int = -1) -> Any:
        """The next `n` characters or bytes; -1: the rest."""
        return self._file.read(n)

    def readline(self) -> Any:
        """The next line with its end; empty after the last one."""
        return self._file.readline()

    def readlines(self) -> list[Any]:
        """The lines that are left, with their ends."""
        return self._file.readlines()

    def seek(self, offset: int = 0, whence: int = 0, position: int | None = None) -> None:
        """Go on at another place; `position` is the old name of `offset`."""
        self._file.seek(offset if position is None else position, whence)

    def tell(self) -> int:
        """The place at which the next call reads or writes."""
        return self._file.tell()

    def write(self, file_content: Any) -> None:
        """Append text or bytes."""
        self._file.write(file_content)

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """End the use of the file; calling it again does nothing."""
        self._file.close()

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __next__(self) -> Any:
        return next(self._file)


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


def walk(
    top: Any, topdown: bool = True, onerror: Any = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """For a directory and each below it: its path, its directories and its files.

    Args:
        top: The first directory.
        topdown: Whether a directory comes before those in it.
        onerror: A function that is called with the error of a directory that cannot be read.
    """
    return os.walk(top, topdown, onerror)


Open = FastGFile = GFile
Copy, DeleteRecursively, Exists, Glob, IsDirectory = copy, rmtree, exists, glob, isdir
ListDirectory, MakeDirs, MkDir, Remove = listdir, makedirs, mkdir, remove
Rename, Stat, Walk = rename, stat, walk
adapt_all(globals(), "tf.gfile")
