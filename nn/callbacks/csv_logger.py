"""`CSVLogger`: the logs of epochs as a table in a file."""

from __future__ import annotations

import csv
import os
from typing import Any

from .callback import Callback, Logs
from .chief import is_chief


class CSVLogger(Callback):
    """Write the logs of each epoch as a line of a file; on several workers the chief writes.

    Args:
        filename: The file; directories on the way are made.
        separator: What stands between two values.
        append: Whether to go on behind what the file has.
    """

    def __init__(
        self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False
    ) -> None:
        super().__init__()
        self._path = os.fspath(filename)
        self._separator = separator
        self._append = append
        self._columns: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._columns = []
        if not is_chief(self.model):
            return
        os.makedirs(os.path.dirname(self._path) or os.curdir, exist_ok=True)
        if self._append and os.path.exists(self._path):
            with open(self._path, newline="") as file:
                self._columns = next(csv.reader(file, delimiter=self._separator), [])
        else:
            open(self._path, "w").close()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not is_chief(self.model):
            return
        row: dict[str, Any] = {"epoch": epoch, **(logs or {})}
        # Opened for each line: what was written is there, however the run ends.
        with open(self._path, "a", newline="") as file:
            is_first, columns = not self._columns, self._columns or ["epoch", *sorted(logs or {})]
            writer = csv.DictWriter(
                file, columns, restval="NA", extrasaction="ignore", delimiter=self._separator
            )
            if is_first:
                self._columns = columns
                writer.writeheader()
            writer.writerow(row)
