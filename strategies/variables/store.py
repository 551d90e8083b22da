"""Variables by name: how a `model_fn`, called anew for each step, finds what it made before."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from ...autodiff import Array, Tensor
from ...inputs import seed_shuffles
from ..devices.arrays import as_array
from ..devices.download import to_host_together
from ..replicas.frame import Frame, current_frame, entered
from .aggregation import VariableAggregation, VariableSpec, VariableSynchronization
from .cell import SavedValue
from .initial import Initializer, initial_array, initial_value
from .names import NAMES_OUTSIDE, Names, names_here
from .variable import Variable, install_constructor

Restore: TypeAlias = Callable[[str, Array, bool], "Array | SavedValue | None"]
"""`restore(name, value, trainable)`: what a new variable is to begin with instead of `value`."""


COUNTER: Mapping[str, Any] = {
    "trainable": False,
    "aggregation": VariableAggregation.ONLY_FIRST_REPLICA,
}
"""What is said of variables that all replicas change alike, as counts and slots."""

Creator: TypeAlias = Callable[..., Variable]

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("paceline_variable_creators", default=())


@contextmanager
def variable_creator_scope(creator: Callable[..., Variable]) -> Iterator[None]:
    """Let `creator(next_creator, **kwargs)` take part in creating each variable in this block.

    It may change the arguments before it calls `next_creator(**kwargs)`, and wrap or replace what
    comes back. Scopes nest; the innermost is asked first.
    """
    token = _creators.set((*_creators.get(), creator))
    try:
        yield
    finally:
        _creators.reset(token)


class VariableStore:
    """The variables of one model, by name, and what else belongs to it.

    Args:
        seed: Initial values are drawn from generators seeded by this and the variable's name, so
            that they do not depend on the order of creation. None: different each time.
        restore: Asked for each new variable that is saved; what it returns is the initial value,
            None leaves it to the initializer.
        averages_replicas: Whether losses are means over a replica's examples whose gradients
            are averaged (Estimator, fit), rather than summed (custom loops).
        keep: Whether the store keeps its variables alive. The store that is current outside any
            model does not: there a variable lives as long as somebody holds it.

    Attributes:
        global_step: Its count of steps, if not the variable of that name.
        identity: Stands for the store, and for those that have the same variables: `of_averages`.
    """

    def __init__(
        self,
        seed: int | None = None,
        restore: Restore | None = None,
        averages_replicas: bool = False,
        keep: bool = True,
    ) -> None:
        self.seed = seed
        self.averages_replicas = averages_replicas
        self.variables: MutableMapping[str, Variable] = {} if keep else WeakValueDictionary()
        self.resources: MutableMapping[Any, Any] = {} if keep else WeakValueDictionary()
        self.keep = keep
        self.global_step: Variable | None = None
        self.identity = object()
        self._restore = restore
        self._late: list[Callable[[str], Array | None]] = []
        self._beginnings: list[tuple[Tensor, Array]] | None = [] if keep else None
        self._lock = threading.RLock()

    def get_variable(
        self,
        spec: VariableSpec,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        initializer: Initializer | Array | float | None = None,
        beside: Variable | None = None,
    ) -> Variable:
        """See the module's function of this name.

        Args:
            beside: A variable of the same shape that it is used with: both are kept in one place.
        """
        name = spec.name
        variable = self.variables.get(name)
        if variable is None:
            draw = partial(self._draw, name, shape, dtype, initializer)
            variable = self.find_or_create_variable(spec, draw, None, beside)
        else:
            variable.replica_here()  # as there
        data = variable.like()
        if shape is not None and data.shape != tuple(shape):
            raise _conflict(name, "shape", data.shape, tuple(shape))
        if dtype is not None and data.dtype != dtype:
            raise _conflict(name, "dtype", data.dtype, np.dtype(dtype))
        return variable

    def find_or_create_variable(
        self, spec: VariableSpec, initial_value: Any, dtype: Any, beside: Variable | None = None
    ) -> Variable:
        """The variable of this name; the first replica to ask creates it for all.

        Args:
            spec: What it is to be.
            initial_value: An array, a number, or a function of no argument that gives one. It is
                called in cross-replica context, where no replica can be waited for.
            dtype: None leaves the value's.
            beside: See `get_variable`.
        """
        variable = self.variables.get(spec.name)
        if variable is None:
            # The first replica to come creates it for all, while the others wait at the lock: so an
            # initial value cannot ask for the other replicas, and runs in cross-replica context.
            with self._lock, entered(Frame(current_frame().strategy, None)):
                variable = self.variables.get(spec.name)
                if variable is None:
                    create: Creator = self._create
                    for creator in _creators.get():
                        create = partial(creator, create)
                    variable = create(
                        initial_value=initial_value, dtype=dtype, beside=beside, **spec._asdict()
                    )
                    self._note_beginning(variable)  # before another replica finds and assigns it
                    self.variables[spec.name] = variable
        variable.replica_here()  # refuses a variable that the caller's strategy cannot use
        return variable

    def find_or_create(self, key: Any, create: Callable[[], Any]) -> Any:
        """Something else that belongs to the model, found by `key` or made by `create()`.

        A store that does not keep its variables does not keep this alive either.
        """
        found = self.resources.get(key)
        if found is None:
            with self._lock:
                found = self.resources.get(key)
                if found is None:
                    found = self.resources[key] = create()
        return found

    def require_own(self, variables: Iterable[Variable], what: str, harm: str) -> None:
        """Refuse variables that the model uses but does not own. Outside models all are fine.

        Args:
            variables: Those used.
            what: What uses them.
            harm: What would come of it.

        Raises:
            ValueError: One was made elsewhere, as by a line outside `model_fn`.
        """
        if not self.keep:
            return
        strange = [v.name for v in variables if self.variables.get(v.name) is not v]
        if strange:
            raise ValueError(
                f"{what} uses variables that were made outside the model ({', '.join(strange)}): "
                f"{harm}. Make them inside model_fn, where they are found again by their names"
            )

    def forget(self) -> None:
        """Find nothing by name any more that exists so far. Its holders keep it."""
        with self._lock:
            self.variables.clear()
            self.resources.clear()
            self._late.clear()  # by names that others may have from now on

    def trainable_variables(self) -> list[Variable]:
        """The trainable variables in the order in which they were created."""
        return [v for v in list(self.variables.values()) if v.trainable]

    def saved_arrays(self) -> dict[str, Array]:
        """What this worker saves, in cross-replica context: all that does not live elsewhere.

        They are not copied, wherever they lie: the next update changes them, but for those `lend`.
        """
        saved = [(n, v) for n, v in list(self.variables.items()) if v.saved and not v.is_remote]
        return {name: variable.source().data for name, variable in saved}

    def saved_values(self) -> dict[str, np.ndarray]:
        """The same in host memory: what lies on cards is copied, and waited for together."""
        return to_host_together(self.saved_arrays())

    def lend(self, before_change: Mapping[str, Callable[[], object]]) -> None:
        """Call these, by name, before the saved value of a variable is changed in place."""
        for name, copied in before_change.items():
            self.variables[name].leaf(0).lend(copied)

    def _note_beginning(self, variable: Variable) -> None:
        if self._beginnings is not None and not variable.is_remote:
            leaves = [variable.leaf(index) for index in range(variable.num_copies)]
            self._beginnings += [(leaf, leaf.data) for leaf in leaves]

    @contextmanager
    def as_created(self) -> Iterator[None]:
        """Let all variables have the values that they were created with: once, before any update.

        The call of a model that creates its variables assigns to some of them, too (moving means,
        counts); what is saved as step 0 must not have that, as the step is made again from there.
        What is assigned within the block stays. No replica may run meanwhile.
        """
        beginnings, self._beginnings = self._beginnings or [], None
        # An assignment gives a copy a new array, and leaves the old one as it is.
        moved = [(leaf, first, leaf.data) for leaf, first in beginnings if leaf.data is not first]
        for leaf, first, _ in moved:
            leaf.data = first
        try:
            yield
        finally:
            for leaf, first, now in moved:
                if leaf.data is first:
                    leaf.data = now

    def begin_again(self) -> None:
        """Let all variables have the values that they were created with; forget all else.

        For a model that was used and not trained. No replica may run meanwhile.
        """
        for leaf, first in self._beginnings or ():  # an assignment has left the array as it was
            leaf.data = first
        self.resources.clear()

    def restore_later(self, find: Callable[[str], Array | None]) -> None:
        """Ask `find(name)`, too, what variables that are created from now on begin with."""
        if find not in self._late:
            self._late.append(find)

    def unique_name(self, base: str, owner: object = None) -> str:
        """`base`, or `base_1`, `base_2`, … where the calling model has used it already.

        Args:
            base: The name that is wished for.
            owner: Who is called so from now on; see `Membership`.
        """
        return names_here.get().unique(base, owner)

    def building(self) -> AbstractContextManager[None]:
        """Make this store current and count names from the beginning: one call of a `model_fn`.

        Outside models, where nothing is found again by a name that was counted, names go on.
        """
        return _Building(self, Names() if self.keep else names_here.get())

    def build_for_good(self) -> None:
        """`building` for all that follows in the calling context, which is the caller's own."""
        _store.set(self)
        if self.keep:
            names_here.set(Names())

    def of_averages(self, global_step: Variable) -> VariableStore:
        """The same variables, for steps that average over replicas and have a count of their own.

        Args:
            global_step: The count.
        """
        same = copy(self)
        same.averages_replicas, same.global_step = True, global_step
        return same

    @property
    def known_global_step(self) -> Variable | None:
        """The count of its steps, where it has one so far."""
        own = self.global_step
        return self.variables.get("global_step") if own is None else own

    def _create(
        self, initial_value: Any, dtype: Any, beside: Variable | None, **said: Any
    ) -> Variable:
        spec = VariableSpec(**said)
        # Beside what somebody keeps elsewhere, outside any scope for instance, is there as well.
        strategy = current_frame().strategy if beside is None else beside.strategy
        extended = strategy.extended
        spec.require_policies(extended.num_replicas > 1 or extended.remote_storage is not None)

        def initial() -> Array | SavedValue:
            given = initial_value() if callable(initial_value) else initial_value
            first = initial_array(given, dtype)
            return self._restored(spec, first) if spec.saved else first

        near = None if beside is None else beside.name
        cell = extended.storage.create(spec, initial, near)
        return Variable.of_cell(cell, strategy, beside is None)

    def _restored(self, spec: VariableSpec, value: Array) -> Array | SavedValue:
        name = spec.name
        late = next((found for find in self._late if (found := find(name)) is not None), None)
        if late is not None and late.shape != value.shape:
            raise _conflict(name, "shape", late.shape, value.shape)
        restored: Array | SavedValue | None = late
        if self._restore and late is None:
            restored = self._restore(name, value, spec.is_trained(value.dtype))
        if restored is None or isinstance(restored, SavedValue):
            return value if restored is None else restored
        return np.asarray(restored, dtype=value.dtype)

    def _draw(
        self, name: str, shape: tuple[int, ...] | None, dtype: Any, initializer: Any
    ) -> Array:
        """What a variable begins with that is asked for with `get_variable`."""
        # By the name, and not in the order of creation: a layer that is put in between changes no
        # other's values. (A hash of the name would differ between processes.)
        seed = None if self.seed is None else [self.seed, zlib.crc32(name.encode())]
        rng = np.random.default_rng(seed)
        return initial_value(name, shape, dtype, initializer, rng)


