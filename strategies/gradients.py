"""Gradients on their way from the replicas' backward passes to one reduced value per variable.

Each replica's backward pass fills its share of the buckets. The last one to fill a bucket adds it
up over all replicas, while the others go on with backward.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..autodiff import Array, Tensor
from .agreement import digest, is_common, require_common
from .buckets import Bucket, Gradient, GradientPart, Rows, plan_buckets
from .communication import BYTES_PER_PACK
from .context import ReplicaContext
from .cross_device_ops import CrossDeviceOps
from .interrupts import InterruptsPutOff
from .variables import Variable
from .workers import Workers

_NOTHING_SAID = digest(())

OnReady: TypeAlias = Callable[[Tensor, Any], None]
Produce: TypeAlias = Callable[[Mapping[Tensor, Array], OnReady], Any]
"""`produce(into, on_ready)` computes one replica's gradients, as `autodiff.backward` does."""


class GradientReducer:
    """Reduces the gradients of a fixed set of variables over the replicas of one strategy.

    Args:
        variables: In the order in which backward is expected to complete them.
        sparse: The names of those whose gradients come as `IndexedSlices`.
        num_replicas: The number of local replicas that take part in each reduction.
        ops: How buffers of several replicas are added up.
        bytes_per_pack: A bucket is closed when it has reached this size, the first one when it
            has reached a quarter of it.
        backward_meets: Whether workers meet in the backward pass itself, as they do behind
            synchronized batch normalization. Gradients then travel after it.

    Raises:
        RuntimeError: A variable has copies for another number of replicas.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        sparse: frozenset[str],
        num_replicas: int,
        ops: CrossDeviceOps,
        bytes_per_pack: int = BYTES_PER_PACK,
        backward_meets: bool = False,
    ) -> None:
        for variable in variables:
            variable.require_copies_for(num_replicas)
        self.variables = tuple(variables)
        self.backward_meets = backward_meets
        dense = [v for v in variables if v.name not in sparse]
        buckets = [Bucket(b, num_replicas, ops) for b in plan_buckets(dense, bytes_per_pack)]
        rows = [Rows(v, num_replicas) for v in variables if v.name in sparse]
        self.parts: list[GradientPart] = [*buckets, *rows]
        self._into = [
            {leaf: view for bucket in buckets for leaf, view in bucket.slices(replica)}
            for replica in range(num_replicas)
        ]
        self._places: list[dict[Tensor, tuple[int, int]]] = [
            {
                v.leaf(replica): (p, i)
                for p, part in enumerate(self.parts)
                for i, v in enumerate(part.variables)
            }
            for replica in range(num_replicas)
        ]
        self._named_unused = False
        self._lock = threading.Lock()

    def fill(self, replica: int, produce: Produce, this_round: Round) -> None:
        """Compute one replica's gradients; what it is the last to fill, it also reduces.

        Args:
            replica: The local index of the caller. One of weight 0 does the same as the others, for
                what is exchanged under way; its gradients are left out.
            produce: Hands over the gradients. A variable of which it gives none contributes nothing
                of this replica; what it gives for others is left aside.
            this_round: What the replicas have agreed on.

        Raises:
            RuntimeError: The caller has filled this reducer in this round already.
            ValueError: A gradient has not the shape of its variable.
        """
        this_round.enter(self, replica)
        left = [len(part.variables) for part in self.parts]
        missing = dict(self._places[replica])

        def on_ready(leaf: Tensor, gradient: Any) -> None:
            place = missing.pop(leaf, None)
            if place is None:
                return
            part, index = place
            self.parts[part].take(replica, index, gradient)
            filled(part)

        def filled(part: int) -> None:
            left[part] -= 1
            if left[part] == 0 and this_round.is_last((self, part)):
                self.parts[part].reduce(this_round.weights)
                this_round.pass_on(self, part)

        produce(self._into[replica], on_ready)
        for part, index in missing.values():
            self.parts[part].missing(replica, index)
            filled(part)
        if missing:
            parts = self.parts
            self._name_unused([parts[part].variables[i].name for part, i in missing.values()])

    def reduced(self, replica: int) -> list[tuple[Variable, Gradient]]:
        """Every variable with its reduced gradient, where `replica` can read it.

        A variable of which no replica of any worker had a gradient is not among them.
        Replicas may share the arrays: they are to be read only, and only until the next round.
        """
        return [
            (variable, gradient)
            for part in self.parts
            for variable, gradient in zip(part.variables, part.reduced(replica), strict=True)
            if gradient is not None
        ]

    def _name_unused(self, names: Sequence[str]) -> None:
        with self._lock:
            first_time, self._named_unused = not self._named_unused, True
        if first_time:
            logging.getLogger("paceline").warning(
                "The loss depends on no part of %d of %d variables, which a step leaves as they "
                "are where that is so on all replicas: %s.",
                len(names),
                len(self.variables),
                ", ".join(names),
            )


class Round:
    """What the replicas agree on when they meet to reduce gradients, and how far they are.

    Over several workers a part travels as soon as this worker's replicas have filled it, in the
    order that all workers share.

    Args:
        examples: The number of examples behind each local replica's gradients.
        average: Whether the result is the average over all examples, or the sum over replicas.
        workers: Who reduces together.
        sums: Numbers to add up over all workers on the way; see `totals`.
        alike: What each local replica is about to do, in lines, which must be the same for all
            replicas of all workers.

    Attributes:
        num_examples: Those of this worker's replicas.

    Raises:
        ValueError: A number of examples is negative.
        DisagreementError: Replicas of this worker are about to do different things.
    """

    def __init__(
        self,
        examples: Sequence[float],
        average: bool,
        workers: Workers,
        sums: Sequence[float],
        alike: Sequence[Sequence[str]] = (),
    ) -> None:
        if min(examples) < 0:
            raise ValueError(
                f"the replicas' numbers of examples must be at least 0, they are {list(examples)}"
            )
        if len(alike) > 1:
            require_common(alike, "replica")
        self._alike = next(filter(None, alike), ())
        full_batch = workers.full_batch(max(examples))
        self.weights = [n / full_batch if average else float(n > 0) for n in examples]
        self._average = average
        self._workers = workers
        self.num_examples = sum(examples)
        self._num_filling = len(examples)
        said = digest(self._alike) if workers.size > 1 else _NOTHING_SAID
        self._sums = np.array([sum(self.weights), *sums, *said], np.float64)
        self._sums_under_way = workers.start_adding_up(self._sums, "sums of a step")
        self._entered: set[tuple[GradientReducer, int]] = set()
        self._num_filled: Counter[tuple[GradientReducer, int]] = Counter()
        self._queue: list[tuple[GradientReducer, int]] = []
        self._ready: set[tuple[GradientReducer, int]] = set()
        self._num_started = 0
        self._lock = threading.Lock()

    @property
    def totals(self) -> np.ndarray:
        """The replicas' weights and `sums`, added up over all workers. After the end only."""
        return self._sums[: -len(_NOTHING_SAID)]

    def enter(self, reducer: GradientReducer, replica: int) -> None:
        """Note that `replica` begins to fill `reducer`.

        Raises:
            RuntimeError: It has done so before in this round.
        """
        with self._lock:
            if (reducer, replica) in self._entered:
                names = ", ".join(variable.name for variable in reducer.variables)
                raise RuntimeError(
                    f"one optimizer changes the same variables twice in one step ({names}); "
                    f"add up the losses, or use an optimizer for each"
                )
            self._entered.add((reducer, replica))
            self._enqueue(reducer)

    def _enqueue(self, reducer: GradientReducer) -> None:
        if all(queued is not reducer for queued, _ in self._queue):
            self._queue += [(reducer, part) for part in range(len(reducer.parts))]

    def is_last(self, part: tuple[GradientReducer, int]) -> bool:
        """Note that the caller has filled `part`; say whether it was the last replica to do so."""
        with self._lock:
            self._num_filled[part] += 1
            return self._num_filled[part] == self._num_filling

    def pass_on(self, reducer: GradientReducer, part: int) -> None:
        """A part is added up on this worker; send on what can go in the common order."""
        if self._workers.size == 1:
            reducer.parts[part].finish(self._workers, self._divisor)
            return
        with self._lock:
            self._ready.add((reducer, part))
            self._start_ready()

    def _start_ready(self, has_ended: bool = False) -> None:
        while self._num_started < len(self._queue):
            reducer, part = self._queue[self._num_started]
            # A part of which a replica has no gradient is ready at the end of its backward pass:
            # on some workers before they meet in it, on others after that.
            is_late = reducer.backward_meets and not has_ended
            if is_late or (reducer, part) not in self._ready:
                return
            reducer.parts[part].start(self._workers, f"gradients, part {self._num_started}")
            self._num_started += 1

    @property
    def _divisor(self) -> float:
        return float(self._sums[0]) or 1.0 if self._average else 1.0

    def finish(self) -> None:
        """Wait for everything that is under way. Called once on each worker, by any replica.

        Raises:
            DisagreementError: Workers are about to do different things; on all of them.
        """
        if self._workers.size == 1:
            return
        self._start_ready(has_ended=True)
        self._sums_under_way.wait()
        if not is_common(self._sums[-len(_NOTHING_SAID) :].tolist()):
            texts = self._workers.texts("\n".join(self._alike), "who makes another step")
            require_common([text.splitlines() for text in texts], "worker")
        for reducer, part in self._queue:
            reducer.parts[part].finish(self._workers, self._divisor)


