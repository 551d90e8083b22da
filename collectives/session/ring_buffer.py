"""Memory of a fixed size through which a stream of bytes goes round."""

from __future__ import annotations

from typing import final

import numpy as np

_ALIGNMENT = 64
# Copies up to this size are not worth a call of NumPy, which lets other threads run meanwhile.
_SMALL_COPY_BYTES = 32 << 10


@final
class RingBuffer:
    """The memory; who uses it counts what was written and read, and keeps the two apart.

    Args:
        memory: A multiple of 64 bytes, at an address that is one.
        view_bytes: The most that `view` is asked for.

    Attributes:
        array: The memory as bytes.
    """

    def __init__(self, memory: memoryview, view_bytes: int) -> None:
        self._bytes = memory
        self._size = len(memory)
        self._view_bytes = view_bytes
        self._joined = memoryview(b"")  # made when first needed: one end only writes
        self.array = np.frombuffer(memory, np.uint8)

    def write(self, position: int, data: memoryview) -> None:
        """Copy ``data`` to ``position`` in the stream, going on at the beginning after the end."""
        start = position % self._size
        stop = start + len(data)
        if stop <= self._size:
            copy(self._bytes[start:stop], data)
        else:
            first = self._size - start
            copy(self._bytes[start:], data[:first])
            copy(self._bytes[: stop - self._size], data[first:])

    def view(self, position: int, num_bytes: int) -> memoryview:
        """Return the bytes at ``position`` in the stream, in place or, around the end, joined."""
        start = position % self._size
        stop = start + num_bytes
        if stop <= self._size:
            return self._bytes[start:stop]
        if not self._joined:
            self._joined = np.empty(self._view_bytes + _ALIGNMENT, np.uint8).data
        # At the same distance from an aligned address as they have in the stream.
        target = self._joined[start % _ALIGNMENT :][:num_bytes]
        first = self._size - start
        target[:first] = self._bytes[start:]
        target[first:] = self._bytes[: stop - self._size]
        return target

    def read(self, position: int, target: memoryview) -> None:
        """Copy the bytes at ``position`` in the stream to ``target``."""
        start = position % self._size
        first = min(self._size - start, len(target))
        copy(target[:first], self._bytes[start : start + first])
        copy(target[first:], self._bytes[: len(target) - first])


def copy(target: memoryview, data: memoryview) -> None:
    """Copy ``data`` to ``target``, of the same length."""
    if len(target) <= _SMALL_COPY_BYTES:
        target[:] = data
    else:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(data, np.uint8))
