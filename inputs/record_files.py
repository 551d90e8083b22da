"""Which files a source reads, and the stream of the records in them."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, BinaryIO, NamedTuple, final

import numpy as np

from .checks import COUNT, checked_fields
from .elements import ElementIterator, State, Stream
from .plan import UNKNOWN, Opening, Plan
from .sources import Rows
from .values import TensorSpec

Path = str | bytes | os.PathLike[str]
Files = Path | Sequence[Path]
"""A path, a pattern with `*`, `?` or `[...]`, or several of them."""

_BUFFER_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 20


@final
class RecordFormat(NamedTuple):
    """How a kind of file is read.

    Args:
        name: what the source is called.
        read: reads the records from the file's position on. It must not read ahead, since the
            position after a record is where one resumes; after a damaged record it leaves the
            position where the next one is, or at the end.
        is_packed: whether all files are gzip files, whatever their names.
    """

    name: str
    read: Callable[[BinaryIO], Iterator[Any]]
    is_packed: bool = False


def matching_files(files: Files) -> list[str]:
    """The files that are meant, each pattern's in alphabetical order; one at least."""
    several = [files] if isinstance(files, str | bytes | os.PathLike) else list(files)
    found = [path for item in several for path in _matching(os.fsdecode(item))]
    if not found:
        raise ValueError("files must name at least one file, got none.")
    return found


def records_plan(files: Files, record_format: RecordFormat) -> Plan:
    """The records of files, one file after another."""
    paths = matching_files(files)

    def open_files(opening: Opening) -> Stream:
        count, index = opening.file_shard
        return Stream(lambda _: _RecordIterator(paths[index::count], record_format))

    text = f"{record_format.name}({_summary(paths)})"
    return Plan(text, UNKNOWN, open_files, file_counts=(len(paths),))


def file_names_plan(files: Files) -> Plan:
    """The names of files; where files are divided among workers, those of this worker."""
    names = np.array(matching_files(files))

    def open_names(opening: Opening) -> Rows:
        count, index = opening.file_shard
        own = names[index::count]
        return Rows(own, len(own))

    return Plan(
        f"list_files({_summary(names.tolist())})",
        len(names),
        open=open_names,
        known_spec=lambda: TensorSpec((), names.dtype),
        file_counts=(len(names),),
    )


@final
class _RecordIterator(ElementIterator):
    """Its state is a position in a file, so that resuming takes no time.

    An error leaves it behind the damaged record, or at the next file where none can be found.
    """

    def __init__(self, paths: Sequence[str], record_format: RecordFormat) -> None:
        self._paths = paths
        self._format = record_format
        self._file_index = 0
        self._record_index = 0
        self._offset = 0
        self._file: BinaryIO | None = None
        self._close_file: weakref.finalize | None = None
        self._records: Iterator[Any] | None = None

    def __next__(self) -> Any:
        while self._file_index < len(self._paths):
            path = self._paths[self._file_index]
            try:
                record = next(self._opened(path))
            except StopIteration:
                self._go_to(self._file_index + 1)
                continue
            except Exception as error:
                number = self._record_index
                self._step_over()
                raise _with_location(error, path, number) from error
            self._record_index += 1
            return record
        raise StopIteration

    def get_state(self) -> State:
        return {
            "file": self._file_index,
            "record": self._record_index,
            "offset": self._offset if self._file is None else self._file.tell(),
        }

    def set_state(self, state: State) -> None:
        checked_fields(state, {"file": COUNT, "record": COUNT, "offset": COUNT})
        self._go_to(state["file"], state["record"], state["offset"])

    def close(self) -> None:
        self._go_to(len(self._paths))

    def _opened(self, path: str) -> Iterator[Any]:
        if self._file is None:
            self._file = opened(path, self._format.is_packed)
            self._close_file = weakref.finalize(self, self._file.close)
            self._file.seek(self._offset)
        if self._records is None:
            self._records = self._format.read(self._file)
        return self._records

    def _go_to(self, file_index: int, record_index: int = 0, offset: int = 0) -> None:
        if self._close_file is not None:
            self._close_file()
        self._file = self._records = None
        self._file_index, self._record_index, self._offset = file_index, record_index, offset

    def _step_over(self) -> None:
        """Goes on behind a record that raised an error."""
        offset = self._offset if self._file is None else self._file.tell()
        if offset > self._offset:
            # The file stays open: to find the place again in a packed one means to unpack all that
            # lies before it, which for many bad records would take quadratic time.
            self._record_index, self._offset, self._records = self._record_index + 1, offset, None
        else:
            self._go_to(self._file_index + 1)


def check_has_content(path: str) -> None:
    """Refuse a path before it is opened, where reading would find nothing or wait for a writer."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(
            f"{path} is no regular file, and only such a file can be read again from where a run "
            "stopped; copy what it gives into a file, or read it in Dataset.from_generator."
        )
    if status.st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes); leave it out, or write it again.")


def read_up_to(file: IO[bytes] | gzip.GzipFile, num_bytes: int) -> bytes:
    """At most `num_bytes`; a damaged file that announces more than it has takes no memory."""
    if num_bytes <= _CHUNK_BYTES:
        return file.read(num_bytes)
    data = bytearray()
    while len(data) < num_bytes and (chunk := file.read(min(_CHUNK_BYTES, num_bytes - len(data)))):
        data += chunk
    return bytes(data)


def skip_rest(file: BinaryIO) -> None:
    """Leaves the position at the end, so that nothing more is read from the file."""
    # Not by seeking: a packed file does not know its end.
    while file.read(_BUFFER_BYTES):
        pass


def skip_mark(file: BinaryIO) -> None:
    """Goes behind the three bytes with which Excel and others mark UTF-8 files."""
    if file.tell() == 0 and file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)


def _summary(paths: Sequence[str]) -> str:
    """Tells other files from these, wherever their folder lies; states carry it."""
    names = "\n".join(os.path.basename(path) for path in paths)
    return f"{len(paths)} files, {zlib.crc32(names.encode()):08x}"


def _matching(pattern: str) -> list[str]:
    if os.path.exists(pattern):
        return [pattern]
    import glob  # not needed by those who have no files

    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        what = "No file matches" if glob.has_magic(pattern) else "There is no file"
        raise FileNotFoundError(f"{what} {pattern!r} (working directory {os.getcwd()}).")
    return found


def is_gzip(compression_type: str | None) -> bool:
    """Whether files are packed by gzip whatever their names, in TensorFlow's word for it."""
    if compression_type not in (None, "", "GZIP"):
        raise ValueError(
            f'compression_type must be "GZIP", or "" or None for what the names say, got '
            f"{compression_type!r}; pack the files by gzip."
        )
    return compression_type == "GZIP"


def opened(path: str, is_packed: bool = False) -> BinaryIO:
    """The file, unpacked if it is packed or named `.gz`, for reading; an empty one is an error."""
    check_has_content(path)
    if is_packed or path.endswith(".gz"):
        return gzip.open(path)  # type: ignore[return-value]
    return open(path, "rb", _BUFFER_BYTES)


def _with_location(error: Exception, path: str, record_index: int) -> Exception:
    """The error, saying where it happened."""
    place = f"{path}, record {record_index}"
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return ValueError(f"{place}: the gzip file is damaged or cut off ({error})")
    if isinstance(error, OSError):
        error.add_note(f"While reading {place}.")
        return error
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{place}: {error}")
