"""`shuffle`: a permutation of positions, or a bounded buffer of a stream's elements."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from .checks import COUNT, COUNT_OR_NONE, STATE, checked_fields, refused
from .elements import (
    ENDLESS,
    ElementIterator,
    Elements,
    Positions,
    RandomAccess,
    Rearranged,
    State,
    Stream,
    as_indices,
)
from .plan import Keeps, Opening, Plan
from .seeds import Key, process_seed
from .shuffle_order import ShuffleOrder

_MAX_CACHED_POSITIONS = 1 << 22
_MAX_CACHED_ORDERS = 256
_MIN_SNAPSHOT_INTERVAL = 64


@final
class ShuffleRule:
    """The arguments of one shuffle and its key: all that decides its orders."""

    def __init__(self, key: Key, buffer_size: int, reshuffle: bool) -> None:
        self.buffer_size = buffer_size
        self._key = key
        self._reshuffle = reshuffle

    def order(self, iteration: int, length: int, origin: int = 0) -> ShuffleOrder:
        """The order of one iteration over `length` inputs, the first at position `origin`."""
        key = (*self._key, iteration if self._reshuffle else 0)
        return ShuffleOrder(key, self.buffer_size, length, origin)


def shuffled(plan: Plan, buffer_size: int, seed: int | None, reshuffle: bool) -> Plan:
    def step(inner: Elements, opening: Opening) -> Elements:
        key = opening.seeds.key(seed, reshuffle=reshuffle, chain=plan.text)
        rule = ShuffleRule(key, buffer_size, reshuffle)
        access = inner.random_access()
        if access is not None:
            return _Shuffled(access, rule)
        return Stream(lambda iteration: _ShuffleIterator(inner.iterate(iteration), rule, iteration))

    # An order that all iterators share, but that nobody fixed: a part of the dataset that is zipped
    # with others, or follows them, must stay the part that it was.
    is_shared = seed is None and not reshuffle
    demands = plan.demands
    demanding = plan.demanding(
        draws_seed=demands.draws_seed or seed is None,
        fixed_seed=process_seed() if is_shared else demands.fixed_seed,
        reshuffles=demands.reshuffles or reshuffle,
    )
    return demanding.then(
        step,
        f"shuffle({buffer_size}, seed={seed}, reshuffle={reshuffle})",
        Keeps.COUNT | Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.READY,
    )


@final
class _Shuffled(Rearranged):
    """Positions in shuffled order."""

    def __init__(self, inner: RandomAccess, rule: ShuffleRule) -> None:
        super().__init__(inner, inner.length)
        self._rule = rule
        self._orders: dict[int, ShuffleOrder] = {}
        num_fitting = _MAX_CACHED_POSITIONS // max(inner.length, 1)
        self._max_orders = min(max(2, num_fitting), _MAX_CACHED_ORDERS)

    def _source(self, position: int) -> int:
        iteration, time = divmod(position, self.length)
        return int(self._order(iteration).read(time, time + 1)[0])

    def _sources(self, positions: Positions) -> Positions:
        if isinstance(positions, range):
            iteration, time = divmod(positions.start, self.length)
            step = positions.step
            stop = time + (len(positions) - 1) * step + 1
            if stop <= self.length:
                sources = self._order(iteration).read(time, stop)
                return sources if step == 1 else sources[::step]
        iterations, times = np.divmod(as_indices(positions), self.length)
        sources = np.empty_like(times)
        for iteration in np.unique(iterations).tolist():
            chosen = iterations == iteration
            sources[chosen] = self._order(iteration).at(times[chosen])
        return sources

    def _order(self, iteration: int) -> ShuffleOrder:
        order = self._orders.get(iteration)
        if order is None:
            if len(self._orders) == self._max_orders:
                del self._orders[min(self._orders)]
            origin = iteration * self.length
            order = self._orders[iteration] = self._rule.order(iteration, self.length, origin)
        return order


@final
class _ShuffleIterator(ElementIterator):
    """Holds the elements that were read and not yet handed out, by their input position.

    The state has no elements: it names a position in the input from which the held ones can be read
    again, not far behind the oldest of them.
    """

    def __init__(self, inner: ElementIterator, rule: ShuffleRule, iteration: int) -> None:
        self._inner = inner
        self._rule = rule
        self._iteration = iteration
        self._order = rule.order(iteration, ENDLESS)
        self._snapshot_interval = max(rule.buffer_size, _MIN_SNAPSHOT_INTERVAL)
        self._snapshots: dict[int, tuple[State, int]] = {}
        self._held: dict[int, Any] = {}
        self._oldest = 0
        self._num_read = 0
        self._num_failed = 0
        self._num_given = 0
        self._length: int | None = None

    def __next__(self) -> Any:
        self._fill()
        if self._length is not None and self._num_given >= self._length:
            raise StopIteration
        source = int(self._order.read(self._num_given, self._num_given + 1)[0])
        self._num_given += 1
        element = self._held.pop(source)
        while self._oldest < self._num_read and self._oldest not in self._held:
            self._oldest += 1
        return element

    def get_state(self) -> State:
        start = max((at for at in self._snapshots if at <= self._oldest), default=None)
        if start is None:
            start, snapshot = self._num_read, (self._inner.get_state(), self._num_failed)
        else:
            snapshot = self._snapshots[start]
        return {
            "given": self._num_given,
            "read": self._num_read,
            "length": self._length,
            "from": start,
            "inner": snapshot[0],
            "failed": self._num_failed - snapshot[1],
        }

    def set_state(self, state: State) -> None:
        fields = {"given": COUNT, "read": COUNT, "length": COUNT_OR_NONE, "from": COUNT}
        checked_fields(state, {**fields, "inner": STATE, "failed": COUNT})
        self._check(state)
        self._inner.set_state(state["inner"])
        self._num_given, self._num_read = state["given"], state["from"]
        self._length = state["length"]
        known = ENDLESS if self._length is None else self._length
        self._order = self._rule.order(self._iteration, known)
        self._held, self._snapshots = {}, {}
        held = self._order.held(self._num_given).tolist() if state["read"] else []
        self._oldest = min(held, default=state["read"])
        wanted = set(held)
        if self._oldest < state["from"]:
            raise refused("from which all elements that are held are read again", state)
        self._num_failed = -state["failed"]
        while self._num_read < state["read"]:
            try:
                position, element = self._read()
            except StopIteration:
                raise ValueError(
                    "The iterator cannot take this state: the dataset's source ends after "
                    f"{self._num_read} elements, of which {state['read']} had been read when the "
                    "state was saved"
                ) from None
            except Exception:
                # Of elements that could not be had before either, the consumer has been told.
                if self._num_failed > 0:
                    raise
                continue
            if position in wanted:
                self._held[position] = element

    def _check(self, state: State) -> None:
        """Refuses numbers that no shuffle of this buffer has."""
        given, read = state["given"], state["read"]
        is_ahead = max(given, state["from"]) <= read <= given + self._rule.buffer_size
        if not is_ahead or state["length"] not in (None, read):
            raise refused(f"of a shuffle with a buffer of {self._rule.buffer_size}", state)

    def close(self) -> None:
        self._held = {}
        self._length = self._num_given
        self._inner.close()

    def _fill(self) -> None:
        """Reads until the slots are full and one more input waits, or the input has ended."""
        while self._length is None and self._num_read <= self._num_given + self._rule.buffer_size:
            try:
                position, element = self._read()
            except StopIteration:
                self._length = self._num_read
                self._order = self._rule.order(self._iteration, self._length)
            else:
                self._held[position] = element

    def _read(self) -> tuple[int, Any]:
        position = self._num_read
        if position % self._snapshot_interval == 0:
            self._snapshots = {at: s for at, s in self._snapshots.items() if self._is_needed(at)}
            self._snapshots[position] = self._inner.get_state(), self._num_failed
        try:
            element = next(self._inner)
        except StopIteration:
            raise
        except Exception:
            self._num_failed += 1
            raise
        self._num_read = position + 1
        return position, element

    def _is_needed(self, snapshot: int) -> bool:
        """Whether the oldest held element lies before the next snapshot."""
        return snapshot + self._snapshot_interval > self._oldest
