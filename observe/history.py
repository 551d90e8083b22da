"""The history of a run, as data: what each task notes in `model_dir/history`, line by line.

Each task has a file of its own, such as `worker-0.jsonl`: one JSON object a line, with "event" (see
`EVENTS`) and "time" in seconds since 1970. Runs that go on later append to it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from typing import Any, Final, final

from .growing_file import GrowingFile

DIRECTORY: Final = "history"
EVENTS: Final = ("begin", "steps", "checkpoint", "evaluation", "failure", "end")


@final
class History:
    """What one task notes of its run.

    Nothing that goes wrong here ends a run: where the file cannot be written, `problem` says why,
    and nothing is noted any more.

    Args:
        model_dir: A path, or a URL that fsspec knows.
        task: The kind and number of the task, such as `worker-0`.
    """

    def __init__(self, model_dir: str, task: str) -> None:
        self._file = GrowingFile(f"{os.fspath(model_dir)}/{DIRECTORY}/{task}.jsonl", keeps=True)
        self.problem: OSError | None = None

    def note(self, event: str, **fields: Any) -> None:
        """Append a line; numbers that are not finite become null."""
        if self.problem is not None:
            return
        line = json.dumps(_finite({"event": event, "time": time.time(), **fields}))
        try:
            self._file.append(line.encode() + b"\n")
        except OSError as error:
            self.problem = error

    def close(self) -> None:
        """Hand over what is not on its way yet."""
        try:
            self._file.close()
        except OSError as error:
            self.problem = error


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
