"""`tf.python_io` of TensorFlow 1: TFRecord files, written and read record by record."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...inputs import tf_records
from ..names import NameTable, serve
from .advice import advice

__getattr__, __dir__ = serve(
    NameTable(__name__, renamed={"TFRecordWriter": "inputs.TFRecordWriter"}, advice=advice)
)


class TFRecordCompressionType:
    """How files are packed, for `TFRecordOptions`."""

    NONE = ""
    ZLIB = "ZLIB"
    GZIP = "GZIP"


def TFRecordOptions(compression_type: str | None = None) -> str | None:  # noqa: N802
    """What `TFRecordWriter` and `tf_record_iterator` take as `options`: the compression itself."""
    return compression_type or None


def tf_record_iterator(path: str | os.PathLike[str], options: str | None = None) -> Iterator[bytes]:
    """The records of a file, whose checksums are verified, as bytes.

    Args:
        path: The file.
        options: What `TFRecordOptions` gives.
    """
    return (record.tobytes() for record in tf_records(path, options))
