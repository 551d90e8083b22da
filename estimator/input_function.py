"""From a user's `input_fn` to one batch for each replica and step."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..inputs import (
    Dataset,
    DatasetIterator,
    InputContext,
    default_seed,
    stand_ins_for_elements,
)
from ..nn.layers import symbolic_in
from ..strategies import Strategy, StrategyExtended
from ..training import ModeKeys
from .model_function import chosen_arguments
from .run_config import RunConfig
from .stand_ins import StandIns

_logger = logging.getLogger("paceline")


def batches_for_replicas(
    input_fn: Callable[..., Any],
    strategy: Strategy,
    mode: ModeKeys,
    params: dict[str, Any] | None,
    config: RunConfig,
) -> DatasetIterator:
    """An iterator of one batch per replica and step, as `input_fn` gives them; to be closed.

    Args:
        input_fn: Names of mode, params, config and input_context what it needs. Returns a `Dataset`
            of batches, each for one replica; or what it made of `iterator.get_next()`. With a
            single replica it may return one batch, (features, labels), to use in every step.

    Raises:
        ValueError: It returned something else.
    """
    names = chosen_arguments(input_fn, "input_fn", ("mode", "params", "config", "input_context"))
    given: dict[str, Any] = {"mode": mode, "params": params, "config": config}

    def dataset_fn(context: InputContext) -> Dataset:
        arguments = {name: value for name, value in given.items() if name in names}
        if "input_context" in names:
            arguments["input_context"] = context
        stand_ins = StandIns()
        with stand_ins_for_elements(stand_ins.make):
            result = input_fn(**arguments)
        if symbolic_in(result):
            return stand_ins.dataset_of(result)
        return _as_dataset(result, context.num_replicas_in_sync)

    num_workers = strategy.extended.job.num_trainers
    if mode is ModeKeys.TRAIN and num_workers > 1 and "input_context" not in names:
        _logger.warning(
            "input_fn does not ask for input_context, so each of %d workers trains on what it "
            "gives; shard by input_context.num_input_pipelines and .input_pipeline_id if all read "
            "the same data.",
            num_workers,
        )
    with default_seed(config.tf_random_seed):
        return strategy.distribute_datasets_from_function(dataset_fn).own_steps()


def continue_input(
    batches: DatasetIterator,
    states: Sequence[dict[str, Any]],
    extended: StrategyExtended,
    first_step: int,
) -> None:
    """Go on where an interrupted run stopped, on all workers, or begin anew on all of them.

    Args:
        batches: This worker's input, at its beginning.
        states: Of all workers of that run; none where it was not interrupted.
        extended: That of the strategy of this run; all its workers call this.
        first_step: The global step that this run begins with.
    """
    own = extended.job.latest_input_state()
    if own:  # this worker has been away, and the job has gone on
        batches.set_state(json.loads(own))
        _logger.info("The input goes on where this worker left it.")
        return
    if not states:
        return
    beginning = batches.get_state()
    problem = _try_to_continue(batches, states, extended.job.trainer_index)
    problems = [p for p in extended.workers.texts(problem, "how the input goes on") if p]
    if problems:
        batches.set_state(beginning)
    if first_step == 0:  # that run has not used any of it; what was drawn (seeds) stays the same
        return
    if problems:
        _logger.warning(
            "The input begins anew, and not where the last run stopped: %s", problems[0]
        )
    else:
        _logger.info("The input goes on where the last run stopped.")


def _try_to_continue(
    batches: DatasetIterator, states: Sequence[dict[str, Any]], worker_index: int
) -> str:
    """Move on; return why that is not possible, or an empty text."""
    try:
        batches.set_states(states, worker_index)
    except ValueError as error:
        return str(error)
    place = batches.get_state()
    if next(batches, None) is None:
        return f"nothing is left of it on worker {worker_index}"
    batches.set_state(place)
    return ""


class UnreadInput:
    """What calls of `train` leave of their input: calls that follow begin anew, and miss it."""

    def __init__(self) -> None:
        self._left: dict[str, Any] | None = None
        self._has_warned = False

    def note(self, batches: DatasetIterator) -> None:
        """Remember where a call of `train` has left its input."""
        self._left = batches.get_state() if batches.is_in_first_pass else None

    def warn_of(self, batches: DatasetIterator) -> None:
        """Warn, once, where the next call begins the same input anew."""
        left = self._left
        if left is None or self._has_warned or left["dataset"] != batches.get_state()["dataset"]:
            return
        self._has_warned = True
        _logger.warning(
            "The input begins anew, though the last call of train ended after %d steps, before one "
            "pass over it: what comes later is never read if each call ends like that. Train "
            "in one call, or evaluate in between with train_and_evaluate, which goes on.",
            left["given"],
        )


def _as_dataset(result: Any, num_replicas: int) -> Dataset:
    if isinstance(result, Dataset):
        return result
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    if is_pair or isinstance(result, np.ndarray | dict):
        if num_replicas > 1:
            raise ValueError(
                f"input_fn returned arrays and no Dataset, so that each of {num_replicas} replicas "
                f"would compute the same; return Dataset.from_tensor_slices(...).batch(...)"
            )
        return Dataset.from_tensors(tuple(result) if is_pair else result).repeat()
    raise ValueError(
        f"input_fn must return a Dataset, or one batch as (features, labels), it returned "
        f"{result!r}; make a Dataset with paceline.Dataset.from_tensor_slices(...).batch(...)"
    )
