"""Event files, which TensorBoard reads: a writer, and how an event is encoded.

An event file is a TFRecord file of `tensorflow.Event` messages (tensorflow/core/util/event.proto,
tensorflow/core/framework/summary.proto). A message of Protocol Buffers is a sequence of fields,
each a tag (field number and wire type) and a value
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, final

import numpy as np

from ..formats.protobuf import FIXED32, FIXED64, VARINT, bytes_field, encoded_varint
from ..inputs import framed_record
from ..observe import GrowingFile
from .values import Histogram, Images, as_number, as_text

_DT_STRING = 7
_START = 1
_FLUSH_BYTES = 1 << 20

_file_numbers: Final = itertools.count()


@final
class FileWriter:
    """Writes summaries into an event file of its own in `directory`.

    What is written is kept in memory until `flush`, `close`, the end of a `with` block, or a
    mebibyte of it. In between no file is open and no thread runs. Not for several threads at once.

    Args:
        directory: Made with the first flush; a path, or a URL that fsspec knows. TensorBoard shows
            each directory as a run.

    Raises:
        ImportError: It is a URL, and fsspec is not installed.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        # TensorBoard reads the files of a directory in the order of their names.
        number = f"{os.getpid()}.{next(_file_numbers):04d}"
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{number}"
        self._file = GrowingFile(f"{os.fsdecode(directory)}/{name}")
        self._pending = [framed_record(_event(0, _text_field(3, "brain.Event:2")))]
        self._pending_bytes = 0

    def scalar(self, name: str, value: Any, step: int) -> None:
        """Write one number.

        Args:
            name: What TensorBoard shows it as; a `/` in it makes groups.
            value: A number, or an array or tensor of one element.
            step: The global step that it belongs to.

        Raises:
            TypeError: It is no number.
        """
        number = struct.pack("<f", as_number(name, value))
        self._write(step, name, _field(2, FIXED32, number))

    def histogram(self, name: str, value: Any, step: int) -> None:
        """Write how numbers are distributed.

        Args:
            name: What TensorBoard shows it as.
            value: An array or tensor of any shape, or a `Histogram`. What is not finite is left
                out.
            step: The global step that it belongs to.
        """
        found = value if isinstance(value, Histogram) else Histogram.of(value)
        self._write(step, name, bytes_field(5, _histogram(found)))

    def image(self, name: str, value: Any, step: int) -> None:
        """Write images.

        Args:
            name: What TensorBoard shows them as.
            value: An array of shape (height, width), (height, width, channels) or (images, height,
                width, channels), with 1 to 4 channels (grey, grey and alpha, RGB, RGBA): uint8, or
                floats in [0, 1], which are clipped. Of several the first three are shown.
            step: The global step that they belong to.

        Raises:
            ValueError: The array has another shape or dtype.
        """
        found = value if isinstance(value, Images) else Images.of(name, value)
        strings = [str(found.width).encode(), str(found.height).encode(), *found.pngs]
        self._write(step, name, _strings("images", strings, is_scalar=False))

    def text(self, name: str, value: Any, step: int) -> None:
        """Write text, which TensorBoard shows as Markdown.

        Raises:
            TypeError: `value` is no text.
        """
        strings = [as_text(name, value).encode()]
        self._write(step, name, _strings("text", strings, is_scalar=True))

    def begin(self, step: int) -> None:
        """Say that a run goes on after `step`: what earlier files have of later steps is void."""
        self._append(_event(step + 1, bytes_field(7, _varint_field(1, _START))))

    def flush(self) -> None:
        """Hand over to the file what was written."""
        content, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        self._file.append(content)

    def close(self) -> None:
        """Flush. Further summaries may follow, and are flushed by the next call."""
        self.flush()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, step: int, name: str, content: bytes) -> None:
        value = _text_field(1, name) + content
        self._append(_event(step, bytes_field(5, bytes_field(1, value))))

    def _append(self, event: bytes) -> None:
        record = framed_record(event)
        self._pending.append(record)
        self._pending_bytes += len(record)
        if self._pending_bytes >= _FLUSH_BYTES:
            self.flush()


def _event(step: int, content: bytes) -> bytes:
    wall_time = _field(1, FIXED64, struct.pack("<d", time.time()))
    return wall_time + _varint_field(2, int(step)) + content


def _histogram(found: Histogram) -> bytes:
    """A HistogramProto: five numbers, then the upper limits of buckets and what is in each."""
    numbers = (found.min, found.max, found.num, found.sum, found.sum_squares)
    fields = [
        _field(number, FIXED64, struct.pack("<d", value))
        for number, value in enumerate(numbers, start=1)
    ]
    limits, counts = found.buckets()
    return b"".join(
        [
            *fields,
            bytes_field(6, np.asarray(limits, "<f8").tobytes()),
            bytes_field(7, np.asarray(counts, "<f8").tobytes()),
        ]
    )


def _strings(plugin: str, strings: Sequence[bytes], is_scalar: bool) -> bytes:
    """A tensor of strings that a plugin of TensorBoard shows, and the plugin's name."""
    shape = b"" if is_scalar else bytes_field(2, _varint_field(1, len(strings)))
    tensor = _varint_field(1, _DT_STRING) + bytes_field(2, shape)
    tensor += b"".join(bytes_field(8, string) for string in strings)
    metadata = bytes_field(1, _text_field(1, plugin))
    return bytes_field(9, metadata) + bytes_field(8, tensor)


def _field(number: int, wire_type: int, value: bytes) -> bytes:
    return encoded_varint(number << 3 | wire_type) + value


def _varint_field(number: int, value: int) -> bytes:
    return _field(number, VARINT, encoded_varint(value))


def _text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())
