"""The backend over MPI: its own collectives, in chunks, with names, comparisons and deadlines.

MPI blocks inside C, does not say on whom, and adds up whatever arrives. Therefore

- the first use of a name is compared over all ranks before any data moves;
- afterwards each rank keeps a running digest of its calls. It is compared with every call of more
  than 2 MiB and with every 128th, but not with each short one, whose time that would double; and
  twice with each all_reduce of a shared array, for which it is how the ranks wait for each other;
- all_reduces of different names go over different MPI communicators, in turn, so that ranks which
  confuse two of them wait for each other instead of adding up what does not belong together;
- a watchdog notices a call that does not end, finds out who is missing or elsewhere, and aborts the
  job with that text, because a rank that is inside MPI cannot raise.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from .arrays import Array, Op, current_gpu, part_bounds, writable_like
from .backend import SMALL_BYTES, Backend, RepeatedAllReduce, part_of
from .calls import (
    RECORD_BYTES,
    Call,
    Signature,
    child_tag,
    differing_calls,
    record_text,
    transfer_call,
)
from .communicator import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS, Communicator
from .errors import ClosedError, CollectiveError, MismatchError, PeerLostError
from .executor import Executor, has_core_to_spare
from .leaving import close_at_exit
from .members import Member
from .mpi_consistency import (
    CHUNK_BYTES,
    COMPARED_CALLS,
    NUM_LANES,
    Consistency,
    History,
    MpiCall,
    require_no_numpy,
)
from .mpi_gpu import says_it_takes_gpu_arrays
from .mpi_start import (
    agreed_tag,
    check_world,
    end_if_stuck,
    import_mpi,
    name_ranks,
    wait_for_ranks,
)
from .mpi_watchdog import Position, Watchdog, abort_job
from .shared_arrays import Meeting, SharedAllReduce, SharedArray, SharedArrays

_NO_DTYPE = np.dtype(bool)


def mpi_communicator(
    comm: Any = None,
    *,
    tasks: Sequence[str] | None = None,
    expected_size: int | None = None,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    start_timeout_secs: float = 600.0,
    report_secs: float = 10.0,
) -> Communicator:
    """Return a communicator over all ranks of an MPI communicator; all of them call this.

    Args:
        comm: An ``mpi4py.MPI.Comm``; the world if None. It is duplicated, not used.
        tasks: The names of all ranks, by default "rank 0", …; errors show them with their hosts.
        expected_size: How many ranks the launcher was asked for.
        timeout_secs: How long a call may last before the job is aborted.
        silence_secs: How long a rank that is waited for may give no sign of life before the job is
            aborted. Without MPI_THREAD_MULTIPLE nobody can ask for one.
        start_timeout_secs: How long to wait for all ranks before the job is aborted.
        report_secs: How often to say who is missing meanwhile.

    Raises:
        ImportError: There is no MPI.
        RuntimeError: The world has another size, or this MPI forbids calls from several threads.
    """
    with end_if_stuck(start_timeout_secs):
        mpi = import_mpi()
    comm = mpi.COMM_WORLD if comm is None else comm
    check_world(mpi, comm, expected_size)
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
        raise RuntimeError(
            "this MPI was initialised for calls from the main thread only, but started operations "
            "run in another: let mpi4py initialise MPI, or ask for MPI_THREAD_MULTIPLE"
        )
    names = list(tasks or (f"rank {rank}" for rank in range(comm.size)))
    wait_for_ranks(mpi, comm, names, start_timeout_secs, report_secs)
    control = comm.Dup()
    members = name_ranks(mpi, control, names)
    watchdog = Watchdog(mpi, control, members, silence_secs)
    shared = _Shared(mpi, watchdog, Executor(f"paceline-mpi-{comm.rank}"), agreed_tag(control))
    history = History(shared.tag, range(comm.size))
    backend = MpiBackend(shared, comm.Dup(), control, members, history, timeout_secs)
    host = members[comm.rank].address
    num_here = sum(member.address == host for member in members)
    communicator = Communicator(backend, overlaps=has_core_to_spare(num_here))
    close_at_exit(communicator)
    return communicator


@dataclass(frozen=True)
class _Shared:
    """What a communicator has in common with those split from it."""

    mpi: Any
    watchdog: Watchdog
    executor: Executor
    tag: int


@final
class _Repeated(RepeatedAllReduce):
    """A short all_reduce: it takes a few microseconds, and one more would be noticed."""

    def __init__(
        self, backend: MpiBackend, call: MpiCall, array: Array, op: Op, in_place: Any
    ) -> None:
        super().__init__(array, op)
        self._backend = backend
        self._call = call
        self._key, self._described = call.key, call.call
        self._mpi_type, self._mpi_op = call.mpi_type, call.mpi_op
        self._history, self._watchdog = backend.history, backend.watchdog
        self._position = Position(backend, backend.history, call.call)
        self._all_reduce = backend.lanes[call.lane].Allreduce
        self._in_place = in_place

    def run(self, array: Array) -> None:
        backend, watchdog, history = self._backend, self._watchdog, self._history
        if backend.first_failure is not None:
            backend.check_usable()
        # The history grows first: its growth is how the watchdog's thread tells this call from the
        # last one, which had the same position.
        history.add(self._described, self._key)
        watchdog.now = self._position
        try:
            if not history.sequence % COMPARED_CALLS:
                backend.consistency.agree(self._call)
            self._all_reduce(self._in_place, (array, self._mpi_type), self._mpi_op)
        except Exception as error:
            backend.fail(error, self._described)
            raise
        finally:
            watchdog.now = None


@final
class _Comparison(Meeting):
    """A comparison of a call over all ranks, to which they all have to come."""

    def __init__(self, backend: MpiBackend, call: MpiCall) -> None:
        self._backend = backend
        self._call = call
        self._position = Position(backend, backend.history, call.call)

    def run(self) -> None:
        backend, call = self._backend, self._call
        backend.check_usable()
        backend.history.add(call.call, call.key)
        backend.watchdog.now = self._position
        try:
            backend.consistency.compare(call)
        except Exception as error:
            backend.fail(error, call.call)
            raise
        finally:
            backend.watchdog.now = None

    def meet(self) -> None:
        self._backend.consistency.compare(self._call)


@final
class _Guard(AbstractContextManager[None]):
    """Around each call; a class, because a generator would take a microsecond of a short one."""

    def __init__(self, backend: MpiBackend) -> None:
        self._backend = backend

    def __enter__(self) -> None:
        self._backend.check_usable()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        watchdog = self._backend.watchdog
        if error is None:
            watchdog.now = None
            return
        call, watchdog.now = watchdog.call, None
        self._backend.fail(error, call)


@final
class MpiBackend(Backend):
    """Moves arrays by MPI.

    Attributes:
        history: What has been called.
        consistency: Compares it over the ranks.
        watchdog: Looks at calls that do not end.
        lanes: MPI communicators over the same ranks.
        first_failure: The first error, after which nothing is called any more.
    """

    def __init__(
        self,
        shared: _Shared,
        data: Any,
        control: Any,
        members: Sequence[Member],
        history: History,
        timeout_secs: float,
    ) -> None:
        super().__init__(members, data.rank, timeout_secs, shared.executor)
        self.lanes = [data, *(data.Dup() for _ in range(NUM_LANES - 1))]
        for comm in (*self.lanes, control):
            comm.Set_errhandler(shared.mpi.ERRORS_RETURN)
        self.watchdog = shared.watchdog
        self.history = history
        self.consistency = Consistency(shared.mpi, control, members, history)
        self.first_failure: CollectiveError | None = None
        self.takes_gpu_arrays = says_it_takes_gpu_arrays(shared.mpi)
        self._shared = shared
        self._mpi = shared.mpi
        self._data = data
        self._control = control
        self._arrays = SharedArrays(data.rank)
        self._num_splits = 0
        self._is_closed = False
        self._guard = _Guard(self)
        shared.watchdog.add_history(history)

    @property
    def failure(self) -> str:
        return "it is closed" if self._is_closed else str(self.first_failure or "")

    def check_usable(self) -> None:
        """Raise if this rank has left or an earlier call failed."""
        if self._is_closed:
            raise ClosedError("this communicator is closed")
        failure = self.first_failure
        if failure is not None:
            raise type(failure)(f"unusable since an earlier failure: {failure}")

    def guard(self) -> AbstractContextManager[None]:
        return self._guard

    def fail(self, error: BaseException, call: Call) -> None:
        """Note that a call has failed.

        Raises:
            CollectiveError: It was MPI that raised; this says what it means.
        """
        if isinstance(error, CollectiveError):
            self.first_failure = error
        elif isinstance(error, self._mpi.Exception):
            self.first_failure = self._what_it_means(error, call)
            raise self.first_failure from error

    def all_reduce(self, array: Array, signature: Signature) -> RepeatedAllReduce | None:
        is_shared = array.nbytes > SMALL_BYTES and not signature.on_gpu
        shared = self._arrays.find(array) if is_shared else None
        if shared is not None:
            return self._shared_all_reduce(array, signature._replace(shared=shared.number), shared)
        require_no_numpy(signature)
        call = self._begin(signature)
        # In MPI itself two all_reduces of equal length match, whatever they are called: in lanes of
        # their own, ranks that confuse them wait for each other, and the watchdog finds out.
        all_reduce = self.lanes[call.lane].Allreduce
        with current_gpu(array):
            for chunk in self._chunks(array, call.call):
                all_reduce(self._mpi.IN_PLACE, (chunk, call.mpi_type), call.mpi_op)
        if 0 < array.nbytes <= CHUNK_BYTES and not signature.on_gpu:
            return _Repeated(self, call, array, signature.op, self._mpi.IN_PLACE)
        return None

    def _shared_all_reduce(
        self, array: Array, signature: Signature, shared: SharedArray
    ) -> RepeatedAllReduce:
        call = self.consistency.next(signature)
        self._enter(call.call)
        fail = partial(self.fail, call=call.call)
        meeting = _Comparison(self, call)
        repeated = SharedAllReduce(meeting, fail, shared, self.rank, array, signature.op)
        repeated.begin()
        return repeated

    def empty(self, length: int, signature: Signature) -> Array:
        self._begin(signature)
        if self.size == 1 or length * signature.dtype.itemsize <= SMALL_BYTES:
            return super().empty(length, signature)
        return self._arrays.make(length, signature.dtype, self._gather_rows)

    def _gather_rows(self, row: bytes) -> list[bytes]:
        table = np.empty((self.size, len(row)), np.uint8)
        self._data.Allgather((np.frombuffer(row, np.uint8), self._mpi.BYTE), table)
        return [found.tobytes() for found in table]

    def reduce_scatter(self, array: Array, signature: Signature) -> Array:
        require_no_numpy(signature)
        call = self._begin(signature)
        lengths = [stop - start for start, stop in part_bounds(len(array), self.size)]
        with current_gpu(array):
            part = writable_like(array, lengths[self.rank])
            source, target = (array, call.mpi_type), (part, call.mpi_type)
            self._data.Reduce_scatter(source, target, lengths, call.mpi_op)
        return part

    def all_gather(self, array: Array, signature: Signature) -> list[Array]:
        call = self._begin(signature)
        lengths = np.empty(self.size, np.int64)
        self._data.Allgather(np.array([len(array)]), lengths)
        starts, width = np.cumsum(lengths) - lengths, array.shape[1]
        with current_gpu(array):
            table = writable_like(array, (int(lengths.sum()), width))
            target = (table, lengths * width, starts * width, call.mpi_type)
            self._data.Allgatherv((array, call.mpi_type), target)
        ends = (starts + lengths).tolist()
        return [table[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]

    def broadcast(self, array: Array, signature: Signature) -> None:
        call = self._begin(signature)
        with current_gpu(array):
            for chunk in self._chunks(array, call.call):
                self._data.Bcast((chunk, call.mpi_type), signature.root)

    def barrier(self, signature: Signature) -> None:
        self._begin(signature)
        self._data.Barrier()

    def transfer(self, array: Array, name: str, shape: Sequence[int], source: int, to: int) -> None:
        call = transfer_call(name, array.dtype, shape, source, to)
        peer = to if source == self.rank else source
        waited_for = self.history.ranks[peer]
        self._enter(call, waited_for)
        if source == self.rank:
            self._data.Send((call.record, self._mpi.BYTE), to)
        else:
            self._receive_record(call, source)
        move = self._data.Send if source == self.rank else self._data.Recv
        with current_gpu(array):
            for chunk in self._chunks(array, call, waited_for):
                move((chunk.view(np.uint8), self._mpi.BYTE), peer)

    def split(self, color: int, key: int) -> Backend:
        self._begin(Signature("split", "", _NO_DTYPE, (0,)))
        self._num_splits += 1
        pairs = np.empty((self.size, 2), np.int64)
        self._data.Allgather(np.array([color, key]), pairs)
        ranks = part_of([(c, k) for c, k in pairs.tolist()], self.rank)
        members = [replace(self.members[rank], rank=i) for i, rank in enumerate(ranks)]
        tag = child_tag(self.history.tag, self._num_splits, color)
        history = History(tag, [self.history.ranks[rank] for rank in ranks])
        data = self._data.Split(min(ranks), ranks.index(self.rank))
        return MpiBackend(self._shared, data, data.Dup(), members, history, self.timeout_secs)

    def close(self, reason: str) -> None:
        """Leave. With a reason the whole job is aborted: MPI has no other way to tell the rest."""
        if self._is_closed:
            return
        self._is_closed = True
        if reason and len(self.watchdog.members) > 1:
            trace = traceback.format_exc() if sys.exc_info()[0] else ""
            abort_job(self._control, f"{trace}{self.members[self.rank]} gives up: {reason}")
        if self.history.tag == self._shared.tag:
            self.executor.stop()
            self.watchdog.stop()
        else:
            self.watchdog.leave(self.history)  # a part of a communicator: the whole goes on
        # What is still under way, or was interrupted, keeps what it uses.
        if self.first_failure is None and self.executor.is_idle and not self._mpi.Is_finalized():
            for comm in (*self.lanes, self._control):
                comm.Free()

    def _begin(self, signature: Signature) -> MpiCall:
        """Return what MPI needs for this call, once all ranks are known or trusted to make it."""
        call = self.consistency.next(signature)
        self._enter(call.call)
        self.consistency.agree(call)
        return call

    def _enter(self, call: Call, waited_for: int | None = None) -> None:
        """Tell the watchdog what is being done from now on, or that it has got further."""
        self.watchdog.now = Position(self, self.history, call, waited_for)

    def _chunks(self, array: Array, call: Call, waited_for: int | None = None) -> Iterator[Array]:
        step = CHUNK_BYTES // array.itemsize
        for start in range(0, len(array), step):
            self._enter(call, waited_for)
            yield array[start : start + step]

    def _receive_record(self, call: Call, source: int) -> None:
        record = bytearray(RECORD_BYTES)
        self._data.Recv((record, self._mpi.BYTE), source)
        if record != call.record:
            texts = record_text(bytes(record)), call.text
            members = self.members[source], self.members[self.rank]
            raise MismatchError(differing_calls(zip(map(str, members), texts, strict=True)))

    def _what_it_means(self, error: Any, call: Call) -> CollectiveError:
        text = f"{call.describe(self.step)} failed: {error.Get_error_string()}"
        error_class = error.Get_error_class()
        if error_class == self._mpi.ERR_TRUNCATE:
            return MismatchError(f"{text}: another rank sent more than was asked for")
        if error_class in (self._mpi.ERR_PROC_FAILED, self._mpi.ERR_REVOKED):
            return PeerLostError(text)
        return CollectiveError(text)
