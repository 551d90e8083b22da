"""Gradients on their way from the replicas' backward passes to one reduced value per variable.

Many variables share a *bucket*, one contiguous buffer per replica. A gradient is written straight
into its slice; when all replicas have filled a bucket, the last one to do so adds it up over the
replicas while the others go on with backward (Li et al., "PyTorch Distributed", VLDB 2020, describe
the scheme). Gradients that touch only rows of a variable travel as `IndexedSlices` on their own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..autodiff import Array, IndexedSlices, Tensor
from .context import ReplicaContext
from .cross_device_ops import CrossDeviceOps
from .variables import Variable

Gradient: TypeAlias = "Array | IndexedSlices"
OnReady: TypeAlias = Callable[[Tensor, Any], None]
Produce: TypeAlias = Callable[[Mapping[Tensor, Array], OnReady], Any]
"""`produce(into, on_ready)` computes one replica's gradients, as `autodiff.backward` does."""

BYTES_PER_BUCKET = 4 << 20


class _Part(Protocol):
    """The gradients of some variables that are reduced together."""

    variables: Sequence[Variable]

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        """Note one gradient of one replica; a dense one may lie in its slice already."""

    def missing(self, replica: int, variable_index: int) -> None:
        """Note that a replica's gradient of a variable is zero."""

    def reduce(self, weights: Sequence[float], divisor: float) -> None:
        """Replace the replicas' gradients by Σ weight × gradient / divisor."""

    def reduced(self, replica: int) -> Sequence[Gradient]:
        """What `reduce` made, one for each variable, where `replica` can read it."""


class _Bucket:
    """Dense gradients of one dtype, packed into a contiguous buffer per replica."""

    def __init__(
        self, variables: Sequence[Variable], num_replicas: int, ops: CrossDeviceOps
    ) -> None:
        self.variables = variables
        self._ops = ops
        sizes = [v.size for v in variables]
        ends = np.cumsum(sizes)
        self._buffers: list[Array] = []
        self._views: list[list[Array]] = []
        for replica in range(num_replicas):
            like = variables[0].leaf(replica).data
            buffer = np.zeros(int(ends[-1]), like.dtype, like=like)
            self._buffers.append(buffer)
            self._views.append(
                [
                    buffer[end - size : end].reshape(v.shape)
                    for v, size, end in zip(variables, sizes, ends, strict=True)
                ]
            )

        self._on_host = isinstance(self._buffers[0], np.ndarray)

    def slices(self, replica: int) -> list[tuple[Tensor, Array]]:
        """Each variable's tensor in `replica` with the slice that takes its gradient."""
        views = self._views[replica]
        return [(v.leaf(replica), view) for v, view in zip(self.variables, views, strict=True)]

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        view = self._views[replica][variable_index]
        if isinstance(gradient, IndexedSlices):
            view.fill(0)
            gradient.add_to(view)
        elif gradient is not view:
            view[...] = gradient

    def missing(self, replica: int, variable_index: int) -> None:
        self._views[replica][variable_index].fill(0)

    def reduce(self, weights: Sequence[float], divisor: float) -> None:
        taking_part = []
        for buffer, weight in zip(self._buffers, weights, strict=True):
            if weight:
                taking_part.append(buffer)
                if weight != 1:
                    np.multiply(buffer, weight, out=buffer)
        first = self._buffers[0]
        if len(taking_part) > 1 or taking_part[0] is not first:
            device = self.variables[0].strategy.extended.replica_devices[0]
            self._ops.reduce(taking_part, device, out=first)
        if divisor != 1:
            np.divide(first, divisor, out=first)
        if not self._on_host:
            for buffer in self._buffers[1:]:
                buffer[...] = first

    def reduced(self, replica: int) -> Sequence[Gradient]:
        return self._views[0 if self._on_host else replica]


class _Rows:
    """The gradient of a variable of which a step reads only some rows."""

    def __init__(self, variable: Variable, num_replicas: int) -> None:
        self.variables = (variable,)
        self._gradients: list[Gradient | None] = [None] * num_replicas
        self._reduced: Gradient | None = None

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        self._gradients[replica] = gradient

    def missing(self, replica: int, variable_index: int) -> None:
        self._gradients[replica] = None

    def reduce(self, weights: Sequence[float], divisor: float) -> None:
        total: Gradient | None = None
        for gradient, weight in zip(self._gradients, weights, strict=True):
            if gradient is None or not weight:
                continue
            scaled = _scaled(gradient, weight / divisor)
            total = scaled if total is None else _added(total, scaled)
        if total is None:
            leaf = self.variables[0].leaf(0).data
            total = IndexedSlices(leaf[:0], np.zeros(0, np.int64, like=leaf), leaf.shape)
        self._reduced = total.unique() if isinstance(total, IndexedSlices) else total
        self._gradients = [None] * len(self._gradients)

    def reduced(self, replica: int) -> Sequence[Gradient]:
        assert self._reduced is not None
        return (self._reduced,)


def _scaled(gradient: Gradient, factor: float) -> Gradient:
    if factor == 1:
        return gradient
    if isinstance(gradient, IndexedSlices):
        values = gradient.values * gradient.values.dtype.type(factor)
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * gradient.dtype.type(factor)


def _added(total: Gradient, more: Gradient) -> Gradient:
    if isinstance(more, IndexedSlices):
        return more.add_to(total)
    return total.add_to(more) if isinstance(total, IndexedSlices) else np.add(total, more)


