"""Saving behind the back of a run: a thread of its own, and a copy of all arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

import numpy as np

from .slices import Piece

THREAD_NAME: Final = "paceline-save"
_ALIGNMENT: Final = 64
Result = TypeVar("Result")
_Pairs: TypeAlias = dict[str, list[tuple[np.ndarray, Any]]]
PendingCopies: TypeAlias = Mapping[str, Callable[[], None]]
"""By the names of arrays: what returns when the array may change, since it is copied by then."""


class Download(Protocol):
    """Copies, which are being made, of arrays that are not in host memory."""

    @property
    def before_change(self) -> PendingCopies:
        """What is to be called before the arrays of a name change; by any thread."""

    def finish(self) -> None:
        """Return when all copies are made. Called once, by the thread that writes."""


BeginDownload: TypeAlias = Callable[[Mapping[str, Sequence[tuple[np.ndarray, Any]]]], Download]
"""Begins to copy arrays of elsewhere: by names, pairs of a contiguous target and a source."""


@final
class Background(Generic[Result]):
    """Runs a function in a thread that ends with it: nobody has to stop it.

    The thread is no daemon, so that an interpreter that exits waits for it. (The executors of
    `concurrent.futures` refuse work as soon as the main thread has ended.) At the end of a `with`
    block the function has ended, too.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(function,), name=THREAD_NAME)
        self._thread.start()

    def _run(self, function: Callable[[], Result]) -> None:
        try:
            self._results.append(function())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def is_done(self) -> bool:
        return self._ended.is_set()

    def join(self) -> None:
        # A thread whose join was interrupted counts as ended (Python 3.11); an event does not.
        self._ended.wait()
        self._thread.join()

    def result(self) -> Result:
        """Waits for the end; what the function returned, or its error as it was raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def __enter__(self) -> Background[Result]:
        return self

    def __exit__(self, *error: object) -> None:
        self.join()


@final
class _PendingCopy:
    """A copy of arrays that is made behind the back of who changes them, or by them before they do.

    Args:
        pairs: Targets and sources; the sources are let go when they were copied.
    """

    def __init__(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        self._pairs = pairs
        self._making = threading.Lock()

    def make(self) -> None:
        """Returns when it is made: by the caller, unless another thread is at it or has done so."""
        with self._making:
            for target, source in self._pairs:
                np.copyto(target, source, casting="equiv")
            self._pairs = ()


@final
@dataclass(frozen=True)
class Copies:
    """A copy of what is to be written, which is being made.

    Attributes:
        pieces: With the arrays of the copy, row-major and little-endian.
        before_change: What is to be called before the originals of a name change.
        finish: Returns when all is copied. To be called once, by the thread that writes.
    """

    pieces: Mapping[str, Piece]
    before_change: PendingCopies
    finish: Callable[[], None]


@final
class Snapshot:
    """Holds one copy of what is to be written, while the originals change.

    All copies lie in one buffer: the system hands out large pages for it, so that even the first
    copy, which gets its memory from the system, costs little more than the later ones.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)

    def begin(self, pieces: Mapping[str, Piece], download: BeginDownload | None) -> Copies:
        """Begins to copy the pieces to where the next call overwrites them.

        Args:
            pieces: What is to be written.
            download: Copies arrays that are not NumPy's; needed where there are such.
        """
        ends = np.cumsum([0, *(_padded(piece.array.nbytes) for piece in pieces.values())])
        if len(self._buffer) < ends[-1]:
            self._buffer = np.empty(0, np.uint8)  # the old one goes before the new one comes
            self._buffer = np.empty(ends[-1], np.uint8)
        copies: dict[str, Piece] = {}
        here: _Pairs = {}
        elsewhere: _Pairs = {}
        for (key, piece), start in zip(pieces.items(), ends.tolist(), strict=False):
            copies[key] = replace(piece, array=self._place(piece.array, start))
            pairs = here if isinstance(piece.array, np.ndarray) else elsewhere
            pairs.setdefault(piece.name, []).append((copies[key].array, piece.array))
        pending = {name: _PendingCopy(of_name).make for name, of_name in here.items()}
        if download is None or not elsewhere:
            return Copies(copies, pending, partial(_make_all, pending))
        begun = download(elsewhere)

        def finish() -> None:
            begun.finish()
            _make_all(pending)

        return Copies(copies, {**pending, **begun.before_change}, finish)

    def _place(self, array: np.ndarray, start: int) -> np.ndarray:
        place = self._buffer[start : start + array.nbytes]
        return place.view(array.dtype.newbyteorder("<")).reshape(array.shape)


def _make_all(pending: PendingCopies) -> None:
    for copy in pending.values():
        copy()


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
