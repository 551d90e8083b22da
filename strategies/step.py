"""One training step: agree, fill, reduce, apply, settle.

All replicas of all workers make a step together. They *agree* on how much each of them weighs and
on what they are about to do; each *fills* its share of the buckets while it goes backward; what all
have filled is *reduced* over replicas and workers; each *applies* the reduced gradients to its own
copies of the variables; and what the storage of variables has put off is *settled*.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..autodiff import IndexedSlices, Tensor, backward, leaves
from ..observe import phase
from .context import ReplicaContext, get_replica_context
from .devices.device import to_host
from .gradients.buckets import Gradient
from .gradients.reduction import GradientReducer, Offer, Round, Share
from .replicas.interrupts import InterruptsPutOff
from .strategy import get_strategy
from .variables.cell import RuleStep
from .variables.store import current_store
from .variables.variable import Variable

Found: TypeAlias = "Mapping[Tensor, Gradient]"
"""One replica's gradients, by the tensors that stand for variables there."""

_STEPS_BETWEEN_CHECKSUMS = 1000


class Updater(ABC):
    """Who knows by which rule variables change: an optimizer.

    Attributes:
        name: The beginning of its variables' names.
    """

    name: str

    @property
    @abstractmethod
    def iterations(self) -> Variable:
        """The number of updates made so far: an int64 scalar."""

    @property
    @abstractmethod
    def reducers(self) -> MutableMapping[tuple[Any, ...], GradientReducer]:
        """What it keeps of the current model for the steps to come."""

    @abstractmethod
    def slots(self, variable: Variable) -> Sequence[Variable]:
        """What the rule keeps beside `variable`, created at the first call."""

    @abstractmethod
    def clipped(
        self, gradients: Sequence[tuple[Variable, Gradient]]
    ) -> Sequence[tuple[Variable, Gradient]]:
        """The gradients as they are applied, after they were reduced."""

    @abstractmethod
    def rule_step(self, num_updates: int, average: bool) -> RuleStep:
        """How variables change that have seen so many updates."""

    @abstractmethod
    def described(self, num_updates: int) -> str:
        """The update after so many, as a line that differs where another one would be made."""


def _owners(tensors: Iterable[Tensor]) -> list[Variable]:
    owners = [leaf.owner for leaf in tensors]
    return [owner for owner in owners if isinstance(owner, Variable)]


