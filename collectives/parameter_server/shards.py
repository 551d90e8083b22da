"""A shard: the rows of a variable that one server holds."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import numpy as np
from pydantic import model_validator

from .schema import DType, Name, Natural, Record, Shape

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# A copy of so little costs less than to keep track of who reads the original.
_SMALL_BYTES: Final = 4 << 10


class ShardSpec(Record):
    """Which rows of which variable. A scalar is one row.

    Attributes:
        name: The variable's.
        whole_shape: The shape of the whole variable.
        dtype: NumPy's name of its type.
        start, stop: The rows, half open; 0 and the number of rows if the variable is not split.
    """

    name: Name
    whole_shape: Shape
    dtype: DType
    start: Natural
    stop: Natural

    @model_validator(mode="after")
    def _is_within(self) -> ShardSpec:
        num_rows = self.whole_shape[0] if self.whole_shape else 1
        if not self.start <= self.stop <= num_rows:
            raise ValueError(
                f"rows {self.start} to {self.stop} of '{self.name}' are not within its "
                f"{num_rows} rows"
            )
        if not self.whole_shape and self.stop - self.start != 1:
            raise ValueError(f"the scalar '{self.name}' is rows 0 to 1")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shard's own shape."""
        return (self.stop - self.start, *self.whole_shape[1:]) if self.whole_shape else ()

    def __str__(self) -> str:
        part = f" rows {self.start} to {self.stop}" if self.shape != self.whole_shape else ""
        return f"'{self.name}'{part} {self.dtype} {self.whole_shape}"


@final
class Shard:
    """The value of a shard, to be read and changed by several threads.

    Whoever calls a method holds `lock`. Readers are lent the array itself, not a copy, and may go
    on reading it without the lock for as long as they like: who wants to change it in the meantime
    moves to a copy first and leaves the old array to them. As a rule nobody is reading any more by
    then, and nothing is ever copied.

    Args:
        spec: What it is a shard of.
        value: Of that shape and dtype, C-contiguous; belongs to the shard from now on.

    Attributes:
        spec, shape, dtype: As given.
        lock: Makes an update of the variable and its slots one thing.
    """

    __slots__ = ("_lent", "_value", "dtype", "lock", "shape", "spec")

    def __init__(self, spec: ShardSpec, value: Array) -> None:
        self.spec = spec
        self.shape = value.shape
        self.dtype = value.dtype
        self.lock = threading.Lock()
        self._value = value
        self._lent: Callable[[], Array | None] = _nobody

    @property
    def nbytes(self) -> int:
        return self._value.nbytes

    def lend(self) -> Array:
        """The value, read only; it stays as it is while this array or a view of it lives."""
        if self._value.nbytes <= _SMALL_BYTES:
            return self._value.copy()
        view = self._lent()
        if view is None:
            # Views of a view keep only its base alive, unless that is no array: hence the detour.
            view = np.asarray(self._value.data)
            view.flags.writeable = False
            self._lent = weakref.ref(view)
        return view

    def rows(self, row_numbers: Array) -> Array:
        """A copy of some rows."""
        return self._value.take(row_numbers, axis=0)

    def own(self) -> Array:
        """The value, to be overwritten before the lock is released."""
        if self._lent() is not None:
            self._value = self._value.copy()
            self._lent = _nobody
        return self._value


def _nobody() -> None:
    return None
