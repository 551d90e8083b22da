"""Callbacks that set the learning rate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

from .callback import Callback, Logs
from .chief import number_of_chief, say
from .monitor import Monitor


class LearningRateScheduler(Callback):
    """Set the learning rate at the beginning of each epoch.

    Where several workers make all steps together the chief's rate holds for all.

    Args:
        schedule: `schedule(epoch, learning_rate)` or `schedule(epoch)`: the rate of the epoch;
            epochs count from 0.
        verbose: 1 to say it.
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule = schedule
        self.verbose = verbose
        self._takes_rate = len(inspect.signature(schedule).parameters) > 1

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        rate = self.model.optimizer.learning_rate
        found = self.schedule(epoch, float(rate)) if self._takes_rate else self.schedule(epoch)
        set_learning_rate(self, found)
        if self.verbose:
            say(
                self.model,
                f"\nEpoch {epoch + 1}: LearningRateScheduler setting learning rate to {found}.",
            )

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)


class ReduceLROnPlateau(Callback):
    """Lower the learning rate where a figure has stopped becoming better.

    Args:
        monitor: The figure.
        factor: By what the rate is multiplied; below 1.
        patience: After how many epochs without a better one.
        verbose: 1 to say so.
        mode: "min", "max" or "auto"; see `Monitor`.
        min_delta: By how much it must become better.
        cooldown: How many epochs after that do not count.
        min_lr: The lowest rate.

    Raises:
        ValueError: `factor` is 1 or more.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= factor < 1:
            raise ValueError(f"factor must be at least 0 and below 1, it is {factor}")
        self._monitor = Monitor(monitor, mode, min_delta)
        self.factor = factor
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self.min_lr = min_lr
        self._begin()

    def _begin(self) -> None:
        self.best, self.wait, self.cooldown_counter = self._monitor.worst, 0, 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._begin()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        rate = float(self.model.optimizer.learning_rate)
        if logs is not None:
            logs["lr"] = rate
        current = self._monitor.value(logs, self)
        if current is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self._monitor.is_better(current, self.best):
            self.best, self.wait = current, 0
        elif self.cooldown_counter <= 0:
            self.wait += 1
            if self.wait >= self.patience and rate > self.min_lr:
                self._reduce(epoch, rate)

    def _reduce(self, epoch: int, rate: float) -> None:
        new = max(rate * self.factor, self.min_lr)
        set_learning_rate(self, new)
        if self.verbose:
            say(
                self.model,
                f"\nEpoch {epoch + 1}: ReduceLROnPlateau reducing learning rate to {new}.",
            )
        self.cooldown_counter, self.wait = self.cooldown, 0


def set_learning_rate(callback: Callback, rate: float) -> None:
    """Let the model's optimizer have the chief's rate from the next step on.

    Raises:
        ValueError: It is no finite number, or negative.
    """
    if not isinstance(rate, (int, float)) and not hasattr(rate, "__float__"):
        raise ValueError(
            f"{type(callback).__name__}: a learning rate must be a number, it is {rate!r}"
        )
    agreed = number_of_chief(callback.model, float(rate), "learning rate")
    if not math.isfinite(agreed) or agreed < 0:
        raise ValueError(
            f"{type(callback).__name__}: a learning rate must be a finite number, at least 0, it "
            f"is {agreed}"
        )
    callback.model.optimizer.learning_rate = agreed
