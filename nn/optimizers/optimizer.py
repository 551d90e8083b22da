"""`Optimizer`: from a loss, or from gradients, to changed variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...autodiff import Array, IndexedSlices, Tensor, backward, leaves
from ...strategies import (
    GradientReducer,
    InterruptsPutOff,
    Membership,
    ReplicaContext,
    Round,
    RuleStep,
    StrategyExtended,
    Variable,
    VariableAggregation,
    begin_round,
    current_store,
    end_round,
    get_or_create_global_step,
    get_replica_context,
    get_strategy,
)
from ...strategies.arrays import add_up, as_array
from . import schedules
from .clipping import clip_by_global_norm, clip_by_norm, clip_by_value
from .rules import Rule

LearningRate: TypeAlias = "float | Callable[[int], float]"
Produce: TypeAlias = Callable[..., Any]

_STEPS_BETWEEN_CHECKSUMS = 1000


class Optimizer:
    """Changes variables along their gradients, by one rule, in step on all replicas.

    Two ways lead to a change, and they differ in who divides the loss:

    - `minimize(loss)`: `loss` is the mean over the replica's examples. Gradients are *averaged*
      over replicas, weighted by their numbers of examples, so that N replicas do what one would do
      with the whole batch.
    - `apply_gradients(...)`, for custom loops: gradients are *summed* over replicas; the loss is to
      be divided by the global batch size, as `nn.compute_average_loss` does.

    Args:
        rule: The arithmetic, and the slots that it keeps beside each variable.
        hyper: The rule's hyper-parameters.
        learning_rate: A number ≥ 0, or a schedule: a function of the number of updates made so far.
        name: The beginning of its variables' names.
        clipnorm, clipvalue, global_clipnorm: At most one of them: the largest norm of each
            gradient, the largest absolute value of each element, the largest norm of all
            gradients together. Applies to the gradients after they are reduced.
        sparse: What becomes of rows that a step did not read, where the gradient covers rows only
            (`IndexedSlices`, as of an `Embedding`). "dense": the same as with the dense gradient,
            which is zero there, as in Keras: moments and momentum decay and go on moving the rows.
            "lazy": they and their slots stay as they are; it is another algorithm, whose step
            costs as much as its batch and not as the table. SGD without momentum and Adagrad
            change no such row in either way.

    Raises:
        ValueError: A negative learning rate, more than one way of clipping, or an unknown `sparse`.
    """

    def __init__(
        self,
        rule: Rule,
        hyper: Any,
        learning_rate: LearningRate,
        name: str,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        sparse: str = "dense",
    ) -> None:
        if sparse not in ("dense", "lazy"):
            raise ValueError(f"sparse must be 'dense' or 'lazy', it is {sparse!r}")
        self.learning_rate = schedules.get(learning_rate)
        self.hyper = hyper
        self._membership = Membership(self, name, _Kept)
        self.name = self._membership.name
        self._rule = rule
        self._hyper_numbers = asdict(hyper)
        self._clip = _clipping(clipnorm, clipvalue, global_clipnorm)
        self._limits = {
            "clipnorm": clipnorm,
            "clipvalue": clipvalue,
            "global_clipnorm": global_clipnorm,
        }
        self._slot_values = rule.slots(hyper)
        self._rows_only = sparse == "lazy" or rule.keeps_unread(hyper)

    @property
    def iterations(self) -> Variable:
        """The number of updates made so far: an int64 scalar variable."""
        # Outside models a hook or a user asks, who means those of the model that was trained last.
        is_in_model = current_store().keep
        kept = self._membership.here(self) if is_in_model else self._membership.latest
        if kept.iterations is None:
            kept.iterations = current_store().get_variable(
                f"{self.name}/iterations",
                (),
                np.int64,
                0,
                trainable=False,
                aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            )
        return kept.iterations

    @property
    def variables(self) -> list[Variable]:
        """The number of updates, and the slots that exist so far."""
        slots = self._membership.latest.slots.values()
        return [self.iterations, *(slot for _, of_one in slots for slot in of_one)]

    def restore_later(self, find: Callable[[str], Array | None]) -> None:
        """Ask `find(name)` what slots that do not exist yet begin with; for checkpoints."""
        current_store().restore_later(find)

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
    ) -> TrainOp:
        """A deferred training step: call what is returned, in each replica, to make it happen.

        Args:
            loss: A scalar, the mean over this replica's examples.
            global_step: The counter that a step increases; the model's global step by default.
            var_list: The variables to change; by default all trainable ones of the model (in a
                custom loop: those that the loss depends on). One that the loss depends on in no
                replica is left as it is.
        """
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"loss must be a tensor computed from the model's variables, it is {type(loss)}; "
                f"values from .numpy() have left the gradient graph"
            )
        if loss.size != 1:
            raise ValueError(
                f"loss must be a scalar, its shape is {loss.shape}; "
                f"take its mean over the examples with np.mean(loss)"
            )
        kept = self._membership.here(self)
        if global_step is None:
            # Outside a model nobody else would keep the count.
            kept.global_step = global_step = get_or_create_global_step()
        return TrainOp([Update(self, loss, var_list)], [global_step])

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Change each variable along its gradient, after summing gradients over replicas.

        In replica context every replica must call it, with the same variables. In cross-replica
        context all copies are changed along the gradients as they are given.

        Args:
            grads_and_vars: Pairs; a gradient is an array, `IndexedSlices`, or None for nothing. A
                variable that occurs twice has the sum of its gradients; one without a gradient on
                any replica is left as it is.

        Raises:
            ValueError: No pair has a gradient.
        """
        pairs = [(_gradient(g), v) for g, v in grads_and_vars]
        if all(g is None for g, _ in pairs):
            raise ValueError(
                "no gradient is given for any variable; does the loss depend on the variables "
                f"({', '.join(v.name for _, v in pairs) or 'none given'})?"
            )
        self._membership.here(self)
        replica = get_replica_context()
        if replica is None:
            variables, found = _summed(pairs, 0)
            given = [(v, found[v.leaf(0)]) for v in variables if v.leaf(0) in found]
            extended = get_strategy().extended
            with InterruptsPutOff() as interrupts:
                interrupts.begin()
                for index in range(extended.num_local_replicas):
                    self.update(given, index)
                    self.count_update(index)
                extended.storage.flush(1)
            return
        variables, found = _summed(pairs, replica.local_index)
        reducer = self.reducer(variables, found)
        way = self.way_of_step(variables, replica)
        this_round = begin_round(replica, 1, average=False, alike=way)
        reducer.fill(replica.local_index, partial(_hand_over, found), this_round)
        with InterruptsPutOff() as interrupts:
            end_round(replica, this_round, interrupts)
            self.update_replica(reducer.reduced(replica.local_index), replica, average=False)
            settle(replica, 1)

    def reducer(
        self,
        variables: Sequence[Variable],
        example: dict[Tensor, Any],
        backward_meets: bool = False,
    ) -> GradientReducer:
        """What reduces the gradients of `variables`; made at the first call from one `example`.

        Gradients travel in the reverse order of creation: that is about the order in which backward
        completes them, and the same on all workers, whatever the batches were that they began with.
        """
        known = self.known_reducer(variables)
        if known is not None:
            return known

        def create() -> GradientReducer:
            extended = get_strategy().extended
            self._require_clipping_of_means(extended)
            # Also those of variables that have no gradient here: another worker's may have one, and
            # where the chief alone creates variables it would wait for this.
            for variable in variables:
                self.slots(variable)
            names = [v.name for v in variables]
            owners = [leaf.owner for leaf, g in example.items() if isinstance(g, IndexedSlices)]
            here = {owner.name for owner in owners if isinstance(owner, Variable)}
            *sparse, meets = extended.workers.any_of_each(
                [*(name in here for name in names), backward_meets],
                f"whose gradients are rows, of {self.name}",
            )
            return GradientReducer(
                variables[::-1],
                frozenset(name for name, is_sparse in zip(names, sparse, strict=True) if is_sparse),
                extended.num_local_replicas,
                extended.cross_device_ops,
                extended.bytes_per_pack,
                meets,
            )

        key = self._reducer_key(variables)
        made: GradientReducer = current_store().find_or_create(key, create)
        self._membership.latest.reducers[key] = made
        return made

    def _require_clipping_of_means(self, extended: StrategyExtended) -> None:
        """Refuse to clip where only the worker's own part of a mean is known.

        Raises:
            ValueError: Gradients are to be clipped, and parameter servers take their mean.
        """
        num_workers = extended.job.num_trainers
        if self._clip is None or num_workers == 1 or not extended.storage.averages_workers:
            return
        limits = ", ".join([f"{k}={v}" for k, v in self._limits.items() if v is not None])
        raise ValueError(
            f"optimizer {self.name!r} is to clip gradients ({limits}), but where "
            f"{num_workers} workers make each step together at parameter servers (max_staleness=0) "
            f"each would clip its own, before the servers take the mean; leave it out, let workers "
            f"make steps of their own (max_staleness=None), or use MultiWorkerMirroredStrategy"
        )

    def known_reducer(self, variables: Sequence[Variable]) -> GradientReducer | None:
        """The reducer that an earlier step made for these variables, if there is one."""
        key = self._reducer_key(variables)
        reducers = self._membership.latest.reducers
        known = reducers.get(key)
        if known is None:
            known = current_store().resources.get(key)
            if known is not None:
                reducers[key] = known
        return known

    def _reducer_key(self, variables: Sequence[Variable]) -> tuple[Any, ...]:
        # A reducer keeps its variables alive: while it is found, no other has the id of one.
        return ("gradients", self.name, *map(id, variables))

    def update_replica(
        self,
        gradients: Sequence[tuple[Variable, Any]],
        replica: ReplicaContext,
        average: bool = True,
    ) -> None:
        """Update the copies that are this replica's; all replicas must do so."""
        self.update(gradients, replica.local_index, average)
        if replica.strategy.extended.num_local_replicas > 1:
            variables = [self.iterations, *[variable for variable, _ in gradients]]
            if any(v.num_copies == 1 for v in variables):
                # Nobody reads the shared copies before the first replica has written them.
                replica.exchange("update of shared variables", None)
        self.count_update(replica.local_index)

    def update(
        self, gradients: Sequence[tuple[Variable, Any]], local_index: int, average: bool = True
    ) -> None:
        """Change what replica `local_index` sees of variables along reduced gradients.

        Args:
            average: See `RuleStep`.
        """
        if self._clip is not None:
            clipped = self._clip([g for _, g in gradients])
            gradients = [(v, g) for (v, _), g in zip(gradients, clipped, strict=True)]
        how = self._rule_step(int(self.iterations.value_in(local_index)), average)
        for variable, gradient in gradients:
            variable.storage.update(variable, gradient, self.slots(variable), how, local_index)

    def _rule_step(self, num_updates: int, average: bool) -> RuleStep:
        """How variables change that have seen so many updates."""
        rate, step = self.learning_rate(num_updates), num_updates + 1
        function, hyper = self._rule.update, self.hyper

        def apply(value: Array, gradient: Array, slots: Sequence[Array]) -> None:
            function(value, gradient, slots, rate, step, hyper)

        name, numbers, rows_only = self._rule.name, self._hyper_numbers, self._rows_only
        return RuleStep(name, numbers, rate, step, rows_only, average, apply)

    def way_of_step(self, variables: Sequence[Variable], replica: ReplicaContext) -> Sequence[str]:
        """What all replicas and workers must do alike in the coming update, in lines.

        Now and then the values that they begin with are among it, as checksums.

        Args:
            variables: Those that the update is to change.
            replica: The caller.
        """
        if replica.strategy.extended.num_replicas == 1:
            return ()
        index = replica.local_index
        num_updates = int(self.iterations.value_in(index))
        rate = float(self.learning_rate(num_updates))
        settings = {**self._hyper_numbers, **self._limits, "learning_rate": rate}
        settings["sparse"] = "lazy" if self._rows_only else "dense"
        lines = [
            f"update {num_updates} of {self.name!r} by {self._rule.name} with {settings}",
            f"gradients of {', '.join([v.name for v in variables])}",
        ]
        if num_updates % _STEPS_BETWEEN_CHECKSUMS == 0:
            lines += [v.checksum(index) for v in variables if not v.storage.is_remote]
        return lines

    def count_update(self, local_index: int) -> None:
        """Increase the number of updates by one in the copy of replica `local_index`."""
        counter = self.iterations
        counter.storage.increase(counter, local_index)

    def slots(self, variable: Variable) -> list[Variable]:
        """What the rule keeps beside `variable`, created at the first call."""
        if not self._slot_values:
            return []
        known = self._membership.latest.slots
        of, slots = known.get(variable.name, (None, []))
        if of is not variable:
            slots = [
                current_store().get_variable(
                    f"{self.name}/{variable.name}/{slot}",
                    variable.shape,
                    variable.dtype,
                    partial(_filled, start),
                    trainable=False,
                    aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
                    beside=variable,
                )
                for slot, start in self._slot_values.items()
            ]
            known[variable.name] = variable, slots
        return slots


