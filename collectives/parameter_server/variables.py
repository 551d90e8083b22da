"""What a server does with variables: create, pull, push, and hold them still for a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import final

from .membership import Trainer
from .push_plan import PushPlanner, UpdateRule, check_rows
from .shards import Array, Shard, ShardStorage, ShardTable, available_bytes
from .state import State
from .step_requests import Pull, Pulled, Push, Pushed
from .updates import Updates
from .variable_requests import (
    Create,
    Created,
    Held,
    Hold,
    Position,
    ShardSpec,
    Snapped,
    Snapshot,
    Write,
    Written,
)

MAX_REPLY_BYTES = 4 << 30

_log = logging.getLogger("paceline")


@final
class Variables:
    """The variables of a server.

    Args:
        state: The server's.
        rules: The update rules by name.
        storage: For checkpoints.
        updates: When a push is applied.
    """

    def __init__(
        self,
        state: State,
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        updates: Updates,
    ) -> None:
        self._state = state
        self._storage = storage
        self._updates = updates
        self._table = ShardTable(state.name, storage)
        self._planner = PushPlanner(self._table, rules)
        self._snapshot: list[tuple[ShardSpec, Array]] | None = None
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self._table)

    def create(
        self, trainer: Trainer, request: Create, arrays: Sequence[Array]
    ) -> tuple[Created, list[Array]]:
        existed = self._table.create(request, arrays)
        state = self._state
        with state.lock:
            if not existed and not state.has_begun and request.version > state.version:
                state.version = request.version
                state.tell_progress()
        return Created(existed=existed), []

    def pull(
        self, trainer: Trainer, request: Pull, arrays: Sequence[Array]
    ) -> tuple[Pulled, list[Array]]:
        wanted = self._wanted(request, arrays)
        state = self._state
        if request.min_version > state.version:
            # Nothing happens when a trainer has been away for too long, so whoever waits looks.
            self._updates.reconsider()
        with state.lock:
            state.is_ready = True
            if not state.wait_for_progress(
                lambda: state.version >= request.min_version, request.wait_secs
            ):
                waiting_for = state.names(self._updates.missing())
                return Pulled(version=state.version, waiting_for=waiting_for), []
        version, values = self._read(wanted)
        return Pulled(version=version, stop_step=state.stop_step), values

    def push(
        self, trainer: Trainer, request: Push, arrays: Sequence[Array]
    ) -> tuple[Pushed, list[Array]]:
        state = self._state
        # All that can be wrong is found before anything is changed or waited for.
        plan = self._planner.prepared(request.plan)
        changes, wanted = self._planner.changes(plan, request, arrays), plan.pull
        with state.lock:
            state.is_ready = True
            self._check_trainer(trainer, request)
        pushed, values = self._updates.push(trainer, request, changes), list[Array]()
        if wanted and not pushed.waiting_for:
            pushed.version, values = self._read([(shard, None) for shard in wanted])
        pushed.is_ending, pushed.stop_step = state.is_ending, state.stop_step
        return pushed, values

    def hold(self, trainer: Trainer, request: Hold) -> Held:
        state = self._state
        with state.lock:
            state.cut.hold(trainer)
        self._updates.come_to_rest()
        with state.lock:
            positions = {
                other.rank: Position(number=other.number, servers=other.servers)
                for other in state.trainers
                if other.number
            }
            return Held(version=state.version, positions=positions)

    def snapshot(self, trainer: Trainer, request: Snapshot) -> Snapped:
        """Nothing is copied: whoever changes a variable now moves to a copy (see `Shard`).

        So a server needs twice the memory of what is changed until the snapshot is written.
        """
        state = self._state
        with state.lock:
            if not state.cut.is_held_by(trainer):
                return Snapped(version=state.version, is_held=False, notes={})
            state.cut.limit(request.version, request.numbers)
            state.tell_progress()
        self._updates.reconsider()
        with state.lock:
            if not state.wait_for_progress(
                lambda: not self._updates.behind(request), request.wait_secs
            ):
                waiting_for = state.names(self._updates.behind(request))
                return Snapped(version=state.version, waiting_for=waiting_for, notes={})
        self._updates.come_to_rest()
        snapped = self._keep()
        with state.lock:
            state.cut.release()
            state.tell_progress()
        self._updates.reconsider()
        return snapped

    def _keep(self) -> Snapped:
        state = self._state
        with state.variables_lock.exclusive():
            self._warn_of_little_memory()
            self._snapshot = [(shard.spec, shard.lend()) for shard in self._table]
            notes = {one.rank: one.note for one in state.trainers if one.note is not None}
            return Snapped(version=state.version, notes=notes)

    def _warn_of_little_memory(self) -> None:
        available, needed = available_bytes(), self.nbytes
        if available is not None and available < needed and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s has %.1f GB to spare, and needs up to %.1f GB more while a checkpoint is being "
                "written, for what changes meanwhile; split the variables over more parameter "
                "servers.",
                self._state.name,
                available / 1e9,
                needed / 1e9,
            )

    def write(self, trainer: Trainer, request: Write) -> Written:
        snapshot = self._snapshot
        if snapshot is None:
            raise ValueError(f"{self._state.name} has no snapshot to write; SNAPSHOT it first")
        slices = [
            (spec.name, spec.whole_shape, spec.start, spec.stop, value) for spec, value in snapshot
        ]
        record = self._storage.write(request.path, request.shard_index, slices)
        if self._snapshot is snapshot:
            self._snapshot = None
        return Written(record=record)

    def _check_trainer(self, trainer: Trainer, request: Push) -> None:
        state = self._state
        if not trainer.is_joined:
            raise ValueError(
                f"{trainer.name} must JOIN {state.name} before it pushes, also after its "
                "connection was lost or it has said DONE"
            )
        if request.pulled_version > state.version:
            raise ValueError(
                f"pulled_version must be at most {state.version}, the version of {state.name}; "
                f"{trainer.name} gives {request.pulled_version}. If this server was restarted from "
                "an earlier checkpoint, PULL first"
            )

    def _wanted(self, request: Pull, arrays: Sequence[Array]) -> list[tuple[Shard, Array | None]]:
        """The shards to read, with the numbers of the rows where only rows are wanted."""
        flags = request.rows or (False,) * len(request.ids)
        if len(flags) != len(request.ids) or len(arrays) != sum(flags):
            raise ValueError(
                f"rows must say of each of the {len(request.ids)} ids whether an array of row "
                f"numbers comes with it; there are {len(flags)} flags and {len(arrays)} arrays"
            )
        left = iter(arrays)
        shards = [self._table[number] for number in request.ids]
        wanted = [
            (shard, check_rows(next(left), shard) if flag else None)
            for shard, flag in zip(shards, flags, strict=True)
        ]
        num_bytes = sum([_num_bytes(shard, rows) for shard, rows in wanted])
        if num_bytes > MAX_REPLY_BYTES:
            raise ValueError(
                f"a pull must not exceed {MAX_REPLY_BYTES} bytes, this one has {num_bytes}; pull "
                "in several parts"
            )
        return wanted

    def _read(self, wanted: Sequence[tuple[Shard, Array | None]]) -> tuple[int, list[Array]]:
        """The values, and a version that they are not older than; the same one in step."""
        values = []
        with self._state.variables_lock.shared():
            # Before the values: they may be newer than it says, and are never older.
            version = self._state.version
            for shard, rows in wanted:
                with shard.lock:
                    values.append(shard.lend() if rows is None else shard.rows(rows))
        return version, values


def _num_bytes(shard: Shard, rows: Array | None) -> int:
    if rows is None:
        return shard.nbytes
    return len(rows) * shard.nbytes // max(1, shard.shape[0])