def _conflict(name: str, what: str, found: Any, asked: Any) -> ValueError:
    return ValueError(
        f"variable {name!r} has {what} {found} and is asked for with {what} {asked}; "
        f"give the second one another name, or ask for the same {what}"
    )


class _Building(AbstractContextManager[None]):
    """See `VariableStore.building`; entered once."""

    __slots__ = ("_model", "_names", "_names_token", "_store_token")

    def __init__(self, model: VariableStore, names: Names) -> None:
        self._model, self._names = model, names

    def __enter__(self) -> None:
        self._store_token, self._names_token = _store.set(self._model), names_here.set(self._names)

    def __exit__(self, *exc_info: object) -> None:
        names_here.reset(self._names_token)
        _store.reset(self._store_token)


# A variable of a custom loop lives as long as its layer: a store that kept all would never let go
# of a notebook's models.
_outside_models = VariableStore(keep=False)
_store: ContextVar[VariableStore] = ContextVar("paceline_store", default=_outside_models)


def current_store() -> VariableStore:
    """The store of the model that is being built or run here."""
    return _store.get()


def set_seed(seed: int | None) -> None:
    """Begin anew outside Estimators: seed everything, and count names from the beginning.

    The same code that makes a model thus gives the same names and numbers each time that it runs
    behind this call, as in a cell of a notebook. What was made before goes on as it is.

    Shuffles that are given no seed, and for which no `RunConfig(tf_random_seed=...)` gives one,
    take it as well: on all workers alike.

    Args:
        seed: ≥ 0; None for other numbers each time.
    """
    seed_shuffles(seed)
    _outside_models.seed = seed
    _outside_models.forget()
    NAMES_OUTSIDE.clear()


