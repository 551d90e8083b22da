"""`Update`: one optimizer's part of a training step, and what a step asks of the optimizer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, SupportsFloat, TypeAlias

import numpy as np

from ..autodiff import Array, IndexedSlices, Tensor, backward, leaves
from .context import ReplicaContext, get_replica_context
from .devices.device import to_host
from .gradients.packs import Gradient, Pack, scaled
from .gradients.reduction import GradientReducer, Round, Share
from .replicas.frame import Frame, entered
from .strategy import get_strategy
from .variables.store import current_store
from .variables.variable import Variable

Found: TypeAlias = "Mapping[Tensor, Gradient]"
"""One replica's gradients, by the tensors that stand for variables there."""

_USUAL = nullcontext()
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
    def create_slots(self, variables: Sequence[Variable]) -> None:
        """Create what it keeps beside `variables`, unless that is there."""

    @abstractmethod
    def scale_of_loss(self, local_index: int) -> float:
        """What a loss is multiplied by before its gradients are computed, which are divided by it.

        Small gradients of low precision are thus no zeros.
        """

    @abstractmethod
    def update(
        self, packs: Sequence[Pack], local_index: int, average: bool
    ) -> tuple[Sequence[Variable], SupportsFloat]:
        """Change what replica `local_index` sees of variables along reduced gradients.

        Args:
            packs: Those of all variables of the update, unscaled. They are to be read only. All
                replicas of all workers are given the same.
            local_index: All local replicas make this call, or nobody of them, in any order.
            average: Whether workers that do not reduce gradients among themselves mean their
                average, by numbers of examples, or their sum.

        Returns:
            The counters that are to be increased when all replicas are done, and by how much: 1,
            or what will be 1 or 0 and may be on its way from a card; see `Cell.increase`.
        """

    @abstractmethod
    def rate_after(self, num_updates: int) -> float:
        """The learning rate of the update after so many."""

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
        self._scale = 1.0
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
        self.updater.create_slots(self.variables)

    def lines(self, replica: ReplicaContext) -> Sequence[str]:
        """What all replicas and workers must do alike; now and then also checksums of values."""
        index = replica.local_index
        num_updates = int(self.updater.iterations.value_in(index))
        names = ", ".join([variable.name for variable in self.variables])
        lines = [self.updater.described(num_updates), f"gradients of {names}"]
        if num_updates % _STEPS_BETWEEN_CHECKSUMS == 0:
            lines += [v.checksum(index) for v in self.variables if not v.is_remote]
        return lines

    def prepare(self, local_index: int) -> None:
        """In the first step, see which gradients are dense, and agree on it with all workers."""
        # Anew in each call: what an earlier step has found is no gradient of this one.
        self._found = self._given
        if self._loss is not None:
            self._scale = self.updater.scale_of_loss(local_index)
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
        with self._overflowing():
            found = backward(loss, self._seed(loss))
        harm = "they would be neither trained nor saved"
        current_store().require_own(_owners(found), "the loss", harm)
        self._backward_communicates = workers.num_collectives > num_collectives
        return found

    def _make_reducer(self) -> GradientReducer:
        assert self._found is not None
        extended, variables = get_strategy().extended, self.variables
        local = [v.name for v in variables if not v.is_remote]
        if local and extended.remote_storage is not None:
            raise ValueError(
                f"{self.updater.name} is to change variables that live in this process and not on "
                f"the parameter servers ({', '.join(local)}): each trainer would train its own. "
                f"Create them inside `with strategy.scope():`"
            )
        # Also those of variables that have no gradient here: another worker's may have one, and
        # where the chief alone creates variables it would wait for this.
        self.updater.create_slots(variables)
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

    def fill(
        self,
        replica: ReplicaContext,
        this_round: Round,
        num_examples: float,
        num_accumulated: float,
    ) -> None:
        """Compute this replica's gradients, and hand them over as they come.

        With those of `num_accumulated` examples before, the means of all are handed over.
        """
        if num_accumulated:
            self.accumulate(replica.local_index, num_examples, num_accumulated)
            self._found = self._reducer.accumulations[replica.local_index].take()
        share = Share(this_round, self._reducer, replica.local_index)
        with self._overflowing():
            if self._found is None:
                assert self._loss is not None
                backward(self._loss, self._seed(self._loss), share.into, share.take)
            else:
                # Each is gone when it lies in its bucket: with those of a first step, the buckets
                # and the arena there would be four times the memory of the variables.
                found, self._found = dict(self._found), None
                for leaf in list(found):
                    share.take(leaf, found.pop(leaf))
            share.end()

    def accumulate(self, local_index: int, num_examples: float, num_accumulated: float) -> None:
        """Compute this replica's gradients, and keep them for the step that is made of several."""
        accumulation = self._reducer.accumulations[local_index]
        if not num_accumulated:  # what an interrupted step has left is of no use
            accumulation.begin()
        with self._overflowing():
            if self._found is None:
                assert self._loss is not None
                self._found = backward(self._loss, self._seed(self._loss))
            accumulation.add(self._found, num_examples)

    def _overflowing(self) -> AbstractContextManager[object]:
        """That gradients of a scaled loss overflow is no news: the optimizer looks for it."""
        return _USUAL if self._scale == 1 else np.errstate(over="ignore", invalid="ignore")

    def _seed(self, loss: Tensor) -> Array | None:
        """The gradient that backward begins with."""
        return None if self._scale == 1 else np.full_like(loss.data, self._scale)

    def _packs(self, local_index: int) -> Sequence[Pack]:
        """The reduced gradients of the loss as it is."""
        packs = self._reducer.packs(local_index)
        if self._scale == 1:
            return packs
        return [pack.changed(partial(scaled, factor=1 / self._scale)) for pack in packs]

    def reduced_norm(self, local_index: int) -> float:
        """The norm of the gradients of the step just made, over all replicas, before clipping."""
        total = 0.0
        gradients = [g for pack in self._packs(local_index) for g in pack.gradients]
        for gradient in gradients:
            if gradient is None:
                continue
            rows = gradient.unique().values if isinstance(gradient, IndexedSlices) else gradient
            numbers = to_host(rows).reshape(-1)
            total += float(np.dot(numbers, numbers))
        return math.sqrt(total)

    def apply(self, replica: ReplicaContext, average: bool) -> None:
        """Change this replica's copies along the reduced gradients; all replicas do so."""
        change_variables(self.updater, self._packs(replica.local_index), replica, average)


