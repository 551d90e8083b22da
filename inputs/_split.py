"""How batches are dealt out to the replicas of one worker."""

from __future__ import annotations

from typing import Any, final

from . import nest
from ._elements import ElementIterator, Elements, State, Stream
from ._streams import take_up_to
from ._values import map_arrays


def split_points(num_examples: int, full_batch: int, num_replicas: int) -> list[int]:
    """Where the replicas' consecutive parts of a global batch begin and end.

    A full batch is divided as evenly as possible, the first replicas taking one more. A smaller
    one fills the same places from the front, so that the last replicas may get fewer or none.

    Returns:
        num_replicas + 1 positions; replica r gets the examples from number r to before r + 1.
    """
    share, rest = divmod(full_batch, num_replicas)
    return [min(r * share + min(r, rest), num_examples) for r in range(num_replicas + 1)]


@final
class SplitStream(Stream):
    """Global batches cut into tuples of the parts of `num_local` replicas from `first_replica`."""

    def __init__(
        self, inner: Elements, *, num_replicas: int, first_replica: int, num_local: int
    ) -> None:
        self._inner = inner
        self._num_replicas = num_replicas
        self._first_replica = first_replica
        self._num_local = num_local

    def iterate(self, iteration: int) -> ElementIterator:
        local = range(self._first_replica, self._first_replica + self._num_local)
        return _SplitIterator(self._inner.iterate(iteration), self._num_replicas, local)


@final
class _SplitIterator(ElementIterator):
    """Takes the largest batch so far for a full one."""

    def __init__(self, inner: ElementIterator, num_replicas: int, local_replicas: range) -> None:
        self._inner = inner
        self._num_replicas = num_replicas
        self._local_replicas = local_replicas
        self._full_batch = 0

    def __next__(self) -> Any:
        batch = next(self._inner)
        size = nest.batch_size(batch)
        self._full_batch = max(self._full_batch, size)
        if self._num_replicas == 1:
            return (batch,)
        points = split_points(size, self._full_batch, self._num_replicas)
        return tuple([_part(batch, points[r], points[r + 1]) for r in self._local_replicas])

    def get_state(self) -> State:
        return {"full_batch": self._full_batch, "inner": self._inner.get_state()}

    def set_state(self, state: State) -> None:
        self._full_batch = state["full_batch"]
        self._inner.set_state(state["inner"])

    def close(self) -> None:
        self._inner.close()


@final
class DealtStream(Stream):
    """Tuples of `num_local` consecutive elements; missing ones at the end are empty batches."""

    def __init__(self, inner: Elements, num_local: int) -> None:
        self._inner = inner
        self._num_local = num_local

    def iterate(self, iteration: int) -> ElementIterator:
        return _DealtIterator(self._inner.iterate(iteration), self._num_local)


@final
class _DealtIterator(ElementIterator):
    """Holds nothing between two steps, so its state is the input's."""

    def __init__(self, inner: ElementIterator, num_local: int) -> None:
        self._inner = inner
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

    def get_state(self) -> State:
        return self._inner.get_state()

    def set_state(self, state: State) -> None:
        self._inner.set_state(state)

    def close(self) -> None:
        self._inner.close()


def _part(batch: Any, start: int, stop: int) -> Any:
    window = slice(start, stop)
    return map_arrays(lambda array: array[window], batch)
