"""The communicator: what strategies, checkpoints and loops of one's own see of the other ranks."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, final

import numpy as np
from numpy.typing import DTypeLike

from .arrays import Array, Op, check_array, check_rank, is_on_gpu
from .backend import Backend, RepeatedAllReduce
from .calls import ANY_LENGTH, Signature
from .executor import Handle, Task
from .leaving import forget

DEFAULT_TIMEOUT_SECS = 1800.0
"""How long a rank that gives signs of life may keep the others waiting."""
DEFAULT_SILENCE_SECS = 20.0
"""How long a rank may give no sign of life before it is taken for lost."""
MIN_SILENCE_SECS = 3.0
"""Less could be two heartbeats that a busy machine has delayed."""

_NO_DTYPE = np.dtype(bool)


class Arrival(Protocol):
    """The end of a copy that goes on behind the host's back, such as an event of CUDA's."""

    def synchronize(self) -> None:
        """Return when it has been made."""


@final
class Communicator:
    """A fixed group of ranks that move arrays between each other.

    All ranks of a communicator make the same calls in the same order. Every call has a name, which
    usually comes again each step; the first use of a name compares operation, shape, dtype and op
    over all ranks, later uses are compared cheaply, so that a rank that skips a call or makes
    another one is an error and not a hang. Every wait ends at a deadline. After an error the
    communicator is unusable: each further call raises.

    Arrays are NumPy's, of any shape, contiguous in the order of C, of dtype float16, float32,
    float64, int32, int64 or bool. Others are refused and not copied in silence. Results are equal
    bit for bit on every rank.

    Where `takes_gpu_arrays` they may be CuPy's, too, on all ranks in the same call. MPI knows
    nothing of streams: whoever passes such an array has waited for what writes it, and what is
    returned was made on the stream that is the caller's. MPI combines float32, float64, int32 and
    int64 there; NumPy's part, float16 and the extremes of floats, is refused.

    Unless said otherwise calls block, come from one thread at a time, and raise

    - `TypeError` or `ValueError` for an array that cannot be used (nothing has been sent then),
    - `PeerLostError`, `CollectiveTimeoutError`, `MismatchError` or `ClosedError`.

    Args:
        backend: Moves the arrays.

    Attributes:
        rank: This rank, from 0.
        size: Number of ranks.
        members: All ranks by name, in order of rank.
        timeout_secs: How long a wait without progress may last.
        step: The training step, set by whoever knows it; error texts mention it.
        overlaps: Whether what is started runs at once, behind the caller's back, or when it is
            waited for. The latter is faster where this process has no core to spare; ranks need
            not agree. By default as the number of cores suggests.
        takes_gpu_arrays: Whether arrays in the memory of GPUs travel as they are. Over MPI by
            default what the library says of itself; where it cannot be asked it may be set. An MPI
            that does not know of GPUs reads them as host memory: the process crashes. None where
            it cannot be, over links.
    """

    def __init__(self, backend: Backend, *, overlaps: bool = True) -> None:
        self.members = backend.members
        self.rank = backend.rank
        self.size = backend.size
        self.timeout_secs = backend.timeout_secs
        self.step: int | None = None
        self.overlaps = overlaps
        self.takes_gpu_arrays = backend.takes_gpu_arrays
        self._backend = backend
        self._executor = backend.executor
        self._repeated: dict[str, RepeatedAllReduce] = {}

    @property
    def failure(self) -> str:
        """Why this communicator is of no use any more; empty while it is."""
        return self._backend.failure

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike, name: str) -> Array:
        """Return a new array, of zeros, of which `all_reduce` is fastest. All ranks call this.

        Where all ranks are on one host they share the memory of such arrays: an all-reduce adds
        them up where they are. So nobody may touch the array while an all-reduce of it is under
        way, and elsewhere it is this rank's own.

        Args:
            shape: The same on all ranks.
            dtype: One of those that communicators move.
            name: What it is for.
        """
        kind = np.dtype(dtype)
        check_array(np.empty(0, kind), name)
        with self._turn():
            flat = self._backend.empty(math.prod(shape), Signature("empty", name, kind, shape))
        return flat.reshape(shape)

    def all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> None:
        """Replace ``array`` on every rank by the elementwise reduction over all ranks, in place.

        Args:
            array: Same shape and dtype on all ranks.
            name: What is being reduced.
            op: How.
        """
        repeated = self._repeated.get(name)
        # The same array as last time: what takes microseconds is not to be checked for as long.
        if repeated is None or repeated.array() is not array or repeated.op is not op:
            check_array(array, name, takes_gpu=self.takes_gpu_arrays)
            repeated = None
        if self._executor.latest is not None and not self._executor.is_idle:
            self._executor.finish()
        if repeated is None:
            self._all_reduce(array, name, op, self.step)
            return
        backend = self._backend
        backend.step, backend.timeout_secs = self.step, self.timeout_secs
        repeated.run(array if array.ndim == 1 else array.reshape(-1))

    def start_all_reduce(
        self, array: Array, name: str, op: Op = Op.SUM, after: Arrival | None = None
    ) -> Handle:
        """Start `all_reduce` and return at once.

        Operations run in the order in which they were started, behind the caller's back (see
        `overlaps`); calls without ``start`` queue behind them. The array must not be touched before
        `Handle.wait`.

        Args:
            array: As in `all_reduce`.
            name: What is being reduced.
            op: How.
            after: What is waited for before the array is read, if it is still on its way.
        """
        check_array(array, name, takes_gpu=self.takes_gpu_arrays)
        task = _StartedAllReduce(self, array, name, op, after)
        self._executor.start(task, at_once=self.overlaps)
        return task

    def reduce_scatter(self, array: Array, name: str, op: Op = Op.SUM) -> Array:
        """Reduce ``array`` over all ranks and return this rank's part of the result.

        Args:
            array: One-dimensional, same length and dtype on all ranks. Its content is undefined
                afterwards.
            name: What is being reduced.
            op: How.

        Returns:
            A new array: the part `part_bounds(len(array), size)[rank]`.
        """
        check_array(array, name, is_flat=True, takes_gpu=self.takes_gpu_arrays)
        on_gpu = is_on_gpu(array)
        signature = Signature("reduce_scatter", name, array.dtype, array.shape, op, on_gpu=on_gpu)
        with self._turn():
            return self._backend.reduce_scatter(array, signature)

    def all_gather(self, array: Array, name: str) -> list[Array]:
        """Return the arrays of all ranks, in order of rank.

        Args:
            array: Same dtype on all ranks; shapes may differ in the first dimension.
            name: What is being gathered.
        """
        check_array(array, name, is_written=False, takes_gpu=self.takes_gpu_arrays)
        row = array.shape[1:]
        shape = (ANY_LENGTH, *row) if array.ndim else ()
        signature = Signature("all_gather", name, array.dtype, shape, on_gpu=is_on_gpu(array))
        table = array.reshape(len(array) if array.ndim else 1, math.prod(row))
        with self._turn():
            tables = self._backend.all_gather(table, signature)
        return [t.reshape(len(t), *row) if array.ndim else t.reshape(()) for t in tables]

    def broadcast(self, array: Array, name: str, root: int = 0) -> None:
        """Overwrite ``array`` on every rank by that of rank ``root``, in place.

        Args:
            array: Same shape and dtype on all ranks.
            name: What is being sent.
            root: The rank that has it.
        """
        check_array(array, name, takes_gpu=self.takes_gpu_arrays)
        check_rank(root, "root", self.size)
        on_gpu = is_on_gpu(array)
        signature = Signature("broadcast", name, array.dtype, array.shape, root=root, on_gpu=on_gpu)
        with self._turn():
            self._backend.broadcast(array.reshape(-1), signature)

    def send(self, array: Array, name: str, to: int) -> None:
        """Send ``array`` to rank ``to``, which calls `receive`. Only these two ranks take part.

        It may or may not return before the other rank has called `receive`, so two ranks must not
        both send first. Both calls come between the same two collectives.
        """
        check_array(array, name, is_written=False, takes_gpu=self.takes_gpu_arrays)
        check_rank(to, "to", self.size, other_than=self.rank)
        with self._turn():
            self._backend.transfer(array.reshape(-1), name, array.shape, self.rank, to)

    def receive(self, array: Array, name: str, source: int) -> None:
        """Fill ``array`` with what rank ``source`` sends; name, shape and dtype are compared."""
        check_array(array, name, takes_gpu=self.takes_gpu_arrays)
        check_rank(source, "source", self.size, other_than=self.rank)
        with self._turn():
            self._backend.transfer(array.reshape(-1), name, array.shape, source, self.rank)

    def barrier(self, name: str) -> None:
        """Return when every rank has called it."""
        with self._turn():
            self._backend.barrier(Signature("barrier", name, _NO_DTYPE, (0,)))

    def split(self, color: int, key: int) -> Communicator:
        """Divide the ranks by ``color``; within a color, ranks are ordered by (``key``, rank).

        All ranks call it. A communicator and the ones split from it count as one as far as order is
        concerned: ranks that share several of them use them in the same order.
        """
        with self._turn():
            backend = self._backend.split(color, key)
        part = Communicator(backend, overlaps=self.overlaps)
        part.takes_gpu_arrays = self.takes_gpu_arrays
        return part

    def close(self, reason: str = "") -> None:
        """Leave. Waiting and further calls on this rank raise `ClosedError`.

        Other ranks that wait for this one raise `PeerLostError` with the reason. Never raises; may
        be called again, and from another thread.

        Args:
            reason: Why, if this rank gives up; empty if its work is done.
        """
        forget(self)
        self._repeated.clear()
        self._backend.close(reason)

    def _turn(self) -> AbstractContextManager[None]:
        """Return what a call is made in, when all that was started before has ended."""
        self._executor.finish()
        return self._guard(self.step)

    def _guard(self, step: int | None) -> AbstractContextManager[None]:
        # One call at a time: the caller's thread waits for the executor before it comes here.
        self._backend.step, self._backend.timeout_secs = step, self.timeout_secs
        return self._backend.guard()

    def _all_reduce(self, array: Array, name: str, op: Op, step: int | None) -> None:
        repeated = self._repeated.get(name)
        if (
            repeated is not None
            and repeated.op is op
            and (repeated.array() is array or repeated.is_for(array))
        ):
            backend = self._backend
            backend.step, backend.timeout_secs = step, self.timeout_secs
            repeated.run(array if array.ndim == 1 else array.reshape(-1))
            return
        signature = Signature(
            "all_reduce", name, array.dtype, array.shape, op, on_gpu=is_on_gpu(array)
        )
        with self._guard(step):
            repeated = self._backend.all_reduce(array.reshape(-1), signature)
        if repeated is not None:
            repeated.remember(array)
            self._repeated[name] = repeated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close("" if exception is None else f"{type(exception).__name__}: {exception}")


@final
class _StartedAllReduce(Task):
    """An all_reduce that an executor makes, in the step in which it was started."""

    def __init__(
        self, communicator: Communicator, array: Array, name: str, op: Op, after: Arrival | None
    ) -> None:
        super().__init__()
        self._after = after
        self._communicator = communicator
        self._step = communicator.step
        self._array = array
        self._name = name
        self._op = op

    def work(self) -> None:
        if self._after is not None:
            self._after.synchronize()
        self._communicator._all_reduce(self._array, self._name, self._op, self._step)
