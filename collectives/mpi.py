"""The communicator over MPI: its own collectives, in chunks, with names, comparisons and deadlines.

MPI blocks inside C, does not say on whom, and adds up whatever arrives. Therefore

- the first use of a name is compared over all ranks before any data moves;
- afterwards each rank keeps a running digest of its calls. It is compared with every call of more
  than 2 MiB and with every 128th, but not with each short one, whose time that would double;
- all_reduces of different names go over different MPI communicators, in turn, so that ranks which
  confuse two of them wait for each other instead of adding up what does not belong together;
- a watch notices a call that does not end, finds out who is missing or elsewhere, and aborts the
  job with that text, because a rank that is inside MPI cannot raise.
"""

from __future__ import annotations

import secrets
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, final

import numpy as np

from .arrays import check_array, check_rank
from .calls import (
    ANY_LENGTH,
    RECORD_BYTES,
    Call,
    child_tag,
    differing_calls,
    direct_call,
    record_text,
)
from .communicator import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    Array,
    Communicator,
    Handle,
    Op,
    part_bounds,
)
from .errors import ClosedError, CollectiveError, MismatchError, PeerLostError
from .leaving import close_at_exit, forget
from .members import Member
from .mpi_accord import CHUNK_BYTES, COMPARED_CALLS, NUM_LANES, Accord, History, Plan
from .mpi_start import end_if_stuck, wait_for_ranks
from .mpi_watch import Position, Watch, abort_job
from .runner import Runner, has_core_to_spare

_NO_DTYPE = np.dtype(bool)


