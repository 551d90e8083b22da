"""How workers and their replicas share batches: who takes what, and until when."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from . import nest
from .checks import COUNT, STATE, checked_fields, read_again, refused
from .elements import (
    DerivedIterator,
    ElementIterator,
    JointIterator,
    State,
    take_up_to,
)
from .options import AutoShardPolicy
from .plan import Plan, Shard
from .values import TensorSpec, map_arrays

AnyHasData = Callable[[bool], bool]
"""Called by all workers before each step, with whether this one has data; whether any has."""

EmptyStep = Callable[[], Any]
"""Makes a step without examples, for a worker that has had no other."""


@final
@dataclass(frozen=True)
class Division:
    """How workers share the data; `parts` has of which orders this worker takes which part."""

    policy: AutoShardPolicy
    worker: tuple[int, int]
    parts: Sequence[Shard]

    @property
    def shared_order(self) -> Plan | None:
        """The order that all workers must draw alike, since each takes a part of it."""
        num_workers, _ = self.worker
        is_shared = num_workers > 1 and self.parts and self.policy is not AutoShardPolicy.FILE
        return self.parts[0].order if is_shared else None


def split_points(num_examples: int, full_batch: int, num_replicas: int) -> list[int]:
    """The num_replicas + 1 positions where the replicas' parts of a global batch begin and end.

    A full batch is divided as evenly as possible, the first replicas taking one more. A smaller one
    is divided at the same points from the front, so that the last replicas may get fewer or none.
    """
    share, rest = divmod(full_batch, num_replicas)
    return [min(r * share + min(r, rest), num_examples) for r in range(num_replicas + 1)]


@final
class SplitIterator(ElementIterator):
    """Global batches cut into parts, which are handed out as tuples for the local replicas.

    The largest batch so far is taken for a full one. The state counts the examples of the batch
    that were given, and not the rounds, of which there are others for another number of workers.
    `rounds` has the parts of each tuple: one range for a worker that shares the batches with
    others, several, one behind another, for one that has them to itself.
    """

    def __init__(self, inner: ElementIterator, num_parts: int, rounds: Sequence[range]) -> None:
        self._inner = inner
        self._num_parts = num_parts
        self._rounds = rounds
        self._full_batch = 0
        self._parts: list[Any] = []
        self._points: list[int] = []
        self._waiting: deque[range] = deque()
        self._num_seen = 0
        self._before: State = None

    def __next__(self) -> Any:
        if not self._waiting:
            self._before = self._inner.get_state()
            self._split(next(self._inner), 0)
        chosen = self._waiting.popleft()
        self._num_seen = self._points[chosen.stop]
        return tuple(self._parts[chosen.start : chosen.stop])

    def get_state(self) -> State:
        if not self._waiting:
            return {"full_batch": self._full_batch, "seen": 0, "inner": self._inner.get_state()}
        return {"full_batch": self._full_batch, "seen": self._num_seen, "inner": self._before}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"full_batch": COUNT, "seen": COUNT, "inner": STATE})
        self._full_batch = state["full_batch"]
        self._inner.set_state(state["inner"])
        self._waiting.clear()
        if state["seen"]:
            self._before = state["inner"]
            batch = read_again(self._inner.__next__)
            size = nest.batch_size(batch)
            if state["seen"] >= size:
                raise refused(f"inside a batch of {size} examples", state)
            self._split(batch, state["seen"])

    def close(self) -> None:
        self._waiting.clear()
        self._inner.close()

    def _split(self, batch: Any, num_seen: int) -> None:
        """Cuts a batch, of whose examples the first were given already.

        Rounds that would get none of its examples are left out, such as the last ones of a small
        batch; but not the only one of a worker that shares the batch with others, as all of them
        make the same steps.
        """
        size = nest.batch_size(batch)
        if size > self._full_batch:
            self._full_batch = size
        if self._num_parts == 1 and not num_seen:  # as in most steps of most people
            self._points, self._parts = [0, size], [batch]
            self._waiting.append(self._rounds[0])
            return
        points = split_points(size, self._full_batch, self._num_parts)
        if num_seen:
            points = [max(point, num_seen) for point in points]
        self._points = points
        self._parts = [_part(batch, *pair) for pair in pairwise(points)]
        with_data = [r for r in self._rounds if points[r.start] < points[r.stop]]
        self._waiting.extend(with_data or self._rounds[:1])


@final
class ReplicaBatchesIterator(DerivedIterator):
    """Tuples of `num_local` consecutive elements; missing ones at the end are empty batches."""

    def __init__(self, inner: ElementIterator, num_local: int) -> None:
        super().__init__(inner)
        self._num_local = num_local

    def __next__(self) -> Any:
        batches = take_up_to(self._num_local, self._inner)
        if not batches:
            raise StopIteration
        num_missing = self._num_local - len(batches)
        if num_missing:
            nest.batch_size(batches[0])
            batches += [_part(batches[0], 0, 0)] * num_missing
        return tuple(batches)


@final
class PipelinesIterator(JointIterator):
    """Tuples of one element of each part; goes on, with empty batches, until all have ended."""

    def __next__(self) -> Any:
        batches = [take_up_to(1, part) for part in self._parts]
        first = next((batch[0] for batch in batches if batch), None)
        if first is None:
            raise StopIteration
        return tuple([batch[0] if batch else _part(first, 0, 0) for batch in batches])


@final
class UntilAllEndIterator(DerivedIterator):
    """This worker's steps, and then empty ones until the data of all workers have ended."""

    def __init__(self, inner: ElementIterator, any_has_data: AnyHasData, empty: EmptyStep) -> None:
        super().__init__(inner)
        self._any_has_data = any_has_data
        self._empty = empty
        self._has_ended = False

    def __next__(self) -> Any:
        step = None if self._has_ended else self._next_step()
        if not self._any_has_data(step is not None):
            raise StopIteration
        return self._empty() if step is None else step

    def _next_step(self) -> Any:
        try:
            step = next(self._inner)
        except StopIteration:
            self._has_ended = True
            return None
        self._empty = lambda: map_arrays(lambda array: array[:0], step)
        return step


