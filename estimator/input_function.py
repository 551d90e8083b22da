"""From a user's `input_fn` to what each replica computes with in a step."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..inputs import Dataset, DatasetIterator, InputContext, default_seed
from ..strategies import (
    PerReplica,
    ReplicaContext,
    Strategy,
    StrategyExtended,
    placed,
    select_replica,
)
from .model_function import chosen_arguments, count_examples
from .run_config import RunConfig
from .specs import ModeKeys

_logger = logging.getLogger("paceline")

_NOTHING_SPECIAL = nullcontext()

_ADVICE = " A learning rate that was tuned for one replica's batch may be scaled with that."


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
            of batches, each for one replica. With a single replica it may return one batch,
            (features, labels), to use in every step.

    Raises:
        ValueError: It returned something else.
    """
    names = chosen_arguments(input_fn, "input_fn", ("mode", "params", "config", "input_context"))
    given: dict[str, Any] = {"mode": mode, "params": params, "config": config}

    def dataset_fn(context: InputContext) -> Dataset:
        arguments = {name: value for name, value in given.items() if name in names}
        if "input_context" in names:
            arguments["input_context"] = context
        return _as_dataset(input_fn(**arguments), context.num_replicas_in_sync)

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


def log_batch_sizes(num_examples: int, strategy: Strategy) -> None:
    """Say which meaning a batch has: what `input_fn` gives is what one replica takes.

    Args:
        num_examples: How many examples all replicas in sync, of all workers, took in the first
            step.
    """
    context = strategy.input_context()
    _logger.info(
        "Input: each batch goes to one replica; shard %d of %d, %d replica(s) in sync, "
        "global batch %d in the first step.%s",
        context.input_pipeline_id,
        context.num_input_pipelines,
        context.num_replicas_in_sync,
        num_examples,
        _ADVICE if context.num_replicas_in_sync > 1 else "",
    )


def require_data(first_batch: Any, strategy: Strategy, purpose: str = "") -> None:
    """Refuse to begin where a worker has no example at all: it could not even build the model.

    Args:
        first_batch: This worker's first with an example; None for none.
        strategy: That of the run; all its workers call this.
        purpose: What the batch was for, for the error.

    Raises:
        ValueError: On all workers, if one has no example.
    """
    has_data = int(first_batch is not None)
    have_data = strategy.extended.workers.gather_numbers(has_data, f"first batch{purpose}")
    without = [f"worker {i}" for i, has in enumerate(have_data) if not has]
    if without:
        who = "" if len(have_data) == 1 else f" on {', '.join(without)} of {len(have_data)}"
        raise ValueError(
            f"input_fn gave no batch{purpose}{who}: the dataset is empty. Check the files or "
            f"arrays that it reads and that no filter, take or shard leaves nothing over"
        )


@dataclass(slots=True)
class ReplicaBatch:
    """What one replica computes with.

    Args:
        batch: Its batch; one that stands in for it where it has no examples.
        num_examples: How many of them count: none of a batch that stands in.
    """

    batch: Any
    num_examples: int

    def taken_by(self, replica: ReplicaContext) -> AbstractContextManager[object]:
        """In the block `replica` computes with it; see `ReplicaContext.stand_in`."""
        if self.num_examples:
            return _NOTHING_SPECIAL
        replica.stand_in()
        return np.errstate(all="ignore")  # nobody uses these numbers


@final
class ReplicaBatches:
    """Gives each replica of this worker something to compute with, in every step.

    A replica without examples runs the model on another's: on those of a replica of this worker
    which has some in the same step, or else on those of the last step that had any. So all replicas
    of all workers make the same calls in the same order, whatever their models exchange, and create
    the same variables. What comes of it weighs nothing.

    Args:
        strategy: Whose replicas they are.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._devices = strategy.extended.replica_devices
        self._latest: Any = None

    def of_step(self, batches: Any) -> Any:
        """A `ReplicaBatch` for each local replica, as `Strategy.run` takes them.

        Args:
            batches: What the input gives for the step, for each replica a batch that may be empty;
                None where it has ended. The first one is not empty for all.
        """
        parts = replica_parts(batches, len(self._devices))
        sizes = [count_examples(part) for part in parts] or [0] * len(self._devices)
        full = next((part for part, size in zip(parts, sizes, strict=False) if size), None)
        self._latest = self._latest if full is None else full
        assert self._latest is not None, "who never had an example does not begin"
        chosen = [
            ReplicaBatch(parts[index], size)
            if size
            else ReplicaBatch(placed(self._latest, self._devices[index]), 0)
            for index, size in enumerate(sizes)
        ]
        return chosen[0] if len(chosen) == 1 else PerReplica(chosen)


def first_with_examples(batches: Iterable[Any], num_replicas: int) -> Any:
    """The first batch that is not empty for all replicas of this worker; None if there is none.

    It is the one from which a model can be built.
    """
    for batch in batches:
        if any(count_examples(part) for part in replica_parts(batch, num_replicas)):
            return batch
    return None


def replica_parts(batches: Any, num_replicas: int) -> list[Any]:
    """The batch of each local replica; an empty list where there is none for any."""
    if batches is None:
        return []
    if num_replicas == 1:  # the only one gets all as it is
        return [batches]
    return [select_replica(batches, index, num_replicas) for index in range(num_replicas)]