def get_variable(
    name: str,
    shape: tuple[int, ...] | None = None,
    dtype: Any = None,
    initializer: Initializer | Array | float | None = None,
    trainable: bool = True,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
    saved: bool = True,
    constraint: Callable[[Array], Array] | None = None,
) -> Variable:
    """Find the variable of this name in the current model, or create it.

    Args:
        name: Its name, also in checkpoints; parts are separated by slashes.
        shape: Needed to create one from an initializer that is a function; a number fills it; it
            is checked against a variable that exists.
        dtype: By default that of an array given as initializer, else float32. It is checked against
            a variable that exists.
        initializer: `f(shape, dtype, rng)`, or the initial value itself; Glorot uniform for
            matrices and zeros for the rest by default.
        trainable: Whether optimizers change it.
        synchronization, aggregation, saved, constraint: See `Variable`.

    Raises:
        ValueError: It exists with another shape or dtype, or cannot be created from what is given.
    """
    spec = VariableSpec(name, trainable, synchronization, aggregation, saved, constraint)
    return current_store().get_variable(spec, shape, dtype, initializer)


def _construct(
    initial_value: Any,
    trainable: bool = True,
    name: str | None = None,
    dtype: Any = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
    saved: bool = True,
    constraint: Callable[[Array], Array] | None = None,
) -> Variable:
    """`Variable(...)`: see its docstring."""
    store = current_store()
    own_name = store.unique_name(name or "Variable")
    spec = VariableSpec(own_name, trainable, synchronization, aggregation, saved, constraint)
    variable = store.find_or_create_variable(spec, initial_value, dtype)
    shape = variable.shape
    if not callable(initial_value) and as_array(initial_value).shape != shape:
        raise _conflict(spec.name, "shape", shape, as_array(initial_value).shape)
    return variable


install_constructor(_construct)


_GLOBAL_STEP = VariableSpec("global_step", **COUNTER)


def get_or_create_global_step() -> Variable:
    """The model's count of training steps: the int64 scalar variable "global_step"."""
    store = current_store()
    if store.global_step is not None:  # its value may be 0
        return store.global_step
    return store.get_variable(_GLOBAL_STEP, (), np.int64, 0)
