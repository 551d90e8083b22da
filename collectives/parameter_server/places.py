"""Memory of a trainer's that its server has mapped: what is large lies there and does not travel.

    requests    arrays of the request that is under way: the trainer writes, the server reads
    replies     arrays of the trainer's for new values: the server writes, the trainer reads

A large array is thus copied once, where a stream of bytes takes it in and gives it out again. What
both ends have to say stays a message over their link; only where its arrays lie is another matter.

Each connection has memory of its own. A server that was stopped in the middle of a request may go
on with it when its trainer has long given the connection up: it then reads and writes what nobody
else does any more. So whoever connects anew leaves all arrays of the old memory alone.

Only floating-point arrays lie here. Others, such as numbers of rows, are looked through before they
are used, and must not be others then.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from ..session import FrameError
from .frames import DEFAULT_MAX_FRAME_BYTES, Array, ArrayEntry, padded

# As long as a link takes to move it about, a copy into the stream costs nothing.
_MIN_BYTES: Final = 128 << 10
# What was written to once stays taken: a table that the chief brings once is not to lie here.
_MAX_BYTES: Final = 16 << 20
_ALIGNMENT: Final = 64
_REPLIES_START: Final = DEFAULT_MAX_FRAME_BYTES
MEMORY_BYTES: Final = 2 * DEFAULT_MAX_FRAME_BYTES
"""Size of the memory. None of it is there before it is written to."""


@final
class Places:
    """The memory. One thread at a time uses it, that of the connection.

    A place is a number from 1, in steps of 64 bytes.

    Args:
        memory: `MEMORY_BYTES` of it, and perhaps some more.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._start: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
        self._num_request_bytes = 0
        self._num_reply_bytes = 0
        self._free: dict[int, list[int]] = {}  # by size, where arrays were that are gone

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A new array for values of a reply; of memory elsewhere if it does not belong here."""
        array = np.empty(shape, dtype)
        if not _belongs_here(array):
            return array
        num_bytes = padded(array.nbytes)
        free = self._free.setdefault(num_bytes, [])
        if not free:
            if self._num_reply_bytes + num_bytes > MEMORY_BYTES - _REPLIES_START:
                return array
            free.append(_REPLIES_START + self._num_reply_bytes)
            self._num_reply_bytes += num_bytes
        offset = free.pop()
        array = np.ndarray(shape, dtype, buffer=self._memory, offset=offset)
        weakref.finalize(array, free.append, offset).atexit = False
        return array

    def of(self, arrays: Sequence[Array]) -> dict[int, tuple[Array, int]]:
        """Those of the arrays that lie in what `empty` has given, by position, and where."""
        found = {}
        for index, array in enumerate(arrays):
            if array.nbytes >= _MIN_BYTES and (place := self._place_of(array)):
                found[index] = array, place
        return found

    def put(self, arrays: Sequence[Array]) -> list[int]:
        """Copy the arrays of a request in place of those of the one before.

        Returns:
            Where each of them lies; 0 for what has to travel.
        """
        self._num_request_bytes = 0
        return [self._put(array) if array.nbytes >= _MIN_BYTES else 0 for array in arrays]

    def at(self, entry: ArrayEntry) -> Array:
        """The array that lies at a place.

        Raises:
            FrameError: None can lie there.
        """
        offset = (entry.place - 1) * _ALIGNMENT
        if entry.dtype.kind != "f" or not 0 <= offset <= MEMORY_BYTES - entry.num_bytes:
            raise FrameError(
                f"an array of {entry.dtype} and {entry.num_bytes} bytes at a place where none can "
                f"be: {entry.place}"
            )
        return np.ndarray(entry.shape, entry.dtype, buffer=self._memory, offset=offset)

    def _put(self, array: Array) -> int:
        offset, num_bytes = self._num_request_bytes, padded(array.nbytes)
        if not _belongs_here(array) or offset + num_bytes > _REPLIES_START:
            return 0
        self._num_request_bytes += num_bytes
        place = np.ndarray(array.shape, array.dtype, buffer=self._memory, offset=offset)
        np.copyto(place, array)
        return offset // _ALIGNMENT + 1

    def _place_of(self, array: Array) -> int:
        offset = array.__array_interface__["data"][0] - self._start
        is_here = _REPLIES_START <= offset <= MEMORY_BYTES - array.nbytes
        is_place = is_here and offset % _ALIGNMENT == 0 and _belongs_here(array)
        return offset // _ALIGNMENT + 1 if is_place else 0


def _belongs_here(array: Array) -> bool:
    has_size = _MIN_BYTES <= array.nbytes <= _MAX_BYTES
    return has_size and array.dtype.kind == "f" and array.flags.c_contiguous
