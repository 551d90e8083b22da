"""`tf.summary`: with a step into the writer at hand, without one as a `model_fn` shows itself.

writer = tf.summary.create_file_writer("logs")
with writer.as_default():
    tf.summary.scalar("loss", loss, step=step)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ... import summary
from ...nn.metrics import Metric
from ...summary import FileWriter
from ..names import NameTable, serve
from .advice import advice
from .arguments import refuse
from .conversion import plain
from .metrics import UpdateOp

__getattr__, __dir__ = serve(
    NameTable(
        __name__,
        renamed={
            "FileWriter": "summary.FileWriter",
            "FileWriterCache": "compat.tf.summary_v1.FileWriterCache",
        },
        advice=advice,
    )
)
_default: ContextVar[tuple[FileWriter | None, Any]] = ContextVar(
    "paceline_compat_summary", default=(None, None)
)


class SummaryWriter:
    """A file of events; `as_default` makes it the one that the functions here write into."""

    def __init__(self, logdir: Any) -> None:
        self._writer = FileWriter(logdir)

    @contextmanager
    def as_default(self, step: int | None = None) -> Iterator[SummaryWriter]:
        """Within it, the functions here write into this file."""
        token = _default.set((self._writer, step))
        try:
            yield self
        finally:
            _default.reset(token)
            self.flush()

    set_as_default = as_default

    def flush(self) -> None:
        """Bring what was written to the file."""
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def create_file_writer(
    logdir: Any,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    experimental_trackable: bool = False,
) -> SummaryWriter:
    """A file of events in this directory."""
    refuse(
        "create_file_writer",
        ("filename_suffix", filename_suffix, None, "use one directory for each"),
    )
    return SummaryWriter(logdir)


def _write(kind: str, name: str, value: Any, step: Any) -> None:
    writer, default_step = _default.get()
    step = default_step if step is None else step
    if writer is None and step is None:
        getattr(summary, kind)(name, value)
    elif writer is not None:
        if step is None:
            raise ValueError(
                f"tf.summary.{kind}({name!r}, ...) needs step=, or a writer's as_default(step=...)"
            )
        getattr(writer, kind)(name, value() if callable(value) else value, int(step))


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> None:
    """A number; or a pair's half from `tf.metrics`: the metric, or its update and the figure after.

    In a `model_fn` the update is made where the summary is shown, and nowhere else, as in a graph.
    """
    if isinstance(data, UpdateOp):
        data = data.value
    elif isinstance(data, Metric):
        data = data.result
    _write("scalar", name, data, step)


def histogram(
    name: str,
    data: Any,
    step: Any = None,
    buckets: int | None = None,
    description: str | None = None,
) -> None:
    """How numbers are distributed, in buckets whose number they themselves say."""
    refuse("histogram", ("buckets", buckets, None, "leave it away"))
    _write("histogram", name, data, step)


def image(
    name: str,
    data: Any,
    step: Any = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> None:
    """Images (batch, height, width, channels)."""
    _write("image", name, plain(data)[:max_outputs], step)


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> None:
    """Text."""
    _write("text", name, data, step)


def merge_all(key: Any = None, scope: Any = None, name: str | None = None) -> None:
    """Nothing: summaries of a `model_fn` are written by themselves."""
