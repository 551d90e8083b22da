"""`ServerStorage`: variables that live on parameter servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import final
from weakref import WeakValueDictionary

import numpy as np

from ...autodiff import Array, IndexedSlices
from ...collectives.parameter_server import Aggregation, OptimizerSpec
from ..aggregation import VariableAggregation, VariableSynchronization
from ..devices import to_host
from ..storage import RuleStep, SavedValue, Storage
from ..variables import Variable
from .checkpoints import share_checkpoint
from .placement import Layout, VariablePlacer
from .requests import VariableChange
from .servers import Servers

_OWN = (VariableSynchronization.ON_READ, VariableSynchronization.NONE)
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
_ONE = np.ones((), np.int64)


@final
class ServerStorage(Storage):
    """Variables live on the parameter servers; this worker has a copy of those that it reads whole.

    A variable is `is_elsewhere` until it is read. From then on its copy is renewed with each step,
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
        self._copied: WeakValueDictionary[str, Variable] = WeakValueDictionary()
        self._changes: dict[str, VariableChange] = {}
        self._arriving: list[tuple[Variable, np.ndarray]] = []
        self._num_restarts = 0
        self._last_spec: tuple[RuleStep, OptimizerSpec] | None = None
        self.note: Callable[[], str] = str

    @property
    def is_remote(self) -> bool:
        return True

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
    def num_writers(self) -> int:
        return 1 + self._servers().num_servers

    def share_checkpoint(self, draft: str) -> Callable[[], Sequence[str]]:
        with self._lock:
            return share_checkpoint(self._servers(), draft)

    def of(self, synchronization: VariableSynchronization, saved: bool) -> Storage:
        return self if saved and synchronization not in _OWN else self._local

    def create(
        self,
        name: str,
        initial: Callable[[], Array | SavedValue],
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        beside: Variable | None,
    ) -> list[Array]:
        if self._placer is None:
            layout = self._servers().find(name)
        else:
            found = initial()
            value = found if isinstance(found, SavedValue) else to_host(found)
            near = self._layouts.get(beside.name) if beside is not None else None
            layout = self._placer.lay_out(name, value.shape, value.dtype, near)
            self._servers().create(layout, value)
        self._layouts[name] = layout
        # Tells shape and dtype, and takes no memory.
        return [np.broadcast_to(np.zeros((), layout.dtype), layout.shape)]

    def fetch(self, variable: Variable) -> None:
        with self._lock:
            if not variable.is_elsewhere:
                return
            layout = self._layouts[variable.name]
            array = np.empty(layout.shape, layout.dtype)
            self._servers().pull([(layout, array)])
            variable.leaf(0).data = array
            variable.is_elsewhere = False
            self._copied[variable.name] = variable

    def fetch_rows(self, variable: Variable, rows: Array) -> Array:
        numbers = np.asarray(rows, np.int64)
        layout = self._layouts[variable.name]
        numbers = np.where(numbers < 0, numbers + layout.shape[0], numbers)
        with self._lock:
            return self._servers().pull_rows(layout, numbers)

    def written(self, variable: Variable, verb: str, value: Array, at_once: bool) -> None:
        delta = -to_host(value) if verb == "assign_sub" else to_host(value)
        # Outside replicas all workers say the same; within them they bring a part each.
        aggregation = VariableAggregation.NONE if at_once else variable.aggregation
        with self._lock:
            before = self._changes.get(variable.name)
            if before is not None and before.optimizer.rule not in ("add", "assign"):
                raise _changed_twice(variable)
            if verb == "assign" or (before is not None and before.optimizer.rule == "assign"):
                here = to_host(variable.leaf(0).data).copy()  # whatever was put off before
                change = self._change(variable, _ASSIGN[aggregation], here)
            else:
                total = delta if before is None else before.gradient + delta
                change = self._change(variable, _ADD[aggregation], total)
            self._changes[variable.name] = change
            if at_once:
                self._exchange(1, overlaps=False)

    def update(
        self,
        variable: Variable,
        gradient: Array | IndexedSlices,
        slots: Sequence[Variable],
        how: RuleStep,
        local_index: int,
    ) -> None:
        if local_index > 0:  # all replicas share what is elsewhere
            return
        spec = self._spec_of(how)
        beside = [self._layouts[slot.name] for slot in slots]
        if isinstance(gradient, IndexedSlices):
            rows = gradient.unique()
            numbers, values = to_host(rows.indices), to_host(rows.values)
            change = VariableChange(self._layouts[variable.name], spec, beside, values, numbers)
        else:
            change = VariableChange(self._layouts[variable.name], spec, beside, to_host(gradient))
        if variable.name in self._changes:
            raise _changed_twice(variable)
        self._changes[variable.name] = change

    def increase(self, counter: Variable, local_index: int) -> None:
        if local_index == 0:
            how = _ADD[VariableAggregation.ONLY_FIRST_REPLICA]  # all count the same step
            self._changes[counter.name] = self._change(counter, how, _ONE)

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
        servers.finish_push()
        self._take_what_has_arrived()
        changes, copied = list(self._changes.values()), list(self._copied.values())
        self._changes.clear()
        places = [
            np.empty_like(v.leaf(0).data) if overlaps else v.leaf(0).writable() for v in copied
        ]
        wanted = [(self._layouts[v.name], place) for v, place in zip(copied, places, strict=True)]
        note = self.note() or None
        servers.start_push(changes, num_examples, note, wanted, keeps_arrays=not overlaps)
        if overlaps:
            self._arriving = list(zip(copied, places, strict=True))
        else:
            servers.finish_push()
        if servers.num_restarts != self._num_restarts:
            self._num_restarts = servers.num_restarts  # with older values than it had
            self.refresh()

    def _take_what_has_arrived(self) -> None:
        """Let the copies here be those that came of the step before the last."""
        for variable, array in self._arriving:
            variable.leaf(0).data = array
        self._arriving = []

    def refresh(self) -> None:
        """Have all values read anew."""
        with self._lock:
            self._servers().finish_push()
            self._arriving = []
            for variable in self._copied.values():
                variable.is_elsewhere = True
            self._copied.clear()

    def _change(self, variable: Variable, how: OptimizerSpec, value: np.ndarray) -> VariableChange:
        return VariableChange(self._layouts[variable.name], how, (), value)

    def _spec_of(self, how: RuleStep) -> OptimizerSpec:
        """What servers are told of a rule; all variables of an optimizer share it."""
        if self._last_spec is None or self._last_spec[0] is not how:
            spec = OptimizerSpec(
                rule=how.rule.name,
                hyper=dict(how.rule.numbers),
                learning_rate=how.learning_rate,
                step=how.step,
                rows_only=how.rows_only,
                aggregation="mean" if how.average else "sum",
            )
            self._last_spec = how, spec
        return self._last_spec[1]


def _changed_twice(variable: Variable) -> RuntimeError:
    return RuntimeError(
        f"variable {variable.name!r} is changed twice in one step, which parameter servers cannot "
        f"do: assign to it in a step of its own, or update it by one optimizer"
    )
