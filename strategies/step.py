"""One training step: agree, fill, reduce, apply, settle.

All replicas of all workers make a step together. They *agree* on how much each of them weighs and
on what they are about to do; each *fills* its share of the buckets while it goes backward; what all
have filled is *reduced* over replicas and workers; each *applies* the reduced gradients to its own
copies of the variables; and what the storage of variables has put off is *settled*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..autodiff import by_host, look
from ..observe import phase
from .context import ReplicaContext, get_replica_context
from .devices.arrays import moved
from .gradients.packs import Gradient, Pack
from .gradients.reduction import Offer, Round
from .replicas.interrupts import InterruptsPutOff
from .strategy import get_strategy
from .update import Found, Update, Updater, change_variables, increase
from .variables.variable import Variable


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

    @look
    def __call__(self, num_examples: int = 1) -> None:
        """Make the step, as every replica must; `num_examples` is the weight of its loss."""
        own = _own_step.get()
        make_step(self, num_examples if own is None else own.taken(self))


@by_host
def group(*train_ops: TrainOp) -> TrainOp:
    """One train op that makes several updates in order and counts as one step."""
    return TrainOp(
        [update for op in train_ops for update in op.updates],
        frozenset().union(*(op.counters for op in train_ops)),
    )


@dataclass(slots=True)
class OwnStep:
    """What a training step that somebody has written has asked for, in one replica.

    Within it losses are means over the replica's examples, whoever computes the gradients.

    Args:
        num_examples: Those of the replica's batch.
        deferred: What `minimize` has returned there and nobody has called so far.
        is_made: Whether variables were changed already.
    """

    num_examples: int
    deferred: list[TrainOp] = field(default_factory=list)
    is_made: bool = False

    def taken(self, train_op: TrainOp) -> int:
        """It is made at once; the number of examples behind it."""
        self.is_made = True
        self.deferred = [other for other in self.deferred if other is not train_op]
        return self.num_examples


_own_step: ContextVar[OwnStep | None] = ContextVar("paceline_own_step", default=None)


@contextmanager
def own_step(num_examples: int) -> Iterator[OwnStep]:
    """In the block a replica makes a training step that somebody has written: see `OwnStep`."""
    token = _own_step.set(OwnStep(num_examples))
    try:
        yield _own_step.get()  # type: ignore[misc]
    finally:
        _own_step.reset(token)


def deferred(train_op: TrainOp) -> TrainOp:
    """The same, noted where a step of `own_step` is to make it at its end."""
    own = _own_step.get()
    if own is not None:
        own.deferred.append(train_op)
    return train_op


@look
def make_given(train_op: TrainOp) -> None:
    """Make a step of gradients that were computed: of sums over replicas, or of an `OwnStep`."""
    own = _own_step.get()
    num_examples = 1 if own is None else own.taken(train_op)
    make_step(train_op, num_examples, average=own is not None)


@dataclass(slots=True)  # not frozen, which takes a microsecond in each step
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
    num_accumulated: int = 0,
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
        num_accumulated: The number of examples of which `accumulate` has this replica's gradients.

    Raises:
        RuntimeError: Called in cross-replica context.
    """
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError("a train op must be called in a replica: inside strategy.run(...)")
    is_alone = replica.strategy.extended.num_replicas == 1
    # Who has a veto need not be alike: hooks are not told of a step that it will not make.
    says = not (is_alone or veto)
    lines = [line for u in train_op.updates for line in u.lines(replica)] if says else []
    own = num_examples if replica.has_examples else 0
    with InterruptsPutOff() as interrupts, phase("communication") as switch:
        this_round = agree(replica, own + num_accumulated, average, (float(veto), *sums), lines)
        # All are prepared before the first is filled: what workers agree on here, and the buckets
        # that another replica fills meanwhile, would else go out in an order that chance decides.
        switch("backward")
        replica.loss_weight = float(num_examples) if average else 1.0
        for update in train_op.updates:
            update.prepare(replica.local_index)
        for update in train_op.updates:
            update.fill(replica, this_round, own, num_accumulated)
        replica.loss_weight = 1.0
        # All losses were followed before any variable changes.
        switch("communication")
        reduce(replica, this_round, interrupts)
        weight, vetoes, *totals = this_round.totals
        is_made = weight > 0 and not vetoes
        if is_made:
            switch("update")
            for update in train_op.updates:
                update.apply(replica, average)
            increase(train_op.counters, replica)
            settle(replica, this_round)
        elif not vetoes and replica.strategy.extended.is_synchronous:
            settle(replica, this_round)  # it adds nothing, and gets what others add
    return StepResult(is_made, vetoes > 0, totals)


