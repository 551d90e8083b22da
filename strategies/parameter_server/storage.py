"""`ServerStorage`: variables that live on parameter servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import SupportsFloat, final
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from ...autodiff import Array, Awaited, IndexedSlices, MutableLeaf
from ...collectives.parameter_server import Aggregation, OptimizerSpec
from ..devices.device import HOST, Device, to_host
from ..variables.aggregation import VariableAggregation, VariableSpec
from ..variables.cell import Assignment, Cell, RemoteStorage, Rule, RuleStep, SavedValue, Storage
from .checkpoints import ServerWriters
from .placement import Layout, VariablePlacer
from .requests import RowLookup, VariableChange
from .servers import Servers

_AGGREGATIONS: Mapping[VariableAggregation, Aggregation] = {
    VariableAggregation.NONE: "equal",
    VariableAggregation.SUM: "sum",
    VariableAggregation.MEAN: "mean",
    VariableAggregation.ONLY_FIRST_REPLICA: "first",
}
_ADD, _ASSIGN = (
    {
        aggregation: OptimizerSpec(rule=rule, hyper={}, aggregation=name)
        for aggregation, name in _AGGREGATIONS.items()
    }
    for rule in ("add", "assign")
)
_NO_RATE = (0.0, 1)


@final
class ServerStorage(RemoteStorage):
    """Variables live on the parameter servers; this worker has a copy of those that it reads whole.

    A variable is elsewhere until it is read. From then on its copy is renewed with each step,
    in the same exchange that hands the step's changes in. A variable of which only rows are read,
    such as the table of an embedding, never has a copy here.

    Variables whose values are each replica's own, and such as are not saved, are kept by the worker
    itself.

    Args:
        servers: Gives the servers; called when they are needed first.
        placer: Says where new variables go; None on a worker that is not the chief.
        local: Where this worker's own variables live.
        max_staleness: How many steps this worker may be ahead of the slowest; None for any number.
        overlaps: Whether the exchange with the servers goes on under the next step, which thus does
            not see this one's changes yet.
    """

    def __init__(
        self,
        servers: Callable[[], Servers],
        placer: VariablePlacer | None,
        local: Storage,
        max_staleness: int | None,
        overlaps: bool = False,
    ) -> None:
        self._servers = servers
        self._overlaps = overlaps
        self._placer = placer
        self._local = local
        self._max_staleness = max_staleness
        self._lock = threading.RLock()
        self._layouts: dict[str, Layout] = {}
        self._copied: WeakValueDictionary[str, ServerCell] = WeakValueDictionary()
        self._changes: dict[str, VariableChange] = {}
        self._lookups: WeakSet[RowLookup] = WeakSet()  # of tensors that are still there
        self._arriving: list[tuple[ServerCell, np.ndarray]] = []
        self._num_reconnects = 0
        self.note: Callable[[], str] = str

    @property
    def averages_workers(self) -> bool:
        return self._max_staleness == 0

    @property
    def figures(self) -> Mapping[str, float]:
        """`staleness`, `dropped_steps` and `megabytes`, the latter two since the beginning."""
        if not self._layouts:
            return {"staleness": 0, "dropped_steps": 0, "megabytes": 0}
        servers = self._servers()
        return {
            "staleness": servers.staleness,
            "dropped_steps": servers.num_dropped,
            "megabytes": round(servers.num_bytes / 1e6, 3),
        }

    @property
    def writers(self) -> ServerWriters:
        return ServerWriters(self._servers(), self._lock)

    def create(
        self, spec: VariableSpec, initial: Callable[[], Array | SavedValue], beside: str | None
    ) -> Cell:
        if spec.keeps_own_values or not spec.saved:
            return self._local.create(spec, initial, beside)
        if spec.constraint is not None:
            raise ValueError(
                f"variable {spec.name!r} has a constraint, which parameter servers, of which each "
                f"may have a part of it, do not apply; leave it out, or keep variables with the "
                f"workers: MultiWorkerMirroredStrategy"
            )
        if self._placer is None:
            layout = self._servers().find(spec.name)
        else:
            found = initial()
            value = found if isinstance(found, SavedValue) else to_host(found)
            near = None if beside is None else self._layouts.get(beside)
            layout = self._placer.lay_out(spec.name, value.shape, value.dtype, near)
            self._servers().create(layout, value)
        self._layouts[spec.name] = layout
        return ServerCell(spec, layout, self)

    def fetch(self, cell: ServerCell) -> None:
        """Bring the value here, unless it is."""
        with self._lock:
            if cell.is_here:
                return
            array = np.empty(cell.layout.shape, cell.layout.dtype)
            self._servers().pull([(cell.layout, array)])
            cell.leaves[0].data = array
            cell.is_here = True
            self._copied[cell.spec.name] = cell

    def look_up(self, layout: Layout, rows: Array) -> Awaited:
        """Some rows of a variable; a number below 0 counts from behind.

        What is looked up before somebody needs it comes in one exchange.
        """
        numbers = np.asarray(rows, np.int64)
        numbers = np.where(numbers < 0, numbers + layout.shape[0], numbers)
        lookup = RowLookup(layout, numbers)
        with self._lock:
            self._lookups.add(lookup)

        def fetch() -> np.ndarray:
            with self._lock:
                if lookup in self._lookups:
                    self._fetch_lookups()
            return lookup.result()

        shape, distinct = (*numbers.shape, *layout.shape[1:]), (lookup.rows, lookup.places)
        return Awaited(shape, lookup.found.dtype, fetch, distinct)

    def note_assignment(
        self, cell: ServerCell, how: Assignment, given: np.ndarray, at_once: bool
    ) -> None:
        """Put off what the copy here has seen already."""
        name = cell.spec.name
        delta = -given if how is Assignment.SUBTRACT else given
        # Outside replicas all workers say the same; within them they bring a part each.
        aggregation = VariableAggregation.NONE if at_once else cell.spec.aggregation
        with self._lock:
            before = self._changes.get(name)
            if before is not None and before.optimizer.rule not in ("add", "assign"):
                raise _changed_twice(name)
            if how is Assignment.SET or (before is not None and before.optimizer.rule == "assign"):
                here = to_host(cell.leaves[0].data).copy()  # whatever was put off before
                change = VariableChange(cell.layout, _ASSIGN[aggregation], _NO_RATE, (), here)
            else:
                total = delta if before is None else before.gradient + delta
                change = VariableChange(cell.layout, _ADD[aggregation], _NO_RATE, (), total)
            self._changes[name] = change
            if at_once:
                self._exchange(1, overlaps=False)

    def note_update(
        self,
        cell: ServerCell,
        gradient: Array | IndexedSlices,
        slots: Sequence[Cell],
        how: RuleStep,
    ) -> None:
        """Put off an update by an optimizer's rule."""
        name, spec = cell.spec.name, _spec_of(how.rule, how.rows_only, how.average)
        rate = how.learning_rate, how.step
        beside = [self._layouts[slot.spec.name] for slot in slots]
        if isinstance(gradient, IndexedSlices):
            rows = gradient.unique()
            numbers, values = to_host(rows.indices), to_host(rows.values)
            change = VariableChange(cell.layout, spec, rate, beside, values, numbers)
        else:
            change = VariableChange(cell.layout, spec, rate, beside, to_host(gradient))
        if name in self._changes:
            raise _changed_twice(name)
        self._changes[name] = change

    def note_increase(self, cell: ServerCell, by: float) -> None:
        """Put off an increase."""
        how = _ADD[VariableAggregation.ONLY_FIRST_REPLICA]  # all count the same step
        delta = np.array(by, cell.layout.dtype)
        self._changes[cell.spec.name] = VariableChange(cell.layout, how, _NO_RATE, (), delta)

    def begin_run(self) -> None:
        if self._max_staleness and self._layouts:
            with self._lock:
                self._servers().wait_for_others(self._max_staleness)

    def flush(self, num_examples: float) -> None:
        with self._lock:
            self._exchange(num_examples, self._overlaps)

    def _exchange(self, num_examples: float, overlaps: bool) -> None:
        """Hand in what was put off, and have the copies here renewed: now, or at the next flush."""
        servers = self._servers()
        # What was looked up is what it was before the changes, whoever looks at it afterwards.
        self._fetch_lookups()
        # With overlap: what the last push has brought is taken over only here, so that no step sees
        # a variable change under its hands.
        servers.finish_push()
        self._take_what_has_arrived()
        changes, copied = list(self._changes.values()), list(self._copied.values())
        self._changes.clear()
        # With overlap the next step reads the copies while new values come.
        places = [
            servers.empty(cell.layout) if overlaps else cell.writable(servers) for cell in copied
        ]
        wanted = [(cell.layout, place) for cell, place in zip(copied, places, strict=True)]
        note = self.note() or None
        servers.start_push(changes, num_examples, note, wanted, keeps_arrays=not overlaps)
        if overlaps:
            self._arriving = list(zip(copied, places, strict=True))
        else:
            servers.finish_push()
        self._refresh_after_reconnects()

    def _fetch_lookups(self) -> None:
        lookups = list(self._lookups)
        if lookups:
            self._servers().pull_rows(lookups)
            self._lookups.clear()

    def come_to_rest(self) -> None:
        """Have the copies here as this trainer's last step has left them, also with overlap."""
        with self._lock:
            self._servers().finish_push()
            self._take_what_has_arrived()
            self._refresh_after_reconnects()

    def _refresh_after_reconnects(self) -> None:
        """A server that is back may have older values, and a lost one may still write to copies."""
        num_reconnects = self._servers().num_reconnects
        if num_reconnects != self._num_reconnects:
            self._num_reconnects = num_reconnects
            self.refresh()

    def _take_what_has_arrived(self) -> None:
        """Let the copies here be those that came of the step before the last."""
        for cell, array in self._arriving:
            cell.leaves[0].data = array
        self._arriving = []

    def settle(self) -> None:
        """See `Cell.settle`; also a step that is under way is waited for."""
        num_trainers = len(self._servers().channel.trainers)
        if num_trainers > 1 and not self.averages_workers:
            raise RuntimeError(
                f"each of {num_trainers} trainers changes the variables on parameter servers by "
                f"steps of its own, so that a loop cannot save or restore them at one moment, and "
                f"to restore would undo what others have learned; let an Estimator train, or all "
                f"make each step together: ParameterServerStrategy(max_staleness=0)"
            )
        self.refresh()

    def refresh(self) -> None:
        """Have all values read anew."""
        with self._lock:
            self._servers().finish_push()
            self._arriving = []
            for cell in self._copied.values():
                cell.is_here = False
            self._copied.clear()


