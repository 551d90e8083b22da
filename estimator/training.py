"""One training run: the loop, the step, and what hooks see of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..inputs import nest
from ..nn.optimizers import make_step
from ..strategies import (
    PerReplica,
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
)
from .hooks import (
    NO_VALUES,
    NanTensorHook,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .input_function import log_batch_sizes
from .model_function import ModelFunction, count_examples, split_features_and_labels
from .specs import EstimatorSpec, ModeKeys

_logger = logging.getLogger("paceline")


@dataclass(slots=True)
class ReplicaLoss:
    """The mean loss of one replica's examples, and how many they were."""

    value: float
    num_examples: int

    @classmethod
    def of(cls, spec: EstimatorSpec | None, num_examples: int) -> ReplicaLoss:
        """The loss of a batch; of no weight where there was none."""
        if spec is None or spec.loss is None:
            return cls(0.0, 0)
        return cls(spec.loss.item(), num_examples)


def mean_loss(losses: Sequence[ReplicaLoss]) -> float:
    """The mean over all examples. A single replica's loss comes through untouched."""
    taking_part = [loss for loss in losses if loss.num_examples]
    if len(taking_part) == 1:
        return taking_part[0].value
    total = sum(loss.value * loss.num_examples for loss in taking_part)
    return total / sum(loss.num_examples for loss in taking_part)


class TrainingSession:
    """The state of a training run.

    Args:
        model: What to train.
        strategy: How to distribute it.
        store: Its variables; those of a checkpoint, or still to be made.
    """

    def __init__(self, model: ModelFunction, strategy: Strategy, store: VariableStore) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.num_examples = 0
        self.global_step = 0
        self.step_index = 0
        self._model = model
        self._step_counter: Variable | None = None

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches` (see `SessionRunArgs`)."""
        return nest.map_structure(self._value, fetches)

    def values(self) -> dict[str, Any]:
        """The values of all variables that belong into a checkpoint, by name."""
        with self.strategy.scope():
            return self.store.saved_values()

    def step(self, batches: Any, on_built: Callable[[EstimatorSpec], None] | None) -> None:
        """Make one step on all replicas.

        Args:
            batches: A batch per replica; a replica whose batch is empty contributes nothing.
            on_built: Called in the first step when all variables exist, before any is changed.
        """
        self.step_index = self.global_step
        losses = self.strategy.run(partial(self._replica_step, on_built), (batches,))
        parts = losses.values if isinstance(losses, PerReplica) else (losses,)
        self.loss = mean_loss(parts)
        self.num_examples = sum([part.num_examples for part in parts])
        assert self._step_counter is not None
        self.global_step = int(self._step_counter.leaf(0).data)

    def _replica_step(
        self, on_built: Callable[[EstimatorSpec], None] | None, batch: Any
    ) -> ReplicaLoss:
        replica = get_replica_context()
        assert replica is not None
        num_examples = count_examples(batch)
        with self.store.building():
            spec = None
            if num_examples:
                spec = self._model(*split_features_and_labels(batch), ModeKeys.TRAIN)
            if on_built is not None:
                self._build(spec)
                replica.merge_call(_call_on_built, (on_built, spec))
            make_step(spec.train_op if spec else None, num_examples)
        return ReplicaLoss.of(spec, num_examples)

    def _build(self, spec: EstimatorSpec | None) -> None:
        self._step_counter = get_or_create_global_step()
        self.global_step = self.step_index = int(self._step_counter.leaf(0).data)
        if spec is not None and spec.train_op is not None:
            spec.train_op.create_variables()

    def _value(self, name: str) -> Any:
        if name == "loss":
            return self.loss
        if name == "step":
            return self.step_index
        if name == "global_step":
            return self.global_step
        if name not in self.store.variables:
            raise ValueError(
                f"a hook asks for {name!r}; there are loss, step, global_step, "
                f"{', '.join(sorted(self.store.variables))}"
            )
        with self.strategy.scope():
            return self.store.variables[name].numpy()


def _call_on_built(strategy: Strategy, on_built: Any, spec: Any) -> None:
    """In cross-replica context: `on_built` with the first replica's spec that there is."""
    specs = spec.values if isinstance(spec, PerReplica) else (spec,)
    call = on_built.values[0] if isinstance(on_built, PerReplica) else on_built
    call(next(s for s in specs if s is not None))


def asked_for(session: Session, request: SessionRunArgs | None) -> SessionRunValues:
    """The values that a hook wants to know after a step."""
    return NO_VALUES if request is None else SessionRunValues(session.run(request.fetches))


@dataclass(frozen=True)
class TrainingEnd:
    """How a training run ended.

    Args:
        global_step: The steps made in all, earlier runs included.
        loss: That of the last step; None where no step was made.
        reason: In words, for the log and for `train_and_evaluate`.
    """

    global_step: int
    loss: float | None
    reason: str


def train(session: TrainingSession, batches: Any, hooks: Sequence[SessionRunHook]) -> TrainingEnd:
    """Make steps until the data end or a hook asks to stop.

    Args:
        session: What is trained.
        batches: An iterator of one batch per replica and step.
        hooks: Told about each step, in this order; the watch over the loss comes before all.

    Raises:
        ValueError: The data are empty.
    """
    hooks = [NanTensorHook(), *hooks]
    for hook in hooks:
        hook.begin()

    def built(spec: EstimatorSpec) -> None:
        for hook in [*spec.training_chief_hooks, *spec.training_hooks]:
            hook.begin()
            hooks.append(hook)
        for hook in hooks:
            hook.after_create_session(session)

    context = SessionRunContext(session)
    requests: list[SessionRunArgs | None] = []
    for batch in batches:
        first = session.loss is None
        if not first:
            requests = [hook.before_run(context) for hook in hooks]
        session.step(batch, built if first else None)
        if first:
            log_batch_sizes(session.num_examples, session.strategy)
            requests = [hook.before_run(context) for hook in hooks]
        for hook, request in zip(hooks, requests, strict=True):
            hook.after_run(context, asked_for(session, request))
        if context.stop_requested:
            break
    if session.loss is None:
        raise ValueError(
            "input_fn gave no batch: the dataset is empty. Check the files or arrays that it reads "
            "and that no filter, take or shard leaves nothing over"
        )
    for hook in hooks:
        hook.end(session)
    reason = "a hook asked to stop" if context.stop_requested else "the input ended"
    return TrainingEnd(session.global_step, session.loss, reason)