class GradientReducer:
    """Reduces the gradients of a fixed set of variables over the replicas of one strategy.

    Args:
        variables: In the order in which backward is expected to complete them.
        sparse: The names of those whose gradients come as `IndexedSlices`.
        num_replicas: The number of local replicas that take part in each reduction.
        ops: How buffers of several replicas are added up.
        bytes_per_bucket: A bucket is closed when it has reached this size.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        sparse: frozenset[str],
        num_replicas: int,
        ops: CrossDeviceOps,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
    ) -> None:
        self.variables = tuple(variables)
        self._lock = threading.Lock()
        dense = [v for v in variables if v.name not in sparse]
        buckets = [_Bucket(b, num_replicas, ops) for b in plan_buckets(dense, bytes_per_bucket)]
        rows = [_Rows(v, num_replicas) for v in variables if v.name in sparse]
        self._parts: list[_Part] = [*buckets, *rows]
        self._into = [
            {leaf: view for bucket in buckets for leaf, view in bucket.slices(replica)}
            for replica in range(num_replicas)
        ]
        self._place = {
            v.name: (p, i)
            for p, part in enumerate(self._parts)
            for i, v in enumerate(part.variables)
        }
        self._named_unused = False

    def fill(self, replica: int, produce: Produce, this_round: Round) -> None:
        """Compute one replica's gradients; reduce each part that this replica is the last to fill."""
        left = [len(part.variables) for part in self._parts]
        seen: set[str] = set()

        def on_ready(leaf: Tensor, gradient: Any) -> None:
            variable = leaf.owner
            if variable is None or variable.name not in self._place:
                return
            seen.add(variable.name)
            part, index = self._place[variable.name]
            self._parts[part].take(replica, index, gradient)
            filled(part)

        def filled(part: int) -> None:
            left[part] -= 1
            if left[part] == 0 and this_round.is_last((id(self), part)):
                self._parts[part].reduce(this_round.weights, this_round.divisor)

        produce(self._into[replica], on_ready)
        unused = [name for name in self._place if name not in seen]
        for name in unused:
            part, index = self._place[name]
            self._parts[part].missing(replica, index)
            filled(part)
        if unused:
            self._name_unused(unused)

    def reduced(self, replica: int) -> list[tuple[Variable, Gradient]]:
        """Every variable with its reduced gradient, where `replica` can read it.

        Replicas may share the arrays: they are to be read only, and only until the next round.
        """
        return [
            pair
            for part in self._parts
            for pair in zip(part.variables, part.reduced(replica), strict=True)
        ]

    def _name_unused(self, names: Sequence[str]) -> None:
        with self._lock:
            first_time, self._named_unused = not self._named_unused, True
        if first_time:
            logging.getLogger("paceline").info(
                "The loss does not depend on %d of %d variables, whose gradients count as zero: %s.",
                len(names),
                len(self._place),
                ", ".join(names),
            )


class _Progress:
    """How many replicas have filled each part in one round."""

    def __init__(self) -> None:
        self._filled: dict[Any, int] = {}
        self._lock = threading.Lock()

    def fill(self, part: Any) -> int:
        """Note that one more replica has filled `part`; return how many have."""
        with self._lock:
            self._filled[part] = self._filled.get(part, 0) + 1
            return self._filled[part]


class Round:
    """What the replicas agree on when they meet to reduce gradients.

    Args:
        examples: The number of examples behind each replica's gradients.
        average: Whether the result is the average over all examples, or the plain sum over replicas.
        progress: Shared by the replicas.
    """

    def __init__(self, examples: Sequence[float], average: bool, progress: _Progress) -> None:
        self.weights, self.divisor = weigh(examples)
        if not average:
            self.weights, self.divisor = [float(weight > 0) for weight in self.weights], 1.0
        self._num_filling = sum(weight > 0 for weight in self.weights)
        self._progress = progress

    def is_last(self, part: Any) -> bool:
        """Note that the caller has filled `part`; say whether it was the last of those who do."""
        return self._progress.fill(part) == self._num_filling


def begin_round(
    replica: ReplicaContext, num_examples: float, average: bool, value: Any = None
) -> tuple[Round, list[Any]]:
    """Meet all replicas to reduce gradients; everyone is then done with the results of the last round.

    Args:
        replica: The caller.
        num_examples: How many examples are behind its gradients: its weight in an average. With 0
            it fills nothing.
        average: See `Round`.
        value: Something to show to the others.

    Returns:
        The round, and the values of all replicas in replica order.
    """
    arrivals = replica.exchange("reduction of gradients", (num_examples, value, _Progress()))
    this_round = Round([n for n, _, _ in arrivals], average, arrivals[0][2])
    return this_round, [value for _, value, _ in arrivals]


def end_round(replica: ReplicaContext) -> None:
    """Wait until all replicas have filled what they had to."""
    replica.exchange("end of the reduction of gradients", None)


def weigh(num_examples: Sequence[float]) -> tuple[list[float], float]:
    """Each replica's weight relative to the largest batch, and what to divide the sum by.

    Equal batches weigh exactly 1, and a single replica's gradient stays untouched to the bit.

    >>> weigh([4, 4]), weigh([4, 2]), weigh([3])
    (([1.0, 1.0], 2.0), ([1.0, 0.5], 1.5), ([1.0], 1.0))
    """
    largest = max(num_examples)
    if largest == 0:
        return [0.0] * len(num_examples), 1.0
    weights = [n / largest for n in num_examples]
    return weights, sum(weights)


def plan_buckets(variables: Sequence[Variable], bytes_per_bucket: int) -> list[list[Variable]]:
    """Cut a list of variables into runs of one dtype and of about `bytes_per_bucket` each."""
    buckets: list[list[Variable]] = []
    room = 0
    for variable in variables:
        size = variable.size * variable.dtype.itemsize
        if not buckets or room <= 0 or buckets[-1][0].dtype != variable.dtype:
            buckets.append([])
            room = bytes_per_bucket
        buckets[-1].append(variable)
        room -= size
    return buckets
