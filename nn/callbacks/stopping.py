"""Callbacks that end training early."""

from __future__ import annotations

import math
from typing import Any

from .callback import Callback, Logs
from .chief import say
from .monitor import Monitor


class EarlyStopping(Callback):
    """End training when a figure has stopped becoming better.

    All workers have the same logs and so end after the same epoch.

    Args:
        monitor: The figure.
        min_delta: By how much it must become better.
        patience: After how many epochs without a better one to end.
        verbose: 1 to say so.
        mode: "min", "max" or "auto"; see `Monitor`.
        baseline: A value that it must reach, too.
        restore_best_weights: Whether the weights are those of the best epoch where training ends
            early. They are kept in memory.
        start_from_epoch: Epochs before it do not count.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__()
        self._monitor = Monitor(monitor, mode, min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._begin()

    def _begin(self) -> None:
        self.best, self.best_epoch = self._monitor.worst, 0
        self.wait = self.stopped_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._begin()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        current = self._monitor.value(logs, self)
        if current is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self.best_weights = self.model.get_weights()  # in case that no epoch is any good
        self.wait += 1
        if self._monitor.is_better(current, self.best):
            self.best, self.best_epoch = current, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self._monitor.is_better(current, self.baseline):
                self.wait = 0
                return
        if self.wait >= self.patience and epoch > 0:
            self._stop(epoch)

    def _stop(self, epoch: int) -> None:
        self.stopped_epoch = epoch
        self.model.stop_training = True
        if self.best_weights is not None:
            if self.verbose:
                best = self.best_epoch + 1
                say(self.model, f"Restoring model weights from the end of the best epoch: {best}.")
            self.model.set_weights(self.best_weights)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose:
            say(self.model, f"Epoch {self.stopped_epoch + 1}: early stopping")


class TerminateOnNaN(Callback):
    """End training after the batch whose loss is no finite number.

    The loss is that of all workers' batches, so that all end together.
    """

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            say(self.model, f"Batch {batch}: Invalid loss, terminating training")
            self.model.stop_training = True
