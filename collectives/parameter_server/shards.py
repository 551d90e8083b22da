"""What a server holds: rows of variables by number, and where a new one gets its value."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, final

import numpy as np

from .variable_requests import Create, ShardSpec

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# A copy of so little costs less than to keep track of who reads the original.
_SMALL_BYTES: Final = 4 << 10
_CGROUP: Final = Path("/sys/fs/cgroup")


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
        has_moved: Whether `move` has been called.
    """

    __slots__ = ("_lent", "_value", "dtype", "has_moved", "lock", "shape", "spec")

    def __init__(self, spec: ShardSpec, value: Array) -> None:
        self.spec = spec
        self.shape = value.shape
        self.dtype = value.dtype
        self.lock = threading.Lock()
        self._value = value
        self._lent: Callable[[], Array | None] = _nobody
        self.has_moved = False

    @property
    def nbytes(self) -> int:
        return self._value.nbytes

    @property
    def can_move(self) -> bool:
        """Whether it is so small that readers are given copies, and it stays where it is moved."""
        return self._value.nbytes <= _SMALL_BYTES and not self.has_moved

    def move(self, place: Array) -> None:
        """Let the value lie at a place for good: beside others, so that one call changes all."""
        there = place.reshape(self.shape)
        there[...] = self._value
        self._value, self.has_moved = there, True

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


class ShardStorage(Protocol):
    """Where shards are kept while no server runs. Handed in: this package knows no files."""

    def read(self, path: str, name: str, start: int, stop: int) -> Array:
        """Rows `start` to `stop` of a variable of the checkpoint at `path`; a scalar as it is."""

    def write(
        self,
        path: str,
        shard_index: int,
        slices: Sequence[tuple[str, tuple[int, ...], int, int, Array]],
    ) -> str:
        """Write a server's part of the checkpoint that grows at `path`.

        Args:
            path: Of the checkpoint.
            shard_index: Which of its parts.
            slices: Name, shape of the whole variable, first row, row after the last, value.

        Returns:
            A record for whoever commits the checkpoint.
        """


@final
class ShardTable:
    """The shards of a server by the numbers that trainers gave them.

    Args:
        server: The server's name, for messages.
        storage: From where values come that are in a checkpoint.
    """

    def __init__(self, server: str, storage: ShardStorage) -> None:
        self._server = server
        self._storage = storage
        self._shards: dict[int, Shard] = {}
        self._creating = threading.Lock()

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[Shard]:
        # Of a copy, which is made at once: others may create shards meanwhile.
        return iter([shard for _, shard in sorted(self._shards.copy().items())])

    def __getitem__(self, number: int) -> Shard:
        shard = self._shards.get(number)
        if shard is None:
            raise ValueError(
                f"{self._server} holds no variable with id {number}, only {len(self)} others; "
                "CREATE it first, also if this server was restarted"
            )
        return shard

    def create(self, request: Create, arrays: Sequence[Array]) -> bool:
        """Hold a shard. Returns whether it was there already, and keeps its value.

        Raises:
            ValueError: A different shard has this number, or there is no right value or no memory.
        """
        with self._creating:  # several trainers ask for the same one at the same time
            known = self._shards.get(request.id)
            if known is None:
                value = self._value_of(request, arrays)
                self._shards[request.id] = Shard(request.spec, value)
            elif known.spec != request.spec:
                raise ValueError(
                    f"id {request.id} is {known.spec} on {self._server}, not {request.spec}; all "
                    "trainers must create the same variables in the same order"
                )
            return known is not None

    def _value_of(self, request: Create, arrays: Sequence[Array]) -> Array:
        spec = request.spec
        sources = [request.fill is not None, request.checkpoint is not None, len(arrays) == 1]
        if sum(sources) != 1 or len(arrays) > 1:
            raise ValueError(
                f"{spec} must have one source: fill, checkpoint, or one array; there are "
                f"fill={request.fill}, checkpoint={request.checkpoint}, {len(arrays)} arrays"
            )
        if request.fill is not None:
            self._check_memory(spec)
            return _filled(spec, request.fill)
        if request.checkpoint is not None:
            self._check_memory(spec)
            arrays = [self._storage.read(request.checkpoint, spec.name, spec.start, spec.stop)]
        (value,) = arrays
        if value.shape != spec.shape or value.dtype != spec.dtype:
            raise ValueError(
                f"the value of {spec} must be {spec.dtype} {spec.shape}, it is {value.dtype} "
                f"{value.shape}"
            )
        # What does not own its memory may lie where a trainer soon has other arrays.
        return np.require(value, requirements=["C", "W", "O"])

    def _check_memory(self, spec: ShardSpec) -> None:
        needed = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
        available = available_bytes()
        if available is not None and needed > available:
            raise ValueError(
                f"{spec} needs {needed / 1e9:.1f} GB on {self._server}, which has "
                f"{available / 1e9:.1f} GB to spare; split it over more parameter servers"
            )


def _filled(spec: ShardSpec, number: float) -> Array:
    dtype = np.dtype(spec.dtype)
    if dtype.kind != "f":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not number.is_integer() or not limits[0] <= int(number) <= limits[1]:
            raise ValueError(f"fill of {spec} must be a number of that type, it is {number}")
        return np.full(spec.shape, int(number), dtype)
    # Zeros come from the system as they are used, and not all at once.
    return np.full(spec.shape, number, dtype) if number else np.zeros(spec.shape, dtype)


def _nobody() -> None:
    return None


def available_bytes() -> int | None:
    """The memory that this process may still take, as far as the system tells; else None."""
    known = [size for size in (_of_host(), _of_container()) if size is not None]
    return min(known, default=None)


def _of_host() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_container() -> int | None:
    """What control group version 2 leaves; its file caches are given back when needed."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit
        used = int((_CGROUP / "memory.current").read_text())
        caches = [
            int(line.split()[1])
            for line in (_CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        ]
        return max(0, limit - used + sum(caches))
    except (OSError, ValueError, IndexError):
        return None
