"""The reduction of gradients over replicas and workers, while backward goes on.

A `GradientReducer` has the buckets of some variables, and is made once. In the `Round` of a step
each replica fills its `Share` of them. The last one to fill a bucket adds it up over all replicas,
while the others go on with backward.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...autodiff import Array, Tensor
from ..devices.cross_device_ops import CrossDeviceOps
from ..variables.variable import Variable
from ..workers.joining import BYTES_PER_PACK
from ..workers.workers import Workers
from .accumulation import Accumulation
from .agreement import digest, is_common, require_common
from .buckets import Bucket, GradientPart, Rows, plan_buckets
from .packs import Gradient, Pack, pairs_of

_NOTHING_SAID = digest(())


class GradientReducer:
    """Reduces the gradients of a fixed set of variables over the replicas of one strategy.

    Args:
        variables: In the order in which backward is expected to complete them.
        sparse: The names of those whose gradients come as `IndexedSlices`.
        num_replicas: The number of local replicas that take part in each reduction.
        ops: How buffers of several replicas are added up.
        workers: With whom they are added up after that; all of them make a reducer alike.
        bytes_per_pack: A bucket is closed when it has reached this size, the first one when it
            has reached a quarter of it.
        backward_communicates: Whether workers meet in the backward pass itself, as they do behind
            synchronized batch normalization. Gradients then travel after it.

    Attributes:
        parts: The buckets, and the variables whose gradients travel as rows.
        sizes: How many variables each part has.
        into: For each replica, its slice of a bucket for each variable's tensor.
        places: For each replica, the part and the place in it of each variable's tensor.
        accumulations: For each replica, the gradients of the next step that it has computed before.

    Raises:
        RuntimeError: A variable has copies for another number of replicas.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        sparse: frozenset[str],
        num_replicas: int,
        ops: CrossDeviceOps,
        workers: Workers,
        bytes_per_pack: int = BYTES_PER_PACK,
        backward_communicates: bool = False,
    ) -> None:
        for variable in variables:
            variable.require_copies_for(num_replicas)
        self.variables = tuple(variables)
        self.backward_communicates = backward_communicates
        dense = [v for v in variables if v.name not in sparse]
        plan = plan_buckets(dense, bytes_per_pack)
        buckets = [Bucket(variables, num_replicas, ops, workers) for variables in plan]
        rows = [Rows(v, num_replicas) for v in variables if v.name in sparse]
        self.parts: list[GradientPart] = [*buckets, *rows]
        self.sizes = [len(part.variables) for part in self.parts]
        self.into = [
            {leaf: view for bucket in buckets for leaf, view in bucket.slices(replica)}
            for replica in range(num_replicas)
        ]
        self.places: list[dict[Tensor, tuple[int, int]]] = [
            {
                v.leaf(replica): (p, i)
                for p, part in enumerate(self.parts)
                for i, v in enumerate(part.variables)
            }
            for replica in range(num_replicas)
        ]
        self.accumulations = [Accumulation() for _ in range(num_replicas)]
        self._named_unused = False
        self._lock = threading.Lock()

    def packs(self, replica: int) -> list[Pack]:
        """The reduced gradients of all variables, where `replica` can read them.

        Replicas may share the arrays: they are to be read only, and only until the next round.
        """
        return [pack for part in self.parts for pack in part.packs(replica)]

    def reduced(self, replica: int) -> list[tuple[Variable, Gradient]]:
        """The same by variable, without those of which no replica of any worker had one."""
        pairs = pairs_of(self.packs(replica))
        return [(variable, gradient) for variable, gradient in pairs if gradient is not None]

    def warn_of_unused(self, places: Sequence[tuple[int, int]]) -> None:
        """Say once which variables a replica's loss does not depend on.

        Args:
            places: Their parts, and their places in these.
        """
        with self._lock:
            first_time, self._named_unused = not self._named_unused, True
        if first_time:
            names = [self.parts[part].variables[index].name for part, index in places]
            logging.getLogger("paceline").warning(
                "The loss depends on no part of %d of %d variables, which a step leaves as they "
                "are where that is so on all replicas: %s.",
                len(names),
                len(self.variables),
                ", ".join(names),
            )


