"""What a task leaves beside checkpoints: its history, metrics for TensorBoard, the report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from ..observe import History
from ..strategies import get_strategy
from ..summary import FileWriter
from .hooks.recording import flush, write_report_of
from .run_config import RunConfig

_logger = logging.getLogger("paceline")

_STEPS_FOR_REPORT = 100


@final
class EvaluationRecords:
    """Writes down evaluations, each at its global step.

    Args:
        config: Whether summaries are written, where, and what this task is called.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        # An evaluator that looks at a thousand checkpoints leaves one file a directory.
        self._writers: dict[str, FileWriter] = {}
        self._latest: dict[str, tuple[int, dict[str, float]]] = {}

    def note(
        self, directory: str, name: str | None, results: Mapping[str, Any], path: str | None
    ) -> None:
        """Note what an evaluation found, unless the one before has found the same.

        Args:
            directory: That of its summaries: numbers as scalars, arrays as histograms, None not at
                all; of anything else a warning says that it is not shown.
            name: That of the evaluation, where there are several.
            results: As `Estimator.evaluate` returns them.
            path: The checkpoint, if one was evaluated: a text called checkpoint_path.
        """
        if not history_steps(self._config):
            return
        step = int(results["global_step"])
        metrics = {n: v for n, v in results.items() if n != "global_step" and v is not None}
        numbers = {n: float(v) for n, v in metrics.items() if _is_number(v)}
        if len(numbers) == len(metrics) and self._latest.get(directory) == (step, numbers):
            return
        self._latest[directory] = step, numbers
        if self._config.save_summary_steps:
            self._write(directory, step, metrics, path)
        history = history_of(self._config)
        history.note("evaluation", step=step, name=name or "", metrics=numbers)
        history.close()
        if self._config.report:
            write_report_of(str(self._config.model_dir))

    def _write(
        self, directory: str, step: int, metrics: Mapping[str, Any], path: str | None
    ) -> None:
        if directory not in self._writers:
            self._writers[directory] = FileWriter(directory)
        writer = self._writers[directory]
        for name, value in metrics.items():
            if _is_number(value):
                writer.scalar(name, value, step)
            elif isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
                writer.histogram(name, value, step)
            else:
                kind = type(value).__name__
                _logger.warning("The metric %r is not shown: it is of type %s.", name, kind)
        if path is not None:
            writer.text("checkpoint_path", path, step)
        flush(writer, is_last=True)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iufb"


def history_of(config: RunConfig) -> History:
    """That of this task, under the name that it has in the job."""
    strategy = config.train_distribute or get_strategy()
    task = f"worker-{strategy.extended.job.trainer_index}"
    if config.cluster_spec or config.task_type == "evaluator":
        task = f"{config.task_type}-{config.task_id}"
    return History(str(config.model_dir), task)


def history_steps(config: RunConfig) -> int:
    """The steps between two lines of a history; 0 where none is written."""
    return config.save_summary_steps or (_STEPS_FOR_REPORT if config.report else 0)
