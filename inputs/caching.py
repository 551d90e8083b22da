"""`cache`: each element is computed once and kept in memory."""

from __future__ import annotations

from typing import Any, final

from .checks import COUNT, checked_fields
from .elements import (
    ElementIterator,
    Elements,
    Elementwise,
    Positions,
    RandomAccess,
    State,
    Stream,
)
from .plan import Keeps, Opening, Plan
from .seeds import Key
from .values import frozen_copy

_END = object()


def cached(plan: Plan, filename: str = "") -> Plan:
    """Elements that are computed once; those of the first iteration, for every iteration.

    They are kept in no file: nothing would tell whether an older one has this dataset's elements.
    """
    if filename:
        raise ValueError(
            f"filename must be empty, got {filename!r}: cache() keeps elements in memory only. "
            "Write what map() computed to a file by itself, with np.save or TFRecordWriter, and "
            "read that."
        )
    memory = _Memory()

    def step(inner: Elements, opening: Opening) -> Elements:
        kept = memory.elements_for(opening)
        access = inner.random_access()
        if access is not None:
            return _Cached(access, kept)
        return Stream(lambda _: _CachedIterator(inner, kept))

    return plan.then(step, "cache()", Keeps.EACH | Keeps.SPEC)


@final
class _Memory:
    """What one `cache()` has kept; it outlives iterators, so that every later pass profits.

    It belongs to one set of shuffle keys and one share of the files: an input in another order is
    another input. (A cache opens its input in order, see `Keeps.ANY_ORDER`.)
    """

    def __init__(self) -> None:
        self._input: tuple[list[Key], tuple[int, int], int] | None = None
        self._by_position: dict[int, Any] = {}

    def elements_for(self, opening: Opening) -> dict[int, Any]:
        """The kept elements by position, for an input that was opened like this."""
        opened = list(opening.seeds.keys), opening.file_shard, opening.start
        if opened != self._input:
            self._input, self._by_position = opened, {}
        return self._by_position


@final
class _Cached(Elementwise):
    """Keeps elements by position, in whatever order they are asked for."""

    def __init__(self, inner: RandomAccess, kept: dict[int, Any]) -> None:
        self.length = inner.length
        self._inner = inner
        self._kept = kept

    def each(self, positions: Positions) -> list[Any]:
        return [self.element(int(position)) for position in positions]

    def element(self, position: int) -> Any:
        # Every repetition is the first one, whatever a reshuffling shuffle below would give.
        index = position % self.length
        element = self._kept.get(index, _END)
        if element is _END:
            element = self._kept[index] = frozen_copy(self._inner.element(index))
        return element


@final
class _CachedIterator(ElementIterator):
    """Serves what is kept, and reads the input only from the first gap on.

    The end of the input is kept too, as a mark after the last element; elements that could not be
    had are not.
    """

    def __init__(self, inner: Elements, kept: dict[int, Any]) -> None:
        self._inner = inner
        self._kept = kept
        self._position = 0
        self._reader: ElementIterator | None = None
        self._num_read = 0

    def __next__(self) -> Any:
        if self._position not in self._kept:
            self._read_up_to(self._position)
        element = self._kept.get(self._position, _END)
        if element is _END:
            self._close_reader()
            raise StopIteration
        self._position += 1
        return element

    def get_state(self) -> State:
        return {"position": self._position}

    def set_state(self, state: State) -> None:
        self._position = checked_fields(state, {"position": COUNT})["position"]

    def close(self) -> None:
        self._close_reader()
        self._kept = {self._position: _END}

    def _read_up_to(self, position: int) -> None:
        if self._reader is None:
            self._reader, self._num_read = self._inner.iterate(0), 0
        while self._num_read <= position:
            index = self._num_read
            self._num_read += 1
            try:
                self._kept[index] = frozen_copy(next(self._reader))
            except StopIteration:
                self._kept[index] = _END
                return
            except Exception:
                if index == position:
                    self._position += 1
                    raise

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