class Offer(NamedTuple):
    """What one replica brings when all meet to agree on a step."""

    num_examples: float
    sums: Sequence[float]
    lines: Sequence[str]
    average: bool
    workers: Workers


class Round:
    """What the replicas agree on when they meet to reduce gradients, and how far they are.

    Over several workers a part travels as soon as this worker's replicas have filled it, in the
    order that all workers share. `weights` is how much each local replica's gradients count.
    """

    def __init__(self, offers: Sequence[Offer]) -> None:
        first = offers[0]
        examples = [offer.num_examples for offer in offers]
        if min(examples) < 0:
            raise ValueError(
                f"the replicas' numbers of examples must be at least 0, they are {examples}"
            )
        self._average, self._lines = first.average, first.lines
        self._workers = workers = first.workers
        self._is_alone = workers.size == 1
        sums = first.sums
        if len(offers) > 1:
            lines = [offer.lines for offer in offers]
            require_common(lines, "replica")
            self._lines = next(filter(None, lines), ())
            sums = [sum(column) for column in zip(*[offer.sums for offer in offers], strict=True)]
        # Relative to a full batch: equal batches weigh exactly 1, and the gradient of a replica
        # that is alone is never scaled.
        full_batch = workers.full_batch(max(examples))
        self.weights = [n / full_batch if self._average else float(n > 0) for n in examples]
        self._num_examples = sum(examples) if self._average else 1
        # Whether all workers make the same step travels with the sums, in no message of its own.
        # The lines themselves are asked for only where they differ.
        said = _NOTHING_SAID if self._is_alone else digest(self._lines)
        self._sums = [sum(self.weights), *sums, *said]
        self._wait_for_sums = workers.start_adding_up_numbers(self._sums, "sums of a step")
        self._entered: dict[GradientReducer, list[int]] = {}
        self._num_missing: dict[GradientReducer, list[int]] = {}
        """For each part: how many replicas have not filled it."""
        self._queue: list[tuple[GradientReducer, int]] = []
        self._num_started = 0
        self._lock = threading.Lock()

    @property
    def totals(self) -> list[float]:
        """The replicas' weights and `sums`, added up over all workers. After the end only."""
        return self._sums[: -len(_NOTHING_SAID)]

    @property
    def num_examples_to_settle(self) -> float:
        """Those of this worker, for changes that travel on; 0 where they are not to be used.

        What is no number must not come to the variables of others.
        """
        return self._num_examples if all(map(math.isfinite, self.totals)) else 0

    def enter(self, reducer: GradientReducer, replica: int) -> None:
        """Note that `replica` begins to fill `reducer`: once in a round."""
        with self._lock:
            entered = self._entered.get(reducer)
            # The queue is the order in which parts travel, and must be that of all workers. A
            # replica enters the reducers in the order of the step's updates; whoever is the first
            # to enter one has entered those before it, so that they are queued already, whichever
            # thread is ahead.
            if entered is None:
                entered = self._entered[reducer] = []
                self._num_missing[reducer] = [len(self.weights)] * len(reducer.parts)
                for number, part in enumerate(reducer.parts):
                    self._queue.append((reducer, number))
                    part.begin()
            if replica in entered:
                names = ", ".join(variable.name for variable in reducer.variables)
                raise RuntimeError(
                    f"one optimizer changes the same variables twice in one step ({names}); "
                    f"add up the losses, or use an optimizer for each"
                )
            entered.append(replica)

    def filled(self, reducer: GradientReducer, part: int) -> None:
        """Note that one replica has filled a part; the last one to do so adds it up, on its way."""
        num_missing = self._num_missing[reducer]
        with self._lock:
            is_last = num_missing[part] == 1
            if not is_last:
                num_missing[part] -= 1
                return
        filled = reducer.parts[part]
        filled.reduce(self.weights)
        if self._is_alone:
            if not filled.is_reduced_later:
                filled.finish(self._workers, self._divisor)
            return
        with self._lock:
            num_missing[part] = 0  # only now: another replica may start what is ready
            self._start_ready()

    def _start_ready(self, has_ended: bool = False) -> None:
        """Let travel what is ready, up to the first part that is not.

        A part that is ready before its turn waits: all workers call the communicator in the one
        order of the queue. With the lock held, two replicas cannot start parts in another.
        """
        while self._num_started < len(self._queue):
            reducer, part = self._queue[self._num_started]
            # A part of which a replica has no gradient is ready at the end of its backward pass:
            # on some workers before they meet in it, on others after that.
            is_late = reducer.backward_communicates and not has_ended
            if is_late or self._num_missing[reducer][part]:
                return
            reducer.parts[part].start(self._workers, f"gradients, part {self._num_started}")
            self._num_started += 1

    @property
    def _divisor(self) -> float:
        return self._sums[0] or 1.0 if self._average else 1.0

    def finish(self) -> None:
        """Wait for everything that is under way. Called once on each worker, by any replica."""
        if self._is_alone:
            for reducer, part in self._queue:
                if reducer.parts[part].is_reduced_later:
                    reducer.parts[part].finish(self._workers, self._divisor)
            return
        self._start_ready(has_ended=True)
        self._sums = self._wait_for_sums()
        if not is_common(self._sums[-len(_NOTHING_SAID) :]):
            texts = self._workers.texts("\n".join(self._lines), "who makes another step")
            require_common([text.splitlines() for text in texts], "worker")
        for reducer, part in self._queue:
            reducer.parts[part].finish(self._workers, self._divisor)


