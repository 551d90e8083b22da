"""Gradients on their way from the replicas' backward passes to one reduced value per variable.

Many variables share a *bucket*, one contiguous buffer per replica. A gradient is written straight
into its slice; when all replicas have filled a bucket, the last one to do so adds it up over the
replicas while the others go on with backward (Li et al., "PyTorch Distributed", VLDB 2020, describe
the scheme). Gradients that touch only rows of a variable travel as `IndexedSlices` on their own.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..autodiff import Array, IndexedSlices, Tensor
from .arrays import add_up, moved
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
        self._devices = [variables[0].device_of(replica) for replica in range(num_replicas)]
        self._buffers: list[Array] = []
        self._views: list[list[Array]] = []
        for replica, device in enumerate(self._devices):
            like = variables[0].leaf(replica).data
            with device.use():
                buffer = np.zeros(sum(v.size for v in variables), like.dtype, like=like)
            self._buffers.append(buffer)
            self._views.append(_cut(buffer, [v.shape for v in variables]))
        self._on_host = all(isinstance(buffer, np.ndarray) for buffer in self._buffers)

    def slices(self, replica: int) -> list[tuple[Tensor, Array]]:
        """Each variable's tensor in `replica` with the slice that takes its gradient."""
        views = self._views[replica]
        return [(v.leaf(replica), view) for v, view in zip(self.variables, views, strict=True)]

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        view = self._views[replica][variable_index]
        if gradient is view:
            return
        _check_shape(self.variables[variable_index], gradient)
        if isinstance(gradient, IndexedSlices):
            view.fill(0)
            gradient.add_to(view)
        else:
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
            self._ops.reduce(taking_part, self._devices[0], out=first)
        if divisor != 1:
            np.divide(first, divisor, out=first)
        if not self._on_host:
            for buffer, device in zip(self._buffers[1:], self._devices[1:], strict=True):
                with device.use():
                    buffer[...] = device.put(first)

    def reduced(self, replica: int) -> Sequence[Gradient]:
        return self._views[0 if self._on_host else replica]


class _Rows:
    """The gradient of a variable of which a step reads only some rows."""

    def __init__(self, variable: Variable, num_replicas: int) -> None:
        self.variables: Sequence[Variable] = (variable,)
        self._devices = [variable.device_of(replica) for replica in range(num_replicas)]
        self._gradients: list[Gradient | None] = [None] * num_replicas
        self._reduced: list[Gradient] = []

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        _check_shape(self.variables[0], gradient)
        self._gradients[replica] = gradient

    def missing(self, replica: int, variable_index: int) -> None:
        self._gradients[replica] = None

    def reduce(self, weights: Sequence[float], divisor: float) -> None:
        parts = [
            moved(_with_values(np.multiply, gradient, weight), self._devices[0])
            for gradient, weight in zip(self._gradients, weights, strict=True)
            if gradient is not None and weight
        ]
        total = _with_values(np.divide, add_up(parts or [self._no_rows()]), divisor)
        self._reduced = [moved(total, device) for device in self._devices]
        self._gradients = [None] * len(self._gradients)

    def _no_rows(self) -> IndexedSlices:
        leaf = self.variables[0].leaf(0).data
        return IndexedSlices(leaf[:0], np.zeros(0, np.int64, like=leaf), leaf.shape)

    def reduced(self, replica: int) -> Sequence[Gradient]:
        return (self._reduced[replica],)