class Update:
    """One optimizer's part of a step.

    Args:
        updater: The optimizer.
        loss: A scalar tensor whose gradients are to be computed; None where they are `given`.
        variables: What to change. By default all trainable variables of the model; outside models
            those that the loss depends on.
        given: This replica's gradients, where somebody has computed them before.
    """

    def __init__(
        self,
        updater: Updater,
        loss: Tensor | None,
        variables: Sequence[Variable] | None = None,
        given: Found | None = None,
    ) -> None:
        self.updater = updater
        self._loss = loss
        self._given = given
        self._variables = variables
        self._found: Found | None = None
        self._backward_communicates = False
        self._reducer: GradientReducer

    @property
    def variables(self) -> Sequence[Variable]:
        """What to change."""
        if self._variables is None:
            assert self._loss is not None
            store = current_store()
            of_loss = [] if store.keep else _owners(leaves(self._loss))
            self._variables = store.trainable_variables() if store.keep else of_loss
        return self._variables

    def create_variables(self) -> None:
        """Create what the optimizer keeps, so that a checkpoint before the first step is whole."""
        _ = self.updater.iterations
        for variable in self.variables:
            self.updater.slots(variable)

    def lines(self, replica: ReplicaContext) -> Sequence[str]:
        """What all replicas and workers must do alike; now and then also checksums of values."""
        index = replica.local_index
        num_updates = int(self.updater.iterations.value_in(index))
        names = ", ".join([variable.name for variable in self.variables])
        lines = [self.updater.described(num_updates), f"gradients of {names}"]
        if num_updates % _STEPS_BETWEEN_CHECKSUMS == 0:
            lines += [v.checksum(index) for v in self.variables if not v.is_remote]
        return lines

    def prepare(self) -> None:
        """In the first step, see which gradients are dense, and agree on it with all workers."""
        # Anew in each call: what an earlier step has found is no gradient of this one.
        self._found = self._given
        # A reducer keeps its variables alive: while it is found, no other has the id of one.
        key = ("gradients", self.updater.name, *map(id, self.variables))
        reducers, store = self.updater.reducers, current_store()
        reducer = reducers.get(key) or store.resources.get(key)
        if reducer is None:
            if self._loss is not None:
                self._found = self._gradients_of_first_step(self._loss)
            reducer = store.find_or_create(key, self._make_reducer)
        self._reducer = reducers[key] = reducer

    def _gradients_of_first_step(self, loss: Tensor) -> Found:
        workers = get_strategy().extended.workers
        num_collectives = workers.num_collectives
        found = backward(loss)
        harm = "they would be neither trained nor saved"
        current_store().require_own(_owners(found), "the loss", harm)
        self._backward_communicates = workers.num_collectives > num_collectives
        return found

    def _make_reducer(self) -> GradientReducer:
        assert self._found is not None
        extended, variables = get_strategy().extended, self.variables
        # Also those of variables that have no gradient here: another worker's may have one, and
        # where the chief alone creates variables it would wait for this.
        for variable in variables:
            self.updater.slots(variable)
        by_rows = _owners(leaf for leaf, g in self._found.items() if isinstance(g, IndexedSlices))
        *sparse, meets = extended.workers.any_of_each(
            [
                *[any(v is other for other in by_rows) for v in variables],
                self._backward_communicates,
            ],
            f"whose gradients are rows, of {self.updater.name}",
        )
        names = [v.name for v, is_sparse in zip(variables, sparse, strict=True) if is_sparse]
        # The reverse order of creation is about the order in which backward completes gradients,
        # and the same on all workers, whatever the batches were that they began with.
        return GradientReducer(
            variables[::-1],
            frozenset(names),
            extended.num_local_replicas,
            extended.cross_device_ops,
            extended.workers,
            extended.bytes_per_pack,
            meets,
        )

    def fill(self, replica: ReplicaContext, this_round: Round) -> None:
        """Compute this replica's gradients, and hand them over as they come."""
        share = Share(this_round, self._reducer, replica.local_index)
        if self._found is None:
            assert self._loss is not None
            backward(self._loss, None, share.into, share.take)
        else:
            for leaf, gradient in self._found.items():
                share.take(leaf, gradient)
        share.end()

    def reduced_norm(self, local_index: int) -> float:
        """The norm of the gradients of the step just made, over all replicas, before clipping."""
        total = 0.0
        for _, gradient in self._reducer.reduced(local_index):
            rows = gradient.unique().values if isinstance(gradient, IndexedSlices) else gradient
            numbers = to_host(rows).reshape(-1)
            total += float(np.dot(numbers, numbers))
        return math.sqrt(total)

    def apply(self, replica: ReplicaContext, average: bool) -> None:
        """Change this replica's copies along the reduced gradients; all replicas do so."""
        index = replica.local_index
        reduced = self._reducer.reduced(index)
        change_variables(self.updater, reduced, index, average)
        counter = self.updater.iterations
        changed = (counter, *[variable for variable, _ in reduced])
        is_alone = replica.strategy.extended.num_local_replicas == 1
        if not is_alone and any(v.num_copies == 1 for v in changed):
            # Nobody reads the shared copies before the first replica has written them.
            replica.exchange("update of shared variables", None)
        counter.cell.increase(index)


class TrainOp:
    """A training step that is still to be made: what `minimize` returns and `EstimatorSpec` takes.

    Calling it computes the gradients, reduces them over all replicas, updates the variables, and
    increases the step counters. Every replica must call it.

    Args:
        updates: What to do, in order.
        counters: The step counters to increase by one, once each.
    """

    def __init__(self, updates: Sequence[Update], counters: Iterable[Variable] = ()) -> None:
        self.updates = tuple(updates)
        self.counters = frozenset(counters)

    def create_variables(self) -> None:
        """Create the variables that the step needs besides the model's."""
        for update in self.updates:
            update.create_variables()

    def __call__(self, num_examples: int = 1) -> None:
        """Make the step, as every replica must; `num_examples` is the weight of its loss."""
        make_step(self, num_examples)