class _Kept:
    """What an optimizer has found in the store of one model."""

    __slots__ = ("global_step", "iterations", "reducers", "slots")

    def __init__(self) -> None:
        self.iterations: Variable | None = None
        self.global_step: Variable | None = None
        self.slots: dict[str, tuple[Variable, list[Variable]]] = {}
        self.reducers: dict[tuple[Any, ...], GradientReducer] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Kept:
        return _Kept()  # a copy of an optimizer finds its variables by their names


class Update:
    """One optimizer's part of a training step: this loss, these variables."""

    def __init__(
        self, optimizer: Optimizer, loss: Tensor, variables: Sequence[Variable] | None
    ) -> None:
        self.optimizer = optimizer
        self._loss = loss
        self._variables = variables
        self._produce: Produce
        self._reducer: GradientReducer | None = None

    def create_variables(self) -> None:
        """Create what the optimizer keeps, so that a checkpoint before the first step is whole."""
        _ = self.optimizer.iterations
        for variable in self.variables:
            self.optimizer.slots(variable)

    def prepare(self) -> None:
        """In the first step, see which gradients are dense, and agree on it with all workers."""
        self._reducer = self.optimizer.known_reducer(self.variables)
        # Anew in each call: what an earlier step has found is no gradient of this one.
        self._produce = partial(backward, self._loss, None)
        if self._reducer is None:
            found: dict[Tensor, Any] = {}
            workers = get_strategy().extended.workers
            num_meetings = workers.num_meetings
            backward(self._loss, on_ready=found.__setitem__)
            owners = [leaf.owner for leaf in found]
            current_store().require_own(
                [owner for owner in owners if isinstance(owner, Variable)],
                "the loss",
                "they would be neither trained nor saved",
            )
            self._produce = partial(_hand_over, found)
            meets = workers.num_meetings > num_meetings
            self._reducer = self.optimizer.reducer(self.variables, found, backward_meets=meets)

    def reduce(self, replica: ReplicaContext, this_round: Round) -> None:
        """Compute the gradients of this replica and reduce them."""
        self.reducer().fill(replica.local_index, self._produce, this_round)

    def reducer(self) -> GradientReducer:
        """What reduces the gradients, once they are prepared."""
        assert self._reducer is not None
        return self._reducer

    def way_of_step(self, replica: ReplicaContext) -> Sequence[str]:
        """See `Optimizer.way_of_step`."""
        return self.optimizer.way_of_step(self.variables, replica)

    def apply(self, replica: ReplicaContext) -> None:
        """Change the variables along the reduced gradients."""
        self.optimizer.update_replica(self.reducer().reduced(replica.local_index), replica)

    @property
    def variables(self) -> Sequence[Variable]:
        """What to change: as given; else all of the model; in a custom loop what the loss reads."""
        if self._variables is None:
            store = current_store()
            if store.keep:
                self._variables = store.trainable_variables()
            else:
                owners = [leaf.owner for leaf in leaves(self._loss)]
                self._variables = [owner for owner in owners if isinstance(owner, Variable)]
        return self._variables


