"""The hooks that take part in a training run without being asked, as its `RunConfig` says."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from ..cluster import restart_count
from ..strategies import Job, Strategy, StrategyExtended
from ..summary import FileWriter
from ..training import SessionRunHook
from .hooks import (
    CheckpointSaverListener,
    CheckpointWriter,
    HistoryHook,
    LoggingTensorHook,
    ProfilerHook,
    RunSaver,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from .records import history_of, history_steps
from .run_config import RunConfig

_NOTED_CHARACTERS: Final = 200
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def saving(
    config: RunConfig,
    job: Job,
    writer: CheckpointWriter,
    listeners: Sequence[CheckpointSaverListener],
    first_step: int,
    last_step: int | None,
) -> RunSaver:
    """What saves; on every worker, since all have a part in it. The chief decides when."""
    return RunSaver(
        str(config.model_dir),
        writer,
        config.save_checkpoints_secs,
        config.save_checkpoints_steps,
        listeners,
        decides=job.is_chief,
        first_step=first_step,
        last_step=last_step,
    )


def reporting(config: RunConfig, extended: StrategyExtended) -> list[SessionRunHook]:
    """What writes log lines, and summaries for TensorBoard."""
    every, summaries_every = config.log_step_count_steps, config.save_summary_steps
    hooks: list[SessionRunHook] = []
    writer = FileWriter(str(config.model_dir)) if summaries_every else None
    if every is not None:
        hooks.append(StepCounterHook(every, summary_writer=writer))
    if summaries_every:
        hooks.append(
            SummarySaverHook(
                summaries_every, summary_writer=writer, gradient_norm=config.log_gradient_norm
            )
        )
    if every is not None:
        names = {name: name for name in ("loss", "step", *extended.figures)}
        hooks.append(LoggingTensorHook(names, every_n_iter=every))
    return hooks


def recording(
    config: RunConfig,
    strategy: Strategy,
    params: Mapping[str, Any],
    saver: RunSaver,
    last_step: int | None,
    held: ExitStack,
) -> list[SessionRunHook]:
    """What notes history and timelines in `model_dir`, on every worker that sees it.

    A worker without the chief's files does not make a directory of its own for that.

    Args:
        params: Those of the Estimator, which are noted too.
        held: Closed with the error that ends the run, if one does.
    """
    every, model_dir = history_steps(config), str(config.model_dir)
    is_chief = strategy.extended.job.is_chief
    if not (is_chief or "://" in model_dir or os.path.isdir(model_dir)):
        return []
    hooks: list[SessionRunHook] = []
    if every:
        about = _about(config, strategy, params, last_step)
        report_dir = model_dir if config.report and is_chief else None
        history = HistoryHook(history_of(config), every, about, saver, report_dir)
        hooks.append(held.enter_context(history))
    if config.profile_steps:
        hooks.append(ProfilerHook(output_dir=model_dir, steps=config.profile_steps))
    return hooks


def _about(
    config: RunConfig, strategy: Strategy, params: Mapping[str, Any], last_step: int | None
) -> dict[str, Any]:
    """What the history says of a run at its beginning."""
    extended = strategy.extended
    return {
        "task": f"{config.task_type} {config.task_id}",
        "is_chief": extended.job.is_chief,
        "last_step": last_step,
        "num_workers": extended.job.num_trainers,
        "num_local_replicas": extended.num_local_replicas,
        "strategy": repr(strategy),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "restart": restart_count(os.environ),
        "config": {name: repr(getattr(config, name)) for name in type(config).model_fields},
        "params": {str(name): _noted(value) for name, value in params.items()},
    }


def _noted(value: Any) -> Any:
    """A parameter as the history holds it: as it is where it is short JSON, else its begin."""
    try:
        if len(json.dumps(value)) <= _NOTED_CHARACTERS:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    text = _ADDRESS.sub("", repr(value))  # which differs from run to run
    return text if len(text) <= _NOTED_CHARACTERS else f"{text[:_NOTED_CHARACTERS]}…"


def ending(last_step: int | None) -> list[SessionRunHook]:
    """What ends the run at its last step, if it has one."""
    return [] if last_step is None else [StopAtStepHook(last_step=last_step)]
