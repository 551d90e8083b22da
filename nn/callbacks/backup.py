"""`BackupAndRestore`: a run that was interrupted goes on where it stood."""

from __future__ import annotations

import os

from .callback import Callback, Logs
from .chief import say


class BackupAndRestore(Callback):
    """Save where `fit` stands, and go on from there when it is called again after an interruption.

    What goes on has the weights, the optimizer's state and learning rate, and the place in the
    data that it would have had: an epoch that is gone on with in its midst makes the batches that
    are left, where the dataset can say where it stands, or skips those that were made. The figures
    of that epoch are those of its rest. On several workers the chief writes.

    Args:
        backup_dir: A directory or URL, for this run alone and shared by all workers.
        save_freq: "epoch", or a number of batches; then after each epoch as well.
        delete_checkpoint: Whether to remove the backup when `fit` has ended in order. If not, a
            further `fit` with as many epochs has nothing left to do.
        save_before_preemption: Whether to save also when the run is asked to end, by SIGTERM or
            Ctrl-C to any worker: not a batch is then made again.

    Raises:
        ValueError: Another `save_freq`.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: int | str = "epoch",
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
    ) -> None:
        super().__init__()
        is_number = isinstance(save_freq, int) and not isinstance(save_freq, bool)
        if save_freq != "epoch" and not (is_number and int(save_freq) > 0):
            raise ValueError(
                f"save_freq must be 'epoch' or a positive number of batches, it is {save_freq!r}"
            )
        self._path = f"{os.fspath(backup_dir).rstrip('/')}/backup"
        self._num_batches = int(save_freq) if is_number else None
        self.delete_checkpoint = delete_checkpoint
        self.save_before_preemption = save_before_preemption
        self._epoch = self._batch = self._since_save = 0

    def may_want_batch_logs(self) -> bool:
        return False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._since_save = 0
        found = self.model.restore_backup(self._path)
        if found is not None:
            epoch, batch = found["epoch"], found["batch"]
            say(self.model, f"Restored '{self._path}': epoch {epoch + 1}, behind batch {batch}.")
            self.model.begin_at(epoch, batch, found["inputs"])

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch, self._batch = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batch = batch + 1
        self._since_save += 1
        if self._num_batches is not None and self._since_save >= self._num_batches:
            self._since_save = 0
            self._save(self._epoch, self._batch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._save(epoch + 1, 0)

    def on_train_interrupted(self) -> None:
        if self.save_before_preemption:
            self._save(self._epoch, self._batch)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.delete_checkpoint:
            self.model.delete_backup(self._path)

    def _save(self, epoch: int, batch: int) -> None:
        inputs = self.model.training_session.input_states()
        self.model.back_up(self._path, {"epoch": epoch, "batch": batch, "inputs": inputs})
