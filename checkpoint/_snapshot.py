"""A copy of all arrays at one moment, in memory that is used again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, final

import numpy as np

from ._arguments import Piece
from ._background import Background

_ALIGNMENT: Final = 64
_LARGE_BYTES: Final = 16 << 20


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
        with Background(partial(_copy, pairs[:middle])) as half:
            _copy(pairs[middle:])
        half.result()
        return copies

    def _place(self, array: np.ndarray, start: int) -> np.ndarray:
        """Where the copy of an array goes."""
        place = self._buffer[start : start + array.nbytes]
        return place.view(array.dtype.newbyteorder("<")).reshape(array.shape)


def _copy(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    for copy, array in pairs:
        np.copyto(copy, array, casting="equiv")


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