def _cut(buffer: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Consecutive slices of a one-dimensional array, in the given shapes."""
    sizes = [math.prod(shape) for shape in shapes]
    ends = itertools.accumulate(sizes)
    return [
        buffer[end - size : end].reshape(shape)
        for shape, size, end in zip(shapes, sizes, ends, strict=True)
    ]


def _with_values(ufunc: np.ufunc, gradient: Gradient, number: float) -> Gradient:
    """A gradient multiplied or divided; by 1 it stays the same, to the bit."""
    if number == 1:
        return gradient
    if isinstance(gradient, IndexedSlices):
        values = ufunc(gradient.values, number)
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return ufunc(gradient, number)


def _check_shape(variable: Variable, gradient: Gradient) -> None:
    shape = variable.leaf(0).data.shape
    if tuple(gradient.shape) != shape:
        raise ValueError(
            f"the gradient of variable {variable.name!r} has shape {tuple(gradient.shape)}, "
            f"the variable has shape {shape}"
        )


class GradientReducer:
    """Reduces the gradients of a fixed set of variables over the replicas of one strategy.

    Args:
        variables: In the order in which backward is expected to complete them.
        sparse: The names of those whose gradients come as `IndexedSlices`.
        num_replicas: The number of local replicas that take part in each reduction.
        ops: How buffers of several replicas are added up.
        bytes_per_bucket: A bucket is closed when it has reached this size.

    Raises:
        RuntimeError: A variable has copies for another number of replicas.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        sparse: frozenset[str],
        num_replicas: int,
        ops: CrossDeviceOps,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
    ) -> None:
        for variable in variables:
            variable.require_copies_for(num_replicas)
        self.variables = tuple(variables)
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
        self._lock = threading.Lock()

    def fill(self, replica: int, produce: Produce, this_round: Round) -> None:
        """Compute one replica's gradients; what it is the last to fill, it also reduces.

        Args:
            replica: The local index of the caller. If it has no examples nothing is computed.
            produce: Hands over the gradients. A variable of which it gives none has a gradient of
                zero; what it gives for others is left aside.
            this_round: What the replicas have agreed on.

        Raises:
            RuntimeError: The caller has filled this reducer in this round already.
            ValueError: A gradient has not the shape of its variable.
        """
        if not this_round.weights[replica]:
            return
        this_round.enter(self, replica)
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
            if left[part] == 0 and this_round.is_last((self, part)):
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
                "The loss depends on no part of %d of %d variables, whose gradients are zero: %s.",
                len(names),
                len(self._place),
                ", ".join(names),
            )


class Round:
    """What the replicas agree on when they meet to reduce gradients.

    Args:
        examples: The number of examples behind each replica's gradients.
        average: Whether the result is the average over all examples, or the sum over replicas.

    Raises:
        ValueError: No replica has examples, or a number is negative.
    """

    def __init__(self, examples: Sequence[float], average: bool) -> None:
        if min(examples) < 0 or max(examples) == 0:
            raise ValueError(
                f"the replicas' numbers of examples must be at least 0 and one of them positive, "
                f"they are {list(examples)}"
            )
        self.weights, self.divisor = weigh(examples)
        if not average:
            self.weights, self.divisor = [float(weight > 0) for weight in self.weights], 1.0
        self._num_filling = sum(weight > 0 for weight in self.weights)
        self._entered: set[tuple[GradientReducer, int]] = set()
        self._num_filled: Counter[tuple[GradientReducer, int]] = Counter()
        self._lock = threading.Lock()

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

    def is_last(self, part: tuple[GradientReducer, int]) -> bool:
        """Note that the caller has filled `part`; say whether it was the last of those who do."""
        with self._lock:
            self._num_filled[part] += 1
            return self._num_filled[part] == self._num_filling


def begin_round(
    replica: ReplicaContext, num_examples: float, average: bool, value: Any = None
) -> tuple[Round, list[Any]]:
    """Meet all replicas to reduce gradients; all are then done with the results of the last round.

    Args:
        replica: The caller.
        num_examples: How many examples are behind its gradients: its weight in an average. With 0
            it fills nothing.
        average: See `Round`.
        value: Something to show to the others.

    Returns:
        The round, and the values of all replicas in replica order.
    """
    place = f"{'averaging' if average else 'summing'} of gradients"

    def agree(arrivals: list[Any]) -> tuple[Round, list[Any]]:
        return Round([n for n, _ in arrivals], average), [shown for _, shown in arrivals]

    agreed: tuple[Round, list[Any]] = replica.exchange(place, (num_examples, value), agree)
    return agreed


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
    weights = [n / largest for n in num_examples]
    return weights, sum(weights)


def plan_buckets(variables: Sequence[Variable], bytes_per_bucket: int) -> list[list[Variable]]:
    """Cut a list of variables into runs of one dtype and of about `bytes_per_bucket` each."""
    buckets: list[list[Variable]] = []
    room = 0
    for variable in variables:
        if not buckets or room <= 0 or buckets[-1][0].dtype != variable.dtype:
            buckets.append([])
            room = bytes_per_bucket
        buckets[-1].append(variable)
        room -= variable.size * variable.dtype.itemsize
    return buckets