def group(*train_ops: TrainOp) -> TrainOp:
    """One train op that makes several updates in order and counts as one step."""
    return TrainOp(
        [update for op in train_ops for update in op.updates],
        frozenset().union(*(op.counters for op in train_ops)),
    )


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a step, the same on every replica.

    Args:
        is_made: Whether the variables were changed.
        is_vetoed: Whether a replica asked that they be not.
        sums: The numbers given, added up over all replicas of all workers.
    """

    is_made: bool
    is_vetoed: bool
    sums: Sequence[float]


def make_step(
    train_op: TrainOp,
    num_examples: int,
    sums: Sequence[float] = (),
    veto: bool = False,
    average: bool = True,
) -> StepResult:
    """Make a training step; every replica must call it.

    No variable is changed where no replica has examples, or one has a veto: so all replicas of all
    workers know at the same step that the data have ended, or that one of them wants to stop.

    Args:
        train_op: The replica's own.
        num_examples: The number of examples of this replica, its weight. With 0 it contributes
            nothing and follows the others.
        sums: Numbers to add up over all replicas on the way.
        veto: Whether this replica asks that the step be not made.
        average: Whether gradients are averaged over all examples, or added up over replicas.

    Raises:
        RuntimeError: Called in cross-replica context.
    """
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError("a train op must be called in a replica: inside strategy.run(...)")
    is_alone = replica.strategy.extended.num_replicas == 1
    lines = [] if is_alone else [line for u in train_op.updates for line in u.lines(replica)]
    with phase("communication"):
        this_round = agree(replica, num_examples, average, (float(veto), *sums), lines)
    # All are prepared before the first is filled: what workers agree on here, and the buckets that
    # another replica fills meanwhile, would else go out in an order that chance decides.
    with phase("backward"):
        replica.loss_weight = float(num_examples) if average else 1.0
        for update in train_op.updates:
            update.prepare()
        for update in train_op.updates:
            update.fill(replica, this_round)
        replica.loss_weight = 1.0
    with InterruptsPutOff() as interrupts:
        # All losses were followed before any variable changes.
        with phase("communication"):
            reduce(replica, this_round, interrupts)
        weight, vetoes, *totals = this_round.totals.tolist()
        is_made = weight > 0 and not vetoes
        if is_made:
            with phase("update"):
                for update in train_op.updates:
                    update.apply(replica, average)
                for counter in train_op.counters:
                    counter.cell.increase(replica.local_index)
            settle(replica, this_round.num_examples_to_settle)
    return StepResult(is_made, vetoes > 0, totals)


def apply_outside_replicas(
    updater: Updater, gradients: Sequence[tuple[Variable, Gradient]]
) -> None:
    """In cross-replica context, change all copies along the gradients as they are given."""
    extended, counter = get_strategy().extended, updater.iterations
    with InterruptsPutOff() as interrupts:
        interrupts.begin()
        for index in range(extended.num_local_replicas):
            change_variables(updater, gradients, index, average=True)
            counter.cell.increase(index)
        if extended.remote_storage is not None:
            extended.remote_storage.flush(1)


def change_variables(
    updater: Updater,
    gradients: Sequence[tuple[Variable, Gradient]],
    local_index: int,
    average: bool,
) -> None:
    """Change what replica `local_index` sees of variables along reduced gradients."""
    how = updater.rule_step(int(updater.iterations.value_in(local_index)), average)
    for variable, gradient in updater.clipped(gradients):
        slots = [slot.cell for slot in updater.slots(variable)]
        variable.cell.update(gradient, slots, how, local_index)


def settle(replica: ReplicaContext, num_examples: float) -> None:
    """Carry out what the storage of variables has put off, before any replica goes on.

    `num_examples` is how many examples of this worker are behind the changes.
    """
    storage = replica.strategy.extended.remote_storage
    # By the last to come, while the others wait: it renews the copies that they read.
    if storage is not None:
        with phase("communication"):
            replica.exchange("changes of variables", None, lambda _: storage.flush(num_examples))


def agree(
    replica: ReplicaContext,
    num_examples: float,
    average: bool,
    sums: Sequence[float] = (),
    lines: Sequence[str] = (),
) -> Round:
    """Meet all replicas to reduce gradients; all are then done with the results of the last round.

    Args:
        replica: The caller.
        num_examples: How many examples are behind its gradients: its weight in an average. With 0
            they are left out, as are those of a replica that stands in.
        average: Whether the result is the average over all examples, or the sum over replicas.
        sums: Numbers to add up over all replicas of all workers on the way.
        lines: What this replica is about to do, which must be the same for all of all workers.
    """
    place = f"{'averaging' if average else 'summing'} of gradients"
    weight = num_examples if replica.has_examples else 0
    offer = Offer(weight, sums, lines, average, replica.strategy.extended.workers)
    agreed: Round = replica.exchange(place, offer, Round)
    return agreed


def reduce(
    replica: ReplicaContext, this_round: Round, interrupts: InterruptsPutOff | None = None
) -> None:
    """Wait until all replicas of all workers have filled what they had to, and it is added up.

    Then `interrupts` begin: the update that follows is made on all local replicas, or on none.
    """
    replica.exchange("end of the reduction of gradients", this_round, _finish, interrupts)


def _finish(rounds: Sequence[Round]) -> None:
    rounds[0].finish()