def import_mpi() -> Any:
    """Return ``mpi4py.MPI``, which initialises MPI if need be.

    Raises:
        ImportError: It is not installed, or finds no MPI library; the text says what to install.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"MPI cannot be used here ({error}): pip install 'paceline[mpich]' brings mpi4py and "
            "an MPI library; with a library of the system, install 'paceline[mpi]'"
        ) from error
    return MPI


def mpi_communicator(
    comm: Any = None,
    *,
    tasks: Sequence[str] | None = None,
    expected_size: int | None = None,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    start_timeout_secs: float = 600.0,
    report_secs: float = 10.0,
) -> MpiCommunicator:
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
    watch, runner = Watch(mpi, control, members, silence_secs), Runner(f"paceline-mpi-{comm.rank}")
    shared = _Shared(mpi, watch, runner, _agreed_tag(control))
    history = History(shared.tag, range(comm.size))
    communicator = MpiCommunicator(shared, comm.Dup(), control, members, history, timeout_secs)
    host = members[comm.rank].address
    communicator.overlaps = has_core_to_spare(sum(m.address == host for m in members))
    close_at_exit(communicator)
    return communicator


def abort_on_exception() -> None:
    """From now on an uncaught exception prints its traceback and ends the whole MPI job.

    Without this the other ranks wait for ever for one that has raised. ``python -m mpi4py`` does
    the same for the main thread; this also covers other threads.
    """
    import threading

    mpi = import_mpi()

    def abort(
        exception_type: type[BaseException],
        exception: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        text = "".join(traceback.format_exception(exception_type, exception, trace))
        abort_job(mpi.COMM_WORLD, text.rstrip())

    sys.excepthook = abort
    threading.excepthook = lambda args: abort(args.exc_type, args.exc_value, args.exc_traceback)


@dataclass(frozen=True)
class _Shared:
    """What a communicator has in common with those split from it."""

    mpi: Any
    watch: Watch
    runner: Runner
    tag: int


@dataclass(frozen=True, slots=True)
class _Short:
    """All that it takes to repeat a short all_reduce with the same array."""

    array: weakref.ref[Array]
    op: Op
    key: int
    position: Position
    all_reduce: Callable[..., None]
    mpi_type: Any
    mpi_op: Any


@final
class MpiCommunicator(Communicator):
    """A communicator over MPI; made by `mpi_communicator` and by `split`."""

    def __init__(
        self,
        shared: _Shared,
        data: Any,
        control: Any,
        members: Sequence[Member],
        history: History,
        timeout_secs: float,
    ) -> None:
        super().__init__(members, data.rank, timeout_secs)
        self._lanes = [data, *(data.Dup() for _ in range(NUM_LANES - 1))]
        for comm in (*self._lanes, control):
            comm.Set_errhandler(shared.mpi.ERRORS_RETURN)
        self._shared = shared
        self._mpi = shared.mpi
        self._in_place = shared.mpi.IN_PLACE
        self._watch = shared.watch
        self._runner = shared.runner
        self._data = data
        self._control = control
        self._history = history
        self._accord = Accord(shared.mpi, control, members, history)
        self._short: dict[str, _Short] = {}
        self._num_splits = 0
        self._failure: CollectiveError | None = None
        self._closed = False
        shared.watch.add_history(history)

    @property
    def failure(self) -> str:
        return "it is closed" if self._closed else str(self._failure or "")

    def all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> None:
        short = self._short.get(name)
        if (
            short is None
            or short.array() is not array
            or short.op is not op
            or self._history.sequence % COMPARED_CALLS == COMPARED_CALLS - 1
            or self._runner.last is not None
        ):
            check_array(array, name)
            self._run(self._all_reduce, array, name, op)
            return
        # A short all_reduce takes a few microseconds: one more would be noticed.
        watch, position = self._watch, short.position
        self._history.add(position.call, short.key)
        watch.now = position
        try:
            short.all_reduce(self._in_place, (array, short.mpi_type), short.mpi_op)
        except self._mpi.Exception as error:
            raise self._failed(self._what_it_means(error, position.call)) from error
        finally:
            watch.now = None

    def start_all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> Handle:
        check_array(array, name)
        action = partial(self._guarded, self._all_reduce, array, name, op)
        return self._runner.start(action, at_once=self.overlaps)

    def reduce_scatter(self, array: Array, name: str, op: Op = Op.SUM) -> Array:
        check_array(array, name)
        bounds = part_bounds(len(array), self.size)
        start, stop = bounds[self.rank]
        part = np.empty(stop - start, array.dtype)
        self._run(self._reduce_scatter, array, part, [b - a for a, b in bounds], name, op)
        return part

    def all_gather(self, array: Array, name: str) -> list[Array]:
        check_array(array, name, writeable=False)
        arrays: list[Array] = []
        self._run(self._all_gather, array, name, arrays)
        return arrays

    def broadcast(self, array: Array, name: str, root: int = 0) -> None:
        check_array(array, name)
        check_rank(root, "root", self.size)
        self._run(self._broadcast, array, name, root)

    def send(self, array: Array, name: str, to: int) -> None:
        check_array(array, name, writeable=False)
        check_rank(to, "to", self.size, other_than=self.rank)
        self._run(self._send, array, name, to)

    def receive(self, array: Array, name: str, source: int) -> None:
        check_array(array, name)
        check_rank(source, "source", self.size, other_than=self.rank)
        self._run(self._receive, array, name, source)

    def barrier(self, name: str) -> None:
        self._run(self._barrier, name)

    def split(self, color: int, key: int) -> Communicator:
        parts: list[MpiCommunicator] = []
        self._run(self._split, color, key, parts)
        return parts[0]

    def close(self, reason: str = "") -> None:
        """Leave. With a reason the whole job is aborted: MPI has no other way to tell the rest."""
        if self._closed:
            return
        self._closed = True
        forget(self)
        self._short.clear()
        if reason and len(self._watch.members) > 1:
            trace = traceback.format_exc() if sys.exc_info()[0] else ""
            abort_job(self._control, f"{trace}{self.members[self.rank]} gives up: {reason}")
        if self._history.tag == self._shared.tag:
            self._runner.stop()
            self._watch.stop()
        else:
            self._watch.leave(self._history)  # a part of a communicator: the whole goes on
        # What is still under way, or was interrupted, keeps what it uses.
        if self._failure is None and self._runner.idle and not self._mpi.Is_finalized():
            for comm in (*self._lanes, self._control):
                comm.Free()

    def _run(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do ``action`` here and now, or behind what has been started."""
        if self._runner.idle:
            self._guarded(action, *arguments)
        else:
            task = partial(self._guarded, action, *arguments)
            self._runner.start(task, at_once=self.overlaps).wait()

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        if self._closed:
            raise ClosedError("this communicator is closed")
        if self._failure is not None:
            raise type(self._failure)(f"unusable since an earlier failure: {self._failure}")
        try:
            action(*arguments)
        except CollectiveError as error:
            raise self._failed(error) from None
        except self._mpi.Exception as error:
            raise self._failed(self._what_it_means(error, self._watch.call)) from error
        finally:
            self._watch.now = None

    def _failed(self, error: CollectiveError) -> CollectiveError:
        self._failure = error
        self._short.clear()
        return error

    def _what_it_means(self, error: Any, call: Call) -> CollectiveError:
        text = f"{call.describe(self.step)} failed: {error.Get_error_string()}"
        error_class = error.Get_error_class()
        if error_class == self._mpi.ERR_TRUNCATE:
            return MismatchError(f"{text}: another rank sent more than was asked for")
        if error_class in (self._mpi.ERR_PROC_FAILED, self._mpi.ERR_REVOKED):
            return PeerLostError(text)
        return CollectiveError(text)

    def _begin(
        self,
        operation: str,
        name: str,
        dtype: np.dtype[Any],
        length: int,
        op: Op = Op.SUM,
        root: int = 0,
    ) -> Plan:
        """Return what MPI needs for this call, once all ranks are known or trusted to make it."""
        plan = self._accord.plan(operation, name, dtype, length, op, root)
        self._history.add(plan.call, plan.key)
        self._enter(plan.call)
        self._accord.agree(plan)
        return plan

    def _enter(self, call: Call, waited_for: int | None = None) -> None:
        """Tell the watch what is being done from now on, or that it has got further."""
        self._watch.now = Position(self, self._history, call, waited_for)

    def _chunks(self, array: Array, call: Call, waited_for: int | None = None) -> Iterator[Array]:
        step = CHUNK_BYTES // array.itemsize
        for start in range(0, len(array), step):
            self._enter(call, waited_for)
            yield array[start : start + step]

    def _all_reduce(self, array: Array, name: str, op: Op) -> None:
        plan = self._begin("all_reduce", name, array.dtype, len(array), op)
        in_place, mpi_type, mpi_op = self._in_place, plan.mpi_type, plan.mpi_op
        all_reduce = self._lanes[plan.lane].Allreduce
        for chunk in self._chunks(array, plan.call):
            all_reduce(in_place, (chunk, mpi_type), mpi_op)
        if 0 < plan.call.num_bytes <= CHUNK_BYTES:
            position = Position(self, self._history, plan.call)
            self._short[name] = _Short(
                weakref.ref(array), op, plan.key, position, all_reduce, mpi_type, mpi_op
            )

    def _reduce_scatter(
        self, array: Array, part: Array, lengths: Sequence[int], name: str, op: Op
    ) -> None:
        plan = self._begin("reduce_scatter", name, array.dtype, len(array), op)
        source, target = (array, plan.mpi_type), (part, plan.mpi_type)
        self._data.Reduce_scatter(source, target, lengths, plan.mpi_op)

    def _all_gather(self, array: Array, name: str, arrays: list[Array]) -> None:
        plan = self._begin("all_gather", name, array.dtype, ANY_LENGTH)
        lengths = np.empty(self.size, np.int64)
        self._data.Allgather(np.array([len(array)]), lengths)
        flat = np.empty(lengths.sum(), array.dtype)
        starts = np.cumsum(lengths) - lengths
        target = (flat, lengths, starts, plan.mpi_type)
        self._data.Allgatherv((array, plan.mpi_type), target)
        arrays += np.split(flat, starts[1:])

    def _broadcast(self, array: Array, name: str, root: int) -> None:
        plan = self._begin("broadcast", name, array.dtype, len(array), root=root)
        for chunk in self._chunks(array, plan.call):
            self._data.Bcast((chunk, plan.mpi_type), root)

    def _barrier(self, name: str) -> None:
        self._begin("barrier", name, _NO_DTYPE, 0)
        self._data.Barrier()

    def _send(self, array: Array, name: str, to: int) -> None:
        call = direct_call(name, array.dtype, len(array), self.rank, to)
        world_rank = self._history.ranks[to]
        self._enter(call, world_rank)
        self._data.Send((call.record, self._mpi.BYTE), to)
        for chunk in self._chunks(array, call, world_rank):
            self._data.Send((chunk.view(np.uint8), self._mpi.BYTE), to)

    def _receive(self, array: Array, name: str, source: int) -> None:
        call = direct_call(name, array.dtype, len(array), source, self.rank)
        world_rank = self._history.ranks[source]
        self._enter(call, world_rank)
        record = bytearray(RECORD_BYTES)
        self._data.Recv((record, self._mpi.BYTE), source)
        if record != call.record:
            texts = record_text(bytes(record)), call.text
            members = self.members[source], self.members[self.rank]
            raise MismatchError(differing_calls(zip(map(str, members), texts, strict=True)))
        for chunk in self._chunks(array, call, world_rank):
            self._data.Recv((chunk.view(np.uint8), self._mpi.BYTE), source)

    def _split(self, color: int, key: int, parts: list[MpiCommunicator]) -> None:
        self._begin("split", "", _NO_DTYPE, 0)
        self._num_splits += 1
        pairs = np.empty((self.size, 2), np.int64)
        self._data.Allgather(np.array([color, key]), pairs)
        ranks = [rank for rank in range(self.size) if pairs[rank][0] == color]
        ranks.sort(key=lambda rank: (pairs[rank][1], rank))
        members = [replace(self.members[rank], rank=i) for i, rank in enumerate(ranks)]
        history = History(
            child_tag(self._history.tag, self._num_splits, color),
            [self._history.ranks[rank] for rank in ranks],
        )
        first = self._data.Split(min(ranks), ranks.index(self.rank))
        part = MpiCommunicator(
            self._shared, first, first.Dup(), members, history, self.timeout_secs
        )
        part.overlaps = self.overlaps
        parts.append(part)