class TrainOp:
    """A training step that is still to be made: what `minimize` returns and `EstimatorSpec` takes.

    Calling it computes the gradients, reduces them over all replicas, updates the variables, and
    increases the step counters. Every replica must call it.

    Args:
        updates: What to do, in order.
        counters: The step counters to increase by one, once each.
    """

    def __init__(self, updates: Sequence[Update], counters: Iterable[Variable]) -> None:
        self.updates = tuple(updates)
        self.counters = frozenset(counters)

    def create_variables(self) -> None:
        """Create the variables that the step needs besides the model's."""
        for update in self.updates:
            update.create_variables()

    def way_of_step(self, replica: ReplicaContext) -> Sequence[str]:
        """What all replicas and workers must do alike in the step, in lines."""
        return [line for update in self.updates for line in update.way_of_step(replica)]

    def __call__(self, num_examples: int = 1) -> None:
        """Make the step; every replica must do so.

        Args:
            num_examples: How many examples the loss of this replica is the mean of: its weight.

        Raises:
            RuntimeError: Called in cross-replica context.
        """
        make_step(self, num_examples)


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
    train_op: TrainOp, num_examples: int, sums: Sequence[float] = (), veto: bool = False
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

    Raises:
        RuntimeError: Called in cross-replica context.
    """
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError("a train op must be called in a replica: inside strategy.run(...)")
    all_sums, way = (float(veto), *sums), train_op.way_of_step(replica)
    this_round = begin_round(replica, num_examples, True, all_sums, way)
    # All are prepared before the first is reduced: what workers agree on here, and the buckets that
    # another replica fills meanwhile, would else go out in an order that chance decides.
    for update in train_op.updates:
        update.prepare()
    for update in train_op.updates:
        update.reduce(replica, this_round)
    with InterruptsPutOff() as interrupts:
        # All losses were followed before any variable changes.
        end_round(replica, this_round, interrupts)
        weight, vetoes, *totals = this_round.totals.tolist()
        is_made = weight > 0 and not vetoes
        if is_made:
            _apply(train_op, this_round, replica)
    return StepResult(is_made, vetoes > 0, totals)


def _apply(train_op: TrainOp, this_round: Round, replica: ReplicaContext) -> None:
    """Change the variables and counters; all replicas do so."""
    for update in train_op.updates:
        update.apply(replica)
    for counter in train_op.counters:
        counter.storage.increase(counter, replica.local_index)
    # What is no number must not come to the variables of others.
    is_sound = np.isfinite(this_round.totals).all()
    settle(replica, this_round.num_examples if is_sound else 0)


def settle(replica: ReplicaContext, num_examples: float) -> None:
    """Carry out what the storage of variables has put off, before any replica goes on.

    Args:
        num_examples: How many examples of this worker are behind the changes.
    """
    storage = replica.strategy.extended.storage
    if storage.is_remote:
        replica.exchange("changes of variables", None, lambda _: storage.flush(num_examples))


def group(*train_ops: TrainOp) -> TrainOp:
    """One train op that makes several updates in order and counts as one step."""
    return TrainOp(
        [update for op in train_ops for update in op.updates],
        frozenset().union(*(op.counters for op in train_ops)),
    )


def _hand_over(found: dict[Tensor, Any], into: Any, on_ready: Callable[..., None]) -> None:
    for leaf, gradient in found.items():
        on_ready(leaf, gradient)


def _summed(
    pairs: Sequence[tuple[Any, Variable]], local_index: int
) -> tuple[list[Variable], dict[Tensor, Any]]:
    """Each variable once, and the sum of the gradients that it was given in one replica."""
    variables: dict[Tensor, Variable] = {}
    found: dict[Tensor, Any] = {}
    for gradient, variable in pairs:
        leaf = variable.leaf(local_index)
        variables[leaf] = variable
        if gradient is not None:
            found[leaf] = add_up([found[leaf], gradient]) if leaf in found else gradient
    return list(variables.values()), found


def _gradient(value: Any) -> Any:
    return None if value is None else as_array(value)


def _filled(value: float, shape: Any, dtype: Any, rng: Any) -> np.ndarray:
    return np.full(shape, value, dtype)


def _clipping(
    norm: float | None, value: float | None, global_norm: float | None
) -> Callable[[list[Any]], list[Any]] | None:
    if norm is value is global_norm is None:
        return None
    given = {"clipnorm": norm, "clipvalue": value, "global_clipnorm": global_norm}
    named = [f"{k}={v}" for k, v in given.items() if v is not None]
    if len(named) > 1:
        raise ValueError(
            f"gradients can be clipped in one way, got {' and '.join(named)}; keep one"
        )
    if norm is not None:
        return lambda gradients: [clip_by_norm(g, norm) for g in gradients]
    if value is not None:
        return lambda gradients: [clip_by_value(g, -value, value) for g in gradients]
    assert global_norm is not None
    return lambda gradients: clip_by_global_norm(gradients, global_norm)[0]
