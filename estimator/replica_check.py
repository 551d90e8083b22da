"""`check_replicas`: whether a model learns on several replicas what it learns on one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np

from ..autodiff import is_array
from ..inputs import Dataset, nest
from ..strategies import DEFAULT_STRATEGY, Strategy, get_strategy, select_replica, to_host
from ..training import ModeKeys, SessionRunContext, SessionRunHook, SessionRunValues, count_examples
from .estimator import Estimator
from .input_function import batches_for_replicas


def check_replicas(
    estimator: Estimator, input_fn: Callable[..., Any], steps: int = 3, rtol: float = 1e-4
) -> list[float]:
    """Make a few steps on all replicas, and on one with the same examples; compare the losses.

    A loss that is no mean over the examples (a sum, or one that is divided by the global batch as
    in a custom loop) trains several replicas with gradients that are too large or too small, and
    nothing else shows it. Nothing is kept: both runs begin with initial values, elsewhere.

    Dropout and batch normalization (unless `synchronized=True`) differ between one replica and
    several by what they are; leave them out for the check.

    Args:
        estimator: Whose model, parameters and `train_distribute` are checked, in one process.
        input_fn: As for `Estimator.train`.
        steps: How many.
        rtol: By how much of itself a loss may differ: rounding does.

    Returns:
        The losses of the steps.

    Raises:
        ValueError: Losses differ, the strategy has several workers, or there is no data.
    """
    strategy = estimator.config.train_distribute or get_strategy()
    if strategy.extended.job.num_trainers > 1:
        raise ValueError(
            f"{strategy!r} has several workers; check the model in one process, under "
            f"MirroredStrategy(['CPU:0', 'CPU:1'])"
        )
    steps_taken = _batches(estimator, input_fn, strategy, steps)
    several = _losses(estimator, strategy, [part for parts in steps_taken for part in parts])
    one = _losses(estimator, DEFAULT_STRATEGY, [_joined(parts) for parts in steps_taken])
    for step, (found, expected) in enumerate(zip(several, one, strict=True), 1):
        if not math.isclose(found, expected, rel_tol=rtol):
            raise ValueError(
                f"the loss of step {step} is {found:.8g} on {len(steps_taken[0])} replicas and "
                f"{expected:.8g} on one with the same examples; the loss that model_fn returns has "
                f"to be the mean over the examples of its batch, as np.mean(losses) is"
            )
    return several


def _batches(
    estimator: Estimator, input_fn: Callable[..., Any], strategy: Strategy, steps: int
) -> list[Sequence[Any]]:
    """The batches of each step, one for each replica; steps in which one has none are left out."""
    num_replicas = strategy.num_replicas_in_sync
    batches = batches_for_replicas(
        input_fn, strategy, ModeKeys.TRAIN, estimator.params, estimator.config
    )
    with closing(batches):
        taken = [
            [
                nest.map_structure(_on_host, select_replica(batch, index, num_replicas))
                for index in range(num_replicas)
            ]
            for batch in islice(batches, steps)
        ]
    whole: list[Sequence[Any]] = [
        parts for parts in taken if all(count_examples(part) for part in parts)
    ]
    if not whole:
        raise ValueError("input_fn gave no batch for each replica; let it give more data")
    return whole


def _joined(parts: Sequence[Any]) -> Any:
    return nest.map_structure(lambda *leaves: np.concatenate(leaves), *parts)


def _on_host(leaf: Any) -> Any:
    """An array that was uploaded for a replica, as an input_fn gives it."""
    return to_host(leaf) if is_array(leaf) else leaf


def _losses(estimator: Estimator, strategy: Strategy, batches: Sequence[Any]) -> list[float]:
    """Those of a trial with these batches."""
    hook = _Losses()
    train_on_trial(estimator, strategy, lambda: Dataset.from_generator(lambda: iter(batches)), hook)
    return hook.losses


def train_on_trial(
    estimator: Estimator,
    strategy: Strategy,
    input_fn: Callable[..., Any],
    hook: SessionRunHook,
    steps: int | None = None,
) -> None:
    """Train the model from initial values, in a place of its own, and keep nothing of it."""
    with tempfile.TemporaryDirectory(prefix="paceline-trial-") as path:
        config = estimator.config.replace(
            model_dir=path,
            train_distribute=strategy,
            experimental_distribute=None,
            tf_random_seed=estimator.config.tf_random_seed or 0,
            save_checkpoints_secs=None,
            save_checkpoints_steps=None,
            save_summary_steps=0,
            log_step_count_steps=None,
        )
        trial = Estimator(estimator.model_fn, config=config, params=estimator.params or None)
        trial.train(input_fn, hooks=[hook], steps=steps)


class _Losses(SessionRunHook):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        loss = run_context.session.loss
        assert loss is not None
        self.losses.append(loss)
