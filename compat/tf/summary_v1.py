"""`tf.compat.v1.summary`: what a `model_fn` shows itself, and the writer of a directory."""

from __future__ import annotations

import os
from typing import Any

from ... import summary
from ..names import NameTable, serve
from .advice import advice
from .arguments import refuse
from .conversion import plain

__getattr__, __dir__ = serve(
    NameTable(__name__, renamed={"merge_all": "compat.tf.summary.merge_all"}, advice=advice)
)


def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> None:
    """A number."""
    summary.scalar(_within(family, name), tensor)


def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> None:
    """How numbers are distributed."""
    summary.histogram(_within(family, name), values)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Any = None,
    family: str | None = None,
) -> None:
    """Images (batch, height, width, channels)."""
    summary.image(_within(family, name), plain(tensor)[:max_outputs])


def text(name: str, tensor: Any, collections: Any = None) -> None:
    """Text."""
    summary.text(name, tensor)


def _within(family: str | None, name: str) -> str:
    return name if family is None else f"{family}/{name}"


def FileWriter(  # noqa: N802
    logdir: str | os.PathLike[str],
    graph: Any = None,
    max_queue: int = 10,
    flush_secs: float = 120,
    graph_def: Any = None,
    filename_suffix: str | None = None,
    session: Any = None,
) -> summary.FileWriter:
    """`paceline.summary.FileWriter` of this directory.

    Args:
        logdir: The directory.
        graph, graph_def, session, max_queue, flush_secs: Have no effect: there is no graph, and
            what is written reaches the file by `flush` and `close`.
        filename_suffix: Must be None.
    """
    refuse("FileWriter", ("filename_suffix", filename_suffix, None, "use one directory for each"))
    return summary.FileWriter(logdir)


_writers: dict[str, summary.FileWriter] = {}


class FileWriterCache:
    """Writers of directories that several parts of a script share."""

    @staticmethod
    def get(logdir: str | os.PathLike[str]) -> summary.FileWriter:
        """The writer of this directory, which is made by the first call."""
        path = os.fspath(logdir)
        if path not in _writers:
            _writers[path] = FileWriter(path)
        return _writers[path]

    @staticmethod
    def clear() -> None:
        """Close all of them; the next `get` makes a new file."""
        for writer in _writers.values():
            writer.close()
        _writers.clear()
