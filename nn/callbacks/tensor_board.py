"""`TensorBoard`: the logs as event files, which TensorBoard shows."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from ...observe import log_once
from ...summary import FileWriter
from .callback import Callback, Logs
from .chief import is_chief

_VALIDATION = "val_"


class TensorBoard(Callback):
    """Write figures of epochs, and perhaps of batches, as summaries; the chief writes.

    Those of training go to `log_dir/train`, those of validation to `log_dir/validation`.

    Args:
        log_dir: A directory or URL.
        histogram_freq: Every how many epochs to write how the weights are distributed; 0: never.
        write_graph, write_images, profile_batch, embeddings_freq, embeddings_metadata: Have no
            effect, since there is no graph; the log says so where they ask for something.
        write_steps_per_second: Whether to write that of each epoch.
        update_freq: "epoch"; or "batch", or a number of batches after which to write figures, too.

    Raises:
        ValueError: Another `update_freq`.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: int | str = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
    ) -> None:
        super().__init__()
        frequency = 1 if update_freq == "batch" else update_freq
        if frequency != "epoch" and not (isinstance(frequency, int) and frequency > 0):
            raise ValueError(
                f"update_freq must be 'epoch', 'batch' or a positive number of batches, it is "
                f"{update_freq!r}"
            )
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq = histogram_freq
        self.write_steps_per_second = write_steps_per_second
        self._num_batches = None if isinstance(frequency, str) else frequency
        self._writers: dict[str, FileWriter] = {}
        self._step = self._first_step = 0
        self._began = 0.0
        asked = {
            "write_images": write_images,
            "profile_batch": profile_batch,
            "embeddings_freq": embeddings_freq,
        }
        for name in [name for name, value in asked.items() if value]:
            log_once(logging.WARNING, "TensorBoard(%s=...) has no effect in paceline.", name)

    def may_want_batch_logs(self) -> bool:
        return self._num_batches is not None

    def wants_batch_logs(self) -> bool:
        return self._num_batches is not None and (self._step + 1) % self._num_batches == 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._began, self._first_step = time.monotonic(), self._step

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step += 1
        if self._num_batches is not None and self._step % self._num_batches == 0:
            self._write(self._step, {f"batch_{name}": v for name, v in (logs or {}).items()})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        secs = time.monotonic() - self._began
        # The learning rate that other callbacks note has a name of its own.
        figures = {f"epoch_{name}": v for name, v in (logs or {}).items() if name != "lr"}
        figures["epoch_learning_rate"] = float(self.model.optimizer.learning_rate)
        if self.write_steps_per_second and secs > 0:
            figures["epoch_steps_per_second"] = (self._step - self._first_step) / secs
        self._write(epoch, figures)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_histograms(epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        for writer in self._writers.values():
            writer.close()

    def _write(self, step: int, figures: dict[str, Any]) -> None:
        if not is_chief(self.model):
            return
        for name, value in figures.items():
            kind, _, rest = name.partition("_")
            of_validation = rest.startswith(_VALIDATION)
            name = f"{kind}_{rest.removeprefix(_VALIDATION)}"
            self._writer("validation" if of_validation else "train").scalar(name, value, step)

    def _write_histograms(self, epoch: int) -> None:
        for weight in self.model.weights:
            # All workers read it: that of some is an aggregate of what all have.
            value = weight.numpy()
            if is_chief(self.model):
                self._writer("train").histogram(f"{weight.name}/histogram", value, epoch)

    def _writer(self, name: str) -> FileWriter:
        if name not in self._writers:
            path = f"{self.log_dir.rstrip('/')}/{name}"
            self._writers[name] = FileWriter(path)
        return self._writers[name]