def accumulate(train_op: TrainOp, num_examples: int, num_accumulated: int = 0) -> None:
    """Compute the gradients of a batch, for the step that is made with the next one.

    That step is `make_step(..., num_accumulated=...)`. So N batches are one that is N times as
    large: nothing is exchanged and no variable changes in between. Every replica must call it, also
    one without examples.

    Args:
        train_op: The replica's own.
        num_examples: The number of examples of this replica, its weight.
        num_accumulated: That of the batches of the same step before.
    """
    replica = get_replica_context()
    assert replica is not None
    own = num_examples if replica.has_examples else 0
    with phase("backward"):
        replica.loss_weight = float(num_examples)
        for update in train_op.updates:
            update.prepare(replica.local_index)
            update.accumulate(replica.local_index, own, num_accumulated)
        replica.loss_weight = 1.0


def apply_outside_replicas(
    updater: Updater, gradients: Sequence[tuple[Variable, Gradient | None]]
) -> None:
    """In cross-replica context, change all copies along the gradients as they are given."""
    extended = get_strategy().extended
    updater.create_slots([variable for variable, _ in gradients])
    with InterruptsPutOff() as interrupts:
        interrupts.begin()
        for index, device in enumerate(extended.replica_devices):
            with device.use():
                packs = [_pack_of(variable, gradient, index) for variable, gradient in gradients]
                counters, by = updater.update(packs, index, average=True)
            for counter in counters:
                counter.cell.increase(index, by)
        if extended.remote_storage is not None:
            extended.remote_storage.flush(1)


def apply_reduced(updater: Updater, variables: Sequence[Variable], given: Found) -> None:
    """In each replica, change its copies along gradients that are the same on all replicas.

    Args:
        updater: The optimizer.
        variables: What to change.
        given: The gradients, reduced by the caller.
    """
    replica = get_replica_context()
    assert replica is not None
    index = replica.local_index
    updater.create_slots(variables)
    lines = Update(updater, None, variables, given).lines(replica)
    this_round = agree(replica, int(replica.has_examples), average=True, lines=lines)
    packs = [_pack_of(v, given.get(v.leaf(index)), index) for v in variables]
    with InterruptsPutOff() as interrupts:
        reduce(replica, this_round, interrupts)
        if this_round.totals[0] > 0:
            change_variables(updater, packs, replica, average=True)
            settle(replica, this_round)


def _pack_of(variable: Variable, gradient: Gradient | None, local_index: int) -> Pack:
    """A gradient that a caller has computed, wherever it lies, where a replica's copy is."""
    here = None if gradient is None else moved(gradient, variable.device_of(local_index))
    return Pack.of_one(variable, here)


def settle(replica: ReplicaContext, this_round: Round) -> None:
    """Carry out what the storage of variables has put off, before any replica goes on."""
    storage = replica.strategy.extended.remote_storage
    # By the last to come, while the others wait: it renews the copies that they read.
    if storage is not None:
        with phase("communication"):
            num_examples = this_round.num_examples_to_settle
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
            they are left out.
        average: Whether the result is the average over all examples, or the sum over replicas.
        sums: Numbers to add up over all replicas of all workers on the way.
        lines: What this replica is about to do, which must be the same for all of all workers.
    """
    place = "averaging of gradients" if average else "summing of gradients"
    offer = Offer(num_examples, sums, lines, average, replica.strategy.extended.workers)
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
