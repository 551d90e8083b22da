"""`History`: what `fit` returns."""

from __future__ import annotations

from typing import Any, final

from .callback import Callback, Logs


@final
class History(Callback):
    """Notes the logs of each epoch.

    Attributes:
        history: By name, the figures of all epochs.
        epoch: The numbers of the epochs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
