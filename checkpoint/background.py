"""Saving behind the back of a run: a thread of its own, and a copy of all arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar, final

import numpy as np

from .slices import Piece

THREAD_NAME: Final = "paceline-save"
_ALIGNMENT: Final = 64
_LARGE_BYTES: Final = 16 << 20
Result = TypeVar("Result")


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
class Snapshot:
    """Holds one copy of what is to be written, while the originals change.

    All copies lie in one buffer: the system hands out large pages for it, so that even the first
    copy, which gets its memory from the system, costs little more than the later ones.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)

    def take(self, pieces: Mapping[str, Piece]) -> dict[str, Piece]:
        """The pieces with copies of their arrays, row-major and little-endian.

        They are overwritten by the next call.
        """
        ends = np.cumsum([0, *(_padded(piece.array.nbytes) for piece in pieces.values())])
        if len(self._buffer) < ends[-1]:
            self._buffer = np.empty(0, np.uint8)  # the old one goes before the new one comes
            self._buffer = np.empty(ends[-1], np.uint8)
        copies = {
            key: replace(piece, array=self._place(piece.array, int(start)))
            for (key, piece), start in zip(pieces.items(), ends, strict=False)
        }
        pairs = [(copies[key].array, piece.array) for key, piece in pieces.items()]
        middle = int(np.searchsorted(ends, ends[-1] / 2)) if ends[-1] >= _LARGE_BYTES else 0
        # One core alone does not use the memory's whole bandwidth.
        with Background(lambda: _copy(pairs[:middle])) as half:
            _copy(pairs[middle:])
        half.result()
        return copies

    def _place(self, array: np.ndarray, start: int) -> np.ndarray:
        place = self._buffer[start : start + array.nbytes]
        return place.view(array.dtype.newbyteorder("<")).reshape(array.shape)


def _copy(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    for copy, array in pairs:
        np.copyto(copy, array, casting="equiv")


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
