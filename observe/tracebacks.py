"""Tracebacks of errors in the user's functions: their frames, and few of ours."""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, final

VARIABLE: Final = "PACELINE_TRACEBACK"
"""With "full" in this environment variable tracebacks keep all frames."""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


@final
class ShortTracebacks:
    """A context for what users call: errors that leave it have lost most frames of this package.

    Between a script that calls `train` and its `model_fn` lie a dozen frames that help nobody who
    has made a mistake in either. Left are those of other files, the one of the context itself,
    and the last, where the error was raised; the same for errors that led to it. Contexts may be
    nested, and one object serves all of them.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and os.environ.get(VARIABLE) != "full":
            for each in _with_causes(error):
                each.__traceback__ = _shortened(each.__traceback__)


short_tracebacks: Final = ShortTracebacks()


def _with_causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and not any(each is one for one in found):
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


def _shortened(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    inner = [entry for entry in entries[1:-1] if not _is_ours(entry.tb_frame)]
    result = None
    for entry in reversed([*entries[:1], *inner, *entries[1:][-1:]]):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)
