"""`explain`: what a run will do, in words, before it runs; and what its steps take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from ..checkpoint import latest_checkpoint, load
from ..strategies import DEFAULT_STRATEGY, Strategy, get_strategy
from ..training import SessionRunContext, SessionRunHook, SessionRunValues
from .estimator import Estimator
from .hooks.reporting import counted
from .replica_check import train_on_trial
from .run_config import RunConfig

_WARM_UP_STEPS: Final = 3

_ADVICE: Final[Mapping[str, str]] = {
    "input": "the model waits for its data: prefetch, map several elements at a time, or cache",
    "forward": "the model's arithmetic is the limit: more devices or a smaller model help",
    "backward": "the model's arithmetic is the limit: more devices or a smaller model help",
    "communication": "replicas wait for each other: larger batches, or fewer replicas, help",
    "update": "changing variables is the limit: larger batches make fewer updates of the same data",
    "other": "hooks and Python between the parts of a step are the limit: larger batches help",
}
"""What helps where most of a step goes to a phase."""


def explain(
    estimator: Estimator, input_fn: Callable[..., Any] | None = None, steps: int = 20
) -> str:
    """What training will do as it is configured; with data also how fast, and what limits it.

    Args:
        estimator: Whose configuration, strategy and `model_dir`.
        input_fn: As for `Estimator.train`. With it some steps are made, in one process, from
            initial values and elsewhere, on all replicas and on one: nothing is kept of them.
        steps: How many to measure.

    Returns:
        A line for each thing, and with data the time of a step by phase and what is likely to help.

    Raises:
        ValueError: Steps are to be measured of a job of several processes.
    """
    config = estimator.config
    strategy = config.train_distribute or get_strategy()
    rows = {
        "model_dir": _beginning(estimator.model_dir),
        "task": _task(config, strategy),
        "variables": _variables(config, strategy),
        "batches": _batches(strategy),
        "saves": _saves(config),
        "log": _log(config),
        "evaluation": _evaluation(config, strategy),
    }
    if input_fn is not None:
        rows |= _measured(estimator, strategy, input_fn, steps)
    return "\n".join(f"{name:11} {text}" for name, text in rows.items())


def _beginning(model_dir: str) -> str:
    newest = latest_checkpoint(model_dir)
    where = "at step 0" if newest is None else f"after step {load(newest).step}, with {newest}"
    return f"{model_dir}; training begins {where}"


def _task(config: RunConfig, strategy: Strategy) -> str:
    extended = strategy.extended
    return (
        f"{config.task_type} {config.task_id} of {extended.job.num_trainers} that train, under "
        f"{strategy!r} with {counted(extended.num_local_replicas, 'replica')} here"
    )


def _variables(config: RunConfig, strategy: Strategy) -> str:
    extended = strategy.extended
    remote = extended.remote_storage
    if remote is None:
        devices = [device.rpartition("device:")[2] for device in extended.parameter_devices]
        return f"a copy on each of {', '.join(devices)}"
    waits = "make each step together" if remote.averages_workers else "do not wait for each other"
    return f"on {counted(config.num_ps_replicas, 'parameter server')}; workers {waits}"


def _batches(strategy: Strategy) -> str:
    num_replicas, context = strategy.num_replicas_in_sync, strategy.input_context()
    shard = (
        f"; this worker reads shard {context.input_pipeline_id} of {context.num_input_pipelines}, "
        f"if input_fn shards by input_context"
    )
    several = shard if context.num_input_pipelines > 1 else ""
    return (
        f"each batch of input_fn goes to one replica: a step takes {num_replicas} of them, whose "
        f"gradients are averaged over all examples{several}"
    )


def _saves(config: RunConfig) -> str:
    every = "at the beginning and the end"
    if config.save_checkpoints_steps is not None:
        every = f"every {config.save_checkpoints_steps} steps, {every}"
    elif config.save_checkpoints_secs is not None:
        every = f"every {config.save_checkpoints_secs:g} s, {every}"
    keeps = f"the last {config.keep_checkpoint_max}" if config.keep_checkpoint_max else "all"
    best = config.keep_checkpoint_best
    kept_best = "" if best is None else f" and the best {config.keep_checkpoint_best_max} by {best}"
    writer = "each worker a part" if config.save_checkpoints_sharded else "by the chief"
    return f"{every}, {writer}; keeps {keeps}{kept_best}"


def _log(config: RunConfig) -> str:
    every, summaries = config.log_step_count_steps, config.save_summary_steps
    lines = "no lines" if every is None else f"loss and steps/s every {every} steps"
    return f"{lines}; " + (f"summaries every {summaries} steps" if summaries else "no summaries")


def _evaluation(config: RunConfig, strategy: Strategy) -> str:
    if config.task_info.has_evaluator:
        return "train_and_evaluate leaves it to the evaluator of the cluster"
    if not strategy.extended.job.has_chief_in_step:
        return "train_and_evaluate leaves it to the chief"
    under = repr(config.eval_distribute or get_strategy())
    return f"train_and_evaluate evaluates between two steps, under {under}"


def _measured(
    estimator: Estimator, strategy: Strategy, input_fn: Callable[..., Any], steps: int
) -> dict[str, str]:
    if strategy.extended.job.num_trainers > 1:
        raise ValueError(
            f"{strategy!r} has several workers, whose steps cannot be tried in one process; leave "
            f"input_fn out, or measure under MirroredStrategy(['CPU:0', 'CPU:1'])"
        )
    found = _steps_of(estimator, strategy, input_fn, steps)
    if not found.num_steps:
        return {"a step": f"not measured: input_fn gave fewer than {_WARM_UP_STEPS + 2} batches"}
    rows = {"a step": found.speed()}
    num_replicas = strategy.num_replicas_in_sync
    if num_replicas > 1:
        one = _steps_of(estimator, DEFAULT_STRATEGY, input_fn, steps)
        gain = found.examples_per_sec / one.examples_per_sec
        pays = "" if gain > 1 else "; they do not pay here: fewer of them are faster"
        rows["one replica"] = (
            f"{one.speed()}: {num_replicas} replicas are {gain:.2f} times as fast{pays}"
        )
    largest = max(found.secs, key=found.secs.__getitem__)
    rows["phases"] = found.phases()
    rows["limit"] = f"{largest}: {_ADVICE.get(largest, 'see the phases')}"
    return rows


def _steps_of(
    estimator: Estimator, strategy: Strategy, input_fn: Callable[..., Any], steps: int
) -> _Steps:
    found = _Steps()
    train_on_trial(estimator, strategy, input_fn, found, steps=_WARM_UP_STEPS + steps)
    return found


@final
class _Steps(SessionRunHook):
    """Measures steps, but for the first ones.

    Attributes:
        num_steps, num_examples: How many were measured, and how many examples of all replicas.
        total_secs: The time that they took.
        secs: The same by phase.
    """

    def __init__(self) -> None:
        self.num_steps = self.num_examples = 0
        self.total_secs = 0.0
        self.secs: Counter[str] = Counter()
        self._num_seen = 0
        self._began = 0.0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session, now = run_context.session, time.perf_counter()
        self._num_seen += 1
        if self._num_seen <= _WARM_UP_STEPS:
            self._began, self._before = now, Counter(session.stopwatches[0].read())
            return
        self.num_steps += 1
        self.num_examples += session.num_examples
        self.total_secs = now - self._began
        self.secs = Counter(session.stopwatches[0].read())
        self.secs.subtract(self._before)

    @property
    def examples_per_sec(self) -> float:
        return self.num_examples / self.total_secs

    def speed(self) -> str:
        """The time of a step and the examples per second."""
        millis = self.total_secs * 1e3 / self.num_steps
        examples = self.num_examples / self.num_steps
        return f"{millis:.2f} ms for {examples:g} examples ({self.examples_per_sec:.0f} a second)"

    def phases(self) -> str:
        """The shares of the phases, largest first."""
        whole = sum(self.secs.values())
        return ", ".join(f"{name} {secs / whole:.0%}" for name, secs in self.secs.most_common())
