"""A file that grows while others read it: of events, or of the lines of a run's record."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final, final

from .own_files import open_own, read_own, require_size

MAX_FILE_BYTES: Final = 1 << 30
_SECS_BETWEEN_UPLOADS = 30.0


@final
class GrowingFile:
    """Appends to a file, which is closed in between: no process that ends leaves one half open.

    An object store cannot append: behind a URL all that was written so far is uploaded anew, at
    most every 30 s, and at the end.

    Args:
        path: A path, whose directory is made when needed, or a URL that fsspec knows.
        keeps: Whether to go on behind what is there, rather than in a new file; a line that
            somebody was killed in is ended first.

    Raises:
        ImportError: It is a URL, and fsspec is not installed.
    """

    def __init__(self, path: str, keeps: bool = False) -> None:
        self.path = path
        self._remote = _remote(path) if "://" in path else None
        self._keeps = keeps
        self._content = bytearray()
        self._is_uploaded = True
        self._next_upload = 0.0

    def append(self, content: bytes) -> None:
        """Write at the end of the file.

        Raises:
            OSError: It cannot be written.
        """
        if not content:
            return
        if self._keeps:
            self._keeps = False
            self._go_on_behind()
        if self._remote is None:
            self._append_here(content)
            return
        self._content += content
        self._is_uploaded = False
        if time.monotonic() >= self._next_upload:
            self._upload()

    def close(self) -> None:
        """Upload what is not; the file may grow further."""
        if not self._is_uploaded:
            self._upload()

    def _go_on_behind(self) -> None:
        if self._remote is not None:
            there = self._remote.exists(self.path)
            self._content[:] = _remote_content(self._remote, self.path) if there else b""
        elif os.path.lexists(self.path):
            with open(open_own(self.path, os.O_RDWR), "rb+") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                if size and file.read(1) != b"\n":
                    file.write(b"\n")

    def _append_here(self, content: bytes) -> None:
        directory = os.path.dirname(self.path)
        if directory:
            os.makedirs(directory, exist_ok=True)
        # Unbuffered and at once: a reader, or whoever kills us, sees all of it or a part, in order.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with open(open_own(self.path, flags), "ab", buffering=0) as file:
            file.write(content)

    def _upload(self) -> None:
        assert self._remote is not None
        self._remote.pipe_file(self.path, bytes(self._content))
        self._is_uploaded = True
        self._next_upload = time.monotonic() + _SECS_BETWEEN_UPLOADS


def _remote(url: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f"{url} is a URL, which needs fsspec: pip install 'paceline[remote]'"
        ) from error
    return fsspec.core.url_to_fs(url)[0]


def read_directory(directory: str, suffix: str) -> dict[str, bytes]:
    """The files of a directory, or behind a URL, whose names end so: name without it → content.

    Raises:
        OSError: One cannot be read, or is no regular file.
        ValueError: One is larger than `MAX_FILE_BYTES`.
        ImportError: It is a URL, and fsspec is not installed.
    """
    if "://" in directory:
        remote = _remote(directory)
        paths = remote.ls(directory, detail=False) if remote.exists(directory) else []
        return {
            os.path.basename(path).removesuffix(suffix): _remote_content(remote, path)
            for path in sorted(paths)
            if path.endswith(suffix)
        }
    there = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return {
        name.removesuffix(suffix): read_own(os.path.join(directory, name), MAX_FILE_BYTES)
        for name in there
        if name.endswith(suffix)
    }


def _remote_content(remote: Any, path: str) -> bytes:
    content = bytes(remote.cat_file(path, start=0, end=MAX_FILE_BYTES + 1))
    require_size(len(content), MAX_FILE_BYTES)
    return content


def replace_file(path: str, content: bytes) -> None:
    """Write a whole file; readers see the old one or the new one.

    Raises:
        OSError: It cannot be written.
        ImportError: It is a URL, and fsspec is not installed.
    """
    if "://" in path:
        _remote(path).pipe_file(path, content)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    beside = f"{path}.{os.urandom(4).hex()}.tmp"
    with open(open_own(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content)
    os.replace(beside, path)