def begin_round(
    replica: ReplicaContext,
    num_examples: float,
    average: bool,
    sums: Sequence[float] = (),
    alike: Sequence[str] = (),
) -> Round:
    """Meet all replicas to reduce gradients; all are then done with the results of the last round.

    Args:
        replica: The caller.
        num_examples: How many examples are behind its gradients: its weight in an average. With 0
            they are left out, as are those of a replica that stands in.
        average: See `Round`.
        sums: Numbers to add up over all replicas of all workers on the way.
        alike: What this replica is about to do; see `Round`.
    """
    place = f"{'averaging' if average else 'summing'} of gradients"
    workers = replica.strategy.extended.workers

    def agree(arrivals: list[tuple[float, Sequence[float], Sequence[str]]]) -> Round:
        examples, numbers, lines = zip(*arrivals, strict=True)
        local_sums = [sum(column) for column in zip(*numbers, strict=True)]
        return Round(examples, average, workers, local_sums, lines)

    weight = num_examples if replica.has_examples else 0
    agreed: Round = replica.exchange(place, (weight, sums, alike), agree)
    return agreed


def end_round(
    replica: ReplicaContext, this_round: Round, interrupts: InterruptsPutOff | None = None
) -> None:
    """Wait until all replicas of all workers have filled what they had to.

    Args:
        interrupts: Begun then: the update that follows is made on all local replicas, or on none.
    """
    place = "end of the reduction of gradients"
    replica.exchange(place, None, lambda _: this_round.finish(), interrupts)