def check_world(mpi: Any, comm: Any, expected_size: int | None) -> None:
    """Check that the launcher and mpi4py use the same MPI.

    Raises:
        RuntimeError: The world has another size than the launcher was asked for.
    """
    if expected_size is not None and comm.size != expected_size:
        raise RuntimeError(
            f"the launcher was asked for {expected_size} ranks, but this process is in a world of "
            f"{comm.size}: mpirun must be of the same MPI as mpi4py ("
            f"{mpi.Get_library_version().splitlines()[0].strip()}), such as the one in the "
            "directory of this Python interpreter"
        )


def _agreed_tag(comm: Any) -> int:
    """Return a number by which messages of earlier communicators are told apart."""
    tag = np.array([secrets.randbits(63)], np.int64)
    comm.Bcast(tag)
    return int(tag[0])


def name_ranks(mpi: Any, comm: Any, names: Sequence[str]) -> list[Member]:
    """Return the ranks by name and host; all ranks call this."""
    table = np.zeros((comm.size, mpi.MAX_PROCESSOR_NAME), np.uint8)
    own = mpi.Get_processor_name().encode()
    table[comm.rank, : len(own)] = np.frombuffer(own, np.uint8)
    comm.Allgather(mpi.IN_PLACE, table)
    hosts = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in table]
    pairs = zip(names, hosts, strict=True)
    return [Member(rank, name, host) for rank, (name, host) in enumerate(pairs)]
