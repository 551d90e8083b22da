"""`ModelCheckpoint`: saves the model while it is trained."""

from __future__ import annotations

import os
import string
from typing import Any

from ..arguments import check_no_options
from .callback import Callback, Logs
from .chief import say
from .monitor import Monitor


class ModelCheckpoint(Callback):
    """Save the model, or its weights, after epochs or after numbers of batches.

    What is saved is loaded with `nn.load_model`, or with `Model.load_weights`. On several workers
    the chief writes.

    Args:
        filepath: Where to. It may name the epoch (from 1), the batch and figures of the logs, as in
            "ckpt-{epoch:02d}-{val_loss:.2f}"; else each save replaces the one before.
        monitor: The figure that says which is best.
        verbose: 1 to say what is saved.
        save_best_only: Whether to save only where the figure has become better.
        save_weights_only: Whether to leave out what the model is made of, and the optimizer.
        mode: "min", "max" or "auto"; see `Monitor`.
        save_freq: "epoch", or a number of batches.
        options: Only None is supported; see `Model.save`.
        initial_value_threshold: What the figure must be better than at first.

    Raises:
        ValueError: Another `save_freq`; `options` are given; or `filepath` is the name of an HDF5
            file.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: int | str = "epoch",
        options: None = None,
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__()
        is_number = isinstance(save_freq, int) and not isinstance(save_freq, bool)
        if save_freq != "epoch" and not (is_number and int(save_freq) > 0):
            raise ValueError(
                f"save_freq must be 'epoch' or a positive number of batches, it is {save_freq!r}"
            )
        check_no_options(options)
        self.filepath = os.fspath(filepath)
        if self.filepath.lower().endswith((".h5", ".hdf5")):
            raise ValueError(
                f"filepath '{self.filepath}' is the name of an HDF5 file, and paceline saves "
                f"models as directories: leave the ending out"
            )
        self._monitor = Monitor(monitor, mode)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.best = (
            self._monitor.worst if initial_value_threshold is None else initial_value_threshold
        )
        self._num_batches = int(save_freq) if is_number else None
        self._since_save = 0
        self._epoch = 0
        # The names in the path that are figures of the logs.
        fields = {name for _, name, _, _ in string.Formatter().parse(self.filepath) if name}
        self._reads_logs = save_best_only or bool(fields - {"epoch", "batch"})

    def may_want_batch_logs(self) -> bool:
        return self._num_batches is not None and self._reads_logs

    def wants_batch_logs(self) -> bool:
        is_next = self._num_batches is not None and self._since_save + 1 >= self._num_batches
        return is_next and self._reads_logs

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._since_save += 1
        if self._num_batches is not None and self._since_save >= self._num_batches:
            self._since_save = 0
            self._save({"batch": batch + 1, **(logs or {})})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch
        if self._num_batches is None:
            self._save(logs or {})

    def _save(self, logs: dict[str, Any]) -> None:
        path, begin = self._path(logs), f"\nEpoch {self._epoch + 1}: "
        if not self.save_best_only:
            self._say(f"{begin}saving model to {path}")
        else:
            name, current = self._monitor.name, self._monitor.value(logs, self)
            if current is None:
                return
            if not self._monitor.is_better(current, self.best):
                self._say(f"{begin}{name} did not improve from {self.best:.5f}")
                return
            change = f"{name} improved from {self.best:.5f} to {current:.5f}"
            self._say(f"{begin}{change}, saving model to {path}")
            self.best = current
        (self.model.save_weights if self.save_weights_only else self.model.save)(path)

    def _path(self, logs: dict[str, Any]) -> str:
        try:
            return self.filepath.format(epoch=self._epoch + 1, **logs)
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(
                f"filepath '{self.filepath}' of ModelCheckpoint cannot be filled in ({error!r}); "
                f"there are epoch, {', '.join(logs)}"
            ) from error

    def _say(self, text: str) -> None:
        if self.verbose:
            say(self.model, text)