@final
class ServerCell(Cell):
    """A variable on the servers, of which the worker has one copy for all of its replicas.

    Attributes:
        layout: Where it lies.
        is_here: Whether the copy has been read, and is renewed with each step since.
    """

    is_remote = True

    def __init__(self, spec: VariableSpec, layout: Layout, storage: ServerStorage) -> None:
        like = np.broadcast_to(np.zeros((), layout.dtype), layout.shape)  # it takes no memory
        super().__init__(spec, [like], [HOST])
        self.layout = layout
        self.is_here = False
        self._storage = storage
        self._place: np.ndarray | None = None

    @property
    def is_late(self) -> bool:
        return False  # what is on its way is waited for, before it goes to the servers

    def read(self, local_index: int) -> MutableLeaf:
        if not self.is_here:
            self._storage.fetch(self)
        return self.leaves[0]

    def settle(self) -> None:
        self._storage.settle()

    def writable(self, servers: Servers) -> np.ndarray:
        """The copy, about to be renewed, where its server can write to it."""
        leaf = self.leaves[0]
        here = leaf.writable()
        if here is not self._place:
            self._place = servers.empty(self.layout)
            np.copyto(self._place, here)
            leaf.move(self._place)
        return leaf.data

    def rows(self, local_index: int, numbers: Array, device: Device) -> Array | Awaited:
        awaited = self._storage.look_up(self.layout, to_host(numbers))
        if device.kind == "CPU":
            return awaited
        return device.put(awaited.fetch())

    def assign(self, how: Assignment, old: Array, given: Array, at_once: bool) -> None:
        here = to_host(given)
        self.leaves[0].data = HOST.put(how.applied(old, here))
        self._storage.note_assignment(self, how, here, at_once)

    def update(
        self,
        gradient: Array | IndexedSlices,
        slots: Sequence[Cell],
        how: RuleStep,
        local_index: int,
    ) -> None:
        here = how.on(HOST) if local_index == 0 else None
        if here is not None:
            self._storage.note_update(self, gradient, slots, here)

    def increase(self, local_index: int, by: SupportsFloat = 1) -> None:
        if local_index == 0:
            self._storage.note_increase(self, float(by))


@lru_cache(maxsize=256)
def _spec_of(rule: Rule, rows_only: bool, average: bool) -> OptimizerSpec:
    """What servers are told of a rule; all variables of an optimizer share it."""
    return OptimizerSpec(
        rule=rule.name,
        hyper=dict(rule.numbers),
        rows_only=rows_only,
        aggregation="mean" if average else "sum",
    )


def _changed_twice(name: str) -> RuntimeError:
    return RuntimeError(
        f"variable {name!r} is changed twice in one step, which parameter servers cannot "
        f"do: assign to it in a step of its own, or update it by one optimizer"
    )