class Share:
    """One replica's share of the buckets of a reducer, while its gradients come.

    Args:
        this_round: What the replicas have agreed on.
        reducer: Whose buckets.
        replica: The local index of the caller. One of weight 0 does the same as the others, for
            what is exchanged under way; its gradients are left out.

    Attributes:
        into: Where gradients may be written, so that they need not be copied.

    Raises:
        RuntimeError: The caller has filled this reducer in this round already.
    """

    __slots__ = ("_left", "_missing", "_reducer", "_replica", "_round", "into")

    def __init__(self, this_round: Round, reducer: GradientReducer, replica: int) -> None:
        this_round.enter(reducer, replica)
        self._round = this_round
        self._reducer = reducer
        self._replica = replica
        self._left = reducer.sizes.copy()
        self._missing = reducer.places[replica].copy()
        self.into: Mapping[Tensor, Array] = reducer.into[replica]

    def take(self, leaf: Tensor, gradient: Gradient) -> None:
        """Take the gradient of a variable; one of another tensor is left aside.

        Raises:
            ValueError: It has not the shape of the variable.
        """
        place = self._missing.pop(leaf, None)
        if place is None:
            return
        part, index = place
        if gradient is not self.into.get(leaf):  # else it was written where it belongs
            self._reducer.parts[part].take(self._replica, index, gradient)
        self._left[part] -= 1
        if self._left[part] == 0:
            self._end_part(part, ())

    def end(self) -> None:
        """No more come: what is missing contributes nothing of this replica."""
        if not self._missing:
            return
        missing: dict[int, list[int]] = {}
        for part, index in self._missing.values():
            missing.setdefault(part, []).append(index)
        for part, indices in missing.items():
            self._end_part(part, indices)
        self._reducer.warn_of_unused(list(self._missing.values()))

    def _end_part(self, part: int, missing: Sequence[int]) -> None:
        self._reducer.parts[part].end(self._replica, missing)
        self._round.filled(self._reducer, part)
