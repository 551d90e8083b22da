"""The hooks that take part in a training run without being asked, as its `RunConfig` says."""

from __future__ import annotations

from collections.abc import Sequence

from ..strategies import Job, StrategyExtended
from .hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    CheckpointWriter,
    LoggingTensorHook,
    StepCounterHook,
    StopAtStepHook,
)
from .run_config import RunConfig
from .session import SessionRunHook


def saving(
    config: RunConfig,
    job: Job,
    writer: CheckpointWriter,
    listeners: Sequence[CheckpointSaverListener],
    first_step: int,
    last_step: int | None,
) -> CheckpointSaverHook:
    """What saves; on every worker, since all have a part in it. The chief decides when."""
    return CheckpointSaverHook(
        writer,
        config.save_checkpoints_secs,
        config.save_checkpoints_steps,
        listeners,
        decides=job.is_chief,
        first_step=first_step,
        last_step=last_step,
    )


def reporting(config: RunConfig, extended: StrategyExtended) -> list[SessionRunHook]:
    """What writes the log lines."""
    every = config.log_step_count_steps
    if every is None:
        return []
    names = {name: name for name in ("loss", "step", *extended.figures)}
    return [StepCounterHook(every), LoggingTensorHook(names, every_n_iter=every)]


def ending(last_step: int | None) -> list[SessionRunHook]:
    """What ends the run at its last step, if it has one."""
    return [] if last_step is None else [StopAtStepHook(last_step=last_step)]