def empty_batch(spec: Any) -> Any:
    """A batch of no examples, of the spec that full ones have."""

    def empty(array: TensorSpec) -> np.ndarray:
        return np.empty((0, *[size or 0 for size in array.shape[1:]]), array.dtype)

    return map_arrays(empty, spec)


def _part(batch: Any, start: int, stop: int) -> Any:
    window = slice(start, stop)
    return map_arrays(lambda array: array[window], batch)


def require_one_order(texts: Mapping[int, str], num_workers: int) -> None:
    """Raises an error if workers divide one order, but each another one.

    Args:
        texts: What `DistributedDataset.order` gives, by worker; of all of them, or of some.
        num_workers: How many there are.
    """
    found = {worker: json.loads(text) for worker, text in texts.items()}
    require_equal("the policy", [policy for policy, _ in found.values()], [*found])
    parts = [(worker, *part) for worker, (_, parts) in found.items() for part in parts]
    taken = {(count, index) for _, count, index, *_ in parts}
    num_parts = len(parts) * num_workers / len(found)
    # Shards that leave something out, or are read twice, are meant for something else.
    if len(taken) == len(parts) and all(count == num_parts for count, _ in taken):
        workers = [part[0] for part in parts]
        require_equal("the dataset", [part[3] for part in parts], workers)
        require_equal("the seed", [part[4] for part in parts], workers)


def require_equal(what: str, values: list[Any], workers: list[int]) -> None:
    for value, worker in zip(values, workers, strict=True):
        if value != values[0]:
            raise ValueError(
                f"Workers that share data must agree on {what}, but worker {workers[0]} has "
                f"{values[0]} and worker {worker} has {value}, so that examples would be lost or "
                "read twice. Give all workers the same dataset, files, options and seeds, and "
                "iterate on all of them."
            )
