"""`ReplicaContext`: what a step function can ask and do as one replica among several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..autodiff import (
    Array,
    TensorLike,
    Vjp,
    effect,
    found_anew,
    look,
    of_any_shape,
    record,
    traceable,
)
from ..inputs import nest
from ..observe import log_once
from .devices.arrays import as_array
from .devices.cross_device_ops import ReduceOp
from .devices.device import HOST
from .extended import GIVE_ALL, StrategyExtended
from .replicas.frame import Frame, current_frame, entered
from .replicas.interrupts import InterruptsPutOff
from .replicas.rendezvous import Rendezvous
from .replicas.values import PerReplica, brought, narrowed, regroup, select_replica
from .workers.joining import CommunicationOptions


@dataclass(frozen=True)
class ValueContext:
    """What a value function may ask: for which replica it makes a value, and of how many."""

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


class CurrentStrategy(Protocol):
    """What those who run under a strategy may ask of it: there, its other verbs are refused."""

    @property
    def extended(self) -> StrategyExtended: ...

    @property
    def num_replicas_in_sync(self) -> int: ...


def get_replica_context() -> ReplicaContext | None:
    """The replica that the caller runs as; None in cross-replica context.

    Outside any scope this is the only replica of the default strategy.
    """
    replica: ReplicaContext | None = current_frame().replica
    return replica


class ReplicaContext:
    """What a step function can ask and do as one replica among several.

    The verbs that combine values must be called by all replicas of the strategy, in the same order;
    they block until all have come. A replica without examples makes the same calls; of what it
    gives nothing goes into sums, means and joined arrays, nor does it change a variable.

    Attributes:
        device: Where this replica computes.
        loss_weight: What the gradients of this replica's loss are multiplied by later; other than 1
            only while a step goes backward that averages over the examples of all replicas.
    """

    __slots__ = (
        "_rendezvous",
        "device",
        "has_examples",
        "local_index",
        "loss_weight",
        "strategy",
    )

    def __init__(self, strategy: CurrentStrategy, local_index: int, rendezvous: Rendezvous) -> None:
        self.strategy = strategy
        self.device = strategy.extended.replica_devices[local_index]
        self.local_index = local_index
        self.has_examples = True
        self.loss_weight = 1.0
        self._rendezvous = rendezvous

    def stand_in(self) -> None:
        """Take part in all that follows in this `run`, and contribute nothing to it.

        This is for a replica that has no examples in a step: where it computes with some all the
        same, nobody waits for it in vain, and it creates the variables that the others create.
        """
        self.has_examples = False

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """`stand_in` for the block: for what of a step has no examples here."""
        had_examples, self.has_examples = self.has_examples, False
        try:
            yield
        finally:
            self.has_examples = had_examples

    @property
    def replica_id_in_sync_group(self) -> int:
        """This replica's number among all replicas of all workers, from 0."""
        extended = self.strategy.extended
        return extended.shard[1] * extended.num_local_replicas + self.local_index

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas of all workers."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The name of this replica's device, as a 1-tuple."""
        return (str(self.device),)

    @look
    def exchange(
        self,
        place: str,
        value: Any,
        combine: Callable[[list[Any]], Any] = tuple,
        interrupts: InterruptsPutOff | None = None,
    ) -> Any:
        """Meet all local replicas; return what `combine` makes of the values they bring.

        Args:
            place: What the meeting is for; all must have come for the same.
            value: What this replica brings. The others may read it until they have all met, and
                not later.
            combine: Called once, with the values in replica order; everyone gets the same result.
            interrupts: Begun when all have met: what the caller does next is not interrupted.
        """
        return self._rendezvous.exchange(self.local_index, place, value, combine, interrupts)

    def contribute(self, place: str, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """`exchange`, where `combine` gets the values of the replicas that have examples only.

        There may be none. Whatever changes what others see goes this way.
        """

        def combine_contributions(arrivals: list[tuple[Any, bool]]) -> Any:
            return combine([brought for brought, has_examples in arrivals if has_examples])

        return self.exchange(place, (value, self.has_examples), combine_contributions)

    @effect
    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Combine a structure of arrays over all replicas; every replica gets the result.

        All arrays of the structure that have one dtype travel together.

        Args:
            reduce_op: `ReduceOp.SUM` or `ReduceOp.MEAN`, or its name.
            value: A tensor, an array, a number or `IndexedSlices`, or a nested structure of them,
                of equal shapes on all replicas.
            options: How workers talk to each other this time: their `bytes_per_pack` and
                `timeout_seconds`. What else they hold is the strategy's, and warned about.

        Returns:
            The same structure with the combined arrays, on this replica's device and its own. A
            tensor gives a tensor of its dtype, through which gradients flow back to all replicas,
            who then must all go backward through it: the loss is that of all replicas together.

        Raises:
            ValueError: Structures or shapes differ between replicas.
            OverflowError: A tensor of whole numbers has a sum beyond its dtype.
        """
        op = ReduceOp.parse(reduce_op)
        reduce = partial(self.strategy.extended.all_reduce, op, options=options)
        results = self._combined(f"all_reduce({op.name})", value, reduce)
        if not any(isinstance(leaf, TensorLike) for leaf in nest.flatten(value)):
            return traceable(results)

        def back(gradient: Array, outs: Any) -> tuple[Array]:
            # The gradient of a sum over replicas is the sum over replicas of their gradients.
            weight = self.loss_weight
            return (self.all_reduce(op, gradient * weight, options) / (weight or 1.0),)

        return traceable(
            nest.map_structure(lambda g, result: _like_given(g, result, back), value, results)
        )

    @of_any_shape
    @effect
    def all_gather(self, value: Any, axis: int, options: CommunicationOptions | None = None) -> Any:
        """Concatenate the replicas' arrays along `axis`, in replica order; every replica gets all.

        Args:
            value: An array or tensor of rank ≥ 1, or a nested structure of them; the lengths along
                `axis` may differ between replicas.
            axis: In [0, rank).
            options: Accepted for TensorFlow's signature, with a warning: a strategy has its own.

        Returns:
            The same structure with the joined arrays, on this replica's device and its own;
            tensors of tensors, and with their gradients, as for `all_reduce`.

        Raises:
            ValueError: Structures, or shapes apart from `axis`, differ between replicas; a value is
                a scalar or `IndexedSlices`; or `axis` is out of range.
        """
        if options not in (None, CommunicationOptions()):
            log_once(logging.WARNING, "The options of all_gather have no effect; %s.", GIVE_ALL)
        gather = self.strategy.extended.all_gather

        def gather_each(
            values: Sequence[Sequence[Any]], has_examples: Sequence[bool]
        ) -> list[list[Any]]:
            return [gather(axis, parts, has_examples) for parts in values]

        results = self._combined(f"all_gather(axis={axis})", value, gather_each)

        def with_gradient(given: Any, result: Array) -> Any:
            return _like_given(given, result, partial(self._scattered, given, axis))

        return traceable(nest.map_structure(with_gradient, value, results))

    def _scattered(self, given: TensorLike, axis: int, gradient: Array, outs: Any) -> tuple[Array]:
        """The sum over replicas of what flows back to a joined array, and of it the own part."""
        shape, index = given.shape, self.replica_id_in_sync_group
        lengths = np.zeros(self.num_replicas_in_sync, np.int64)
        lengths[index] = shape[axis]
        weight = self.loss_weight
        lengths, total = self.all_reduce(ReduceOp.SUM, (lengths, gradient * weight))
        begin = int(lengths[:index].sum())
        own = total[(slice(None),) * axis + (slice(begin, begin + int(lengths[index])),)]
        # What a replica without examples gave was left out.
        return (own / (weight or 1.0) if own.shape == shape else np.zeros(shape, like=gradient),)

    @of_any_shape
    @effect
    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Meet all local replicas, call `merge_fn` once for all of them, and go on with its result.

        Args:
            merge_fn: Called in cross-replica context as `merge_fn(strategy, *args, **kwargs)`, each
                argument a `PerReplica` of what the replicas gave. The first replica's thread makes
                the call, which is the one that called `run`. What it reduces or gathers is made of
                the values of replicas with examples. As outside replicas, it computes on the host.
            args, kwargs: What this replica gives.

        Returns:
            This replica's part of what `merge_fn` returned: tensors, and arrays of a GPU, on this
            replica's device. NumPy's arrays stay in host memory, until a tensor meets them.
        """
        # They meet twice: with what `merge_fn` is called with, and for its result. In between it
        # runs in the first replica's thread, and the others wait.
        place = f"merge_call({getattr(merge_fn, '__name__', 'function')})"
        arrivals = self.exchange(place, ((args, dict(kwargs or {})), self.has_examples))
        result = None
        if self.local_index == 0:
            given, has_examples = zip(*arrivals, strict=True)
            merged_args, merged_kwargs = regroup(given)
            with entered(Frame(self.strategy, None, has_examples)), HOST.use():
                result = merge_fn(self.strategy, *merged_args, **merged_kwargs)
        part = self._part_of(self.exchange(place, result)[0])
        return traceable(brought(part, self.device))

    def _combined(
        self,
        place: str,
        value: Any,
        combine: Callable[[Sequence[Sequence[Any]], Sequence[bool]], Sequence[Sequence[Any]]],
    ) -> Any:
        """This replica's part of what `combine` makes of each leaf's arrays of all replicas."""

        def combine_structures(arrivals: list[tuple[Any, bool]]) -> Any:
            structures, has_examples = zip(*arrivals, strict=True)
            first, *others = structures
            leaves = [nest.flatten(first), *(nest.leaves_in_order_of(first, s) for s in others)]
            combined = combine(list(zip(*leaves, strict=True)), has_examples)
            return nest.repacked(first, [PerReplica(parts) for parts in combined])

        mine = nest.map_structure(as_array, value)
        return self._part_of(self.exchange(place, (mine, self.has_examples), combine_structures))

    def _part_of(self, structure: Any) -> Any:
        return select_replica(
            structure, self.local_index, self.strategy.extended.num_local_replicas
        )


found_anew(ReplicaContext, get_replica_context)


def _like_given(given: Any, result: Any, vjp: Vjp) -> Any:
    """A combined array as a tensor where a tensor was given, in its dtype."""
    if not isinstance(given, TensorLike):
        return result
    tensor = given.tensor()
    return record(narrowed(result, tensor.data.dtype), (tensor,), vjp)