def change_variables(
    updater: Updater, packs: Sequence[Pack], replica: ReplicaContext, average: bool
) -> None:
    """Change what `replica` sees of variables along reduced gradients, and count the update."""
    counters, by = updater.update(packs, replica.local_index, average)
    if replica.strategy.extended.num_local_replicas > 1:
        changed = (*counters, *[variable for pack in packs for variable in pack.variables])
        if any(variable.num_copies == 1 for variable in changed):
            # Nobody reads the shared copies before the first replica has written them.
            replica.exchange("update of shared variables", None)
    increase(counters, replica, by)


def increase(counters: Iterable[Variable], replica: ReplicaContext, by: SupportsFloat = 1) -> None:
    """Count what was done; nobody reads a count that replicas share before it is increased."""
    for counter in counters:
        counter.cell.increase(replica.local_index, by)
    is_alone = replica.strategy.extended.num_local_replicas == 1
    if not is_alone and any(counter.num_copies == 1 for counter in counters):
        replica.exchange("increase of shared counters", None)


def once_outside_replicas(change: Callable[[], None]) -> None:
    """Call `change` in cross-replica context: once, where all local replicas make this call."""
    replica = get_replica_context()
    if replica is None:
        change()
        return
    replica.exchange("begin of a change of variables", None)
    if replica.local_index == 0:
        with entered(Frame(replica.strategy, None)):
            change()
    replica.exchange("end of a change of variables", None)
