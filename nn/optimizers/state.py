"""`OptimizerState`: an optimizer's options, its name, and what it keeps of models."""

from __future__ import annotations

import copy
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Self, SupportsFloat

import numpy as np

from ...autodiff import Array, IndexedSlices
from ...strategies import (
    COUNTER,
    GradientReducer,
    Membership,
    Pack,
    RuleStep,
    Updater,
    Variable,
    VariableSpec,
    current_store,
    get_variable,
    pairs_of,
)
from ..arguments import check_fraction, check_not_negative, count
from ..serialization import Serializable, serialize
from .clipping import Clipping
from .kept import Kept
from .learning_rate import CurrentRate, LearningRate, schedule_of
from .rule import ADD, ASSIGN
from .schedules import Constant

ACCUMULATOR, AVERAGE = "gradient_accumulator", "average"


class OptimizerState(Serializable, Updater):
    """What all optimizers have, whatever they do with a gradient; see `Optimizer`."""

    def __init__(
        self,
        name: str = "optimizer",
        *,
        learning_rate: LearningRate = 0.001,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        sparse: str = "dense",
    ) -> None:
        if sparse not in ("dense", "lazy"):
            raise ValueError(f"sparse must be 'dense' or 'lazy', it is {sparse!r}")
        self._learning_rate = schedule_of(learning_rate)
        self._clipping = Clipping(clipnorm, clipvalue, global_clipnorm)
        self.weight_decay = weight_decay
        self.use_ema = use_ema
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        check_not_negative("weight_decay", weight_decay or 0.0)
        check_fraction("ema_momentum", ema_momentum)
        if ema_overwrite_frequency is not None:
            count("ema_overwrite_frequency", ema_overwrite_frequency)
        self._excluded: tuple[frozenset[str], tuple[str, ...]] = (frozenset(), ())
        if loss_scale_factor is not None and not loss_scale_factor > 0:
            raise ValueError(f"loss_scale_factor must be positive, it is {loss_scale_factor!r}")
        self._scale = 1.0 if loss_scale_factor is None else float(loss_scale_factor)
        steps = gradient_accumulation_steps
        self._num_accumulated = 1 if steps is None else count("gradient_accumulation_steps", steps)
        self._is_lazy = sparse == "lazy"
        if self._is_lazy and self._num_accumulated > 1:
            raise ValueError(
                "sparse='lazy' passes over rows that a step did not read, which sums of gradients "
                "of several steps do not tell; leave out gradient_accumulation_steps, or let "
                "RunConfig(gradient_accumulation_steps=...) add gradients up"
            )
        self._lock = threading.Lock()
        self._built_for: object = None
        self._scaling: OptimizerState | None = None
        self._wished = name, partial(Kept.of, self._kept_as())
        self._membership = Membership(self, *self._wished)
        self.name = self._membership.name

    def _kept_as(self) -> tuple[str, ...]:
        """What makes two optimizers of one name, in one model, the same."""
        return (AVERAGE,) if self.use_ema else ()

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor; the learning rate as it is by now."""
        schedule = self.learning_rate_schedule
        is_number = isinstance(schedule, Constant)
        rate = float(schedule(0)) if is_number else serialize(schedule)
        return super().get_config() | self.taken({"learning_rate": rate})

    @property
    def prefix(self) -> str:
        """The beginning of the names of its variables, in front of a slash."""
        return self.name

    def __getstate__(self) -> dict[str, Any]:
        # What it keeps of models stays here: another process finds variables by its name.
        of_process = ("_membership", "_lock", "_built_for", "_scaling")
        return {name: value for name, value in vars(self).items() if name not in of_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(state, state["name"])

    def as_prototype(self) -> dict[str, Any]:
        # Nothing in it is ever changed in place: another rate, say, is another schedule.
        return self.__getstate__()

    def begin_as(self, prototype: dict[str, Any]) -> None:
        self._begin(prototype, prototype["_wished"][0])

    def _begin(self, state: Mapping[str, Any], wished: str) -> None:
        """Be what `state` says, of another process or of an earlier step, under a name of its own.

        Args:
            state: What `__getstate__` gave.
            wished: The name, if it is free.
        """
        vars(self).update(state, _lock=threading.Lock(), _built_for=None, _scaling=None)
        self._membership = Membership(self, wished, self._wished[1])
        self.name = self._membership.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = self._twin()
        other._membership = copy.deepcopy(self._membership, memo)
        return other

    def _twin(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self), _lock=threading.Lock(), _built_for=None, _scaling=None)
        return other

    def named_here(self) -> Self:
        """A copy that is named as if the calling model had made it.

        Outside models names are counted through the whole process: an optimizer that was made there
        is called "adam_3" if it is the fourth, and by another name when the script runs again.
        """
        other = self._twin()
        other._membership = Membership(other, *self._wished)
        other.name = other._membership.name
        return other

    @property
    def iterations(self) -> Variable:
        """The number of updates made so far: an int64 scalar variable."""
        kept = self._kept_here()
        if kept.iterations is None:
            kept.iterations = get_variable(f"{self.name}/iterations", (), np.int64, 0, **COUNTER)
        return kept.iterations

    def enter_model(self) -> Kept:
        """What it keeps of the calling model, which is the one that uses it from now on."""
        return self._membership.here(self)

    def _kept_here(self) -> Kept:
        # Outside models a hook or a user asks, who means those of the model that was trained last.
        is_in_model = current_store().keep
        return self._membership.here(self) if is_in_model else self._membership.latest

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the next update: a float, to which another can be assigned.

        Each process has its own: callbacks and hooks that assign one do so on all workers, which
        would else be refused at the next step. Checkpoints have the chief's.

        Raises:
            TypeError: A number was assigned, and there is a schedule.
        """
        iterations = self._membership.latest.iterations
        num_updates = 0 if iterations is None else int(iterations.value_in(0))
        return CurrentRate.of(self, self.rate_after(num_updates))

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
        is_number = not callable(value)
        if is_number and not isinstance(self._learning_rate, Constant):
            raise TypeError(
                f"the learning rate of {self.name!r} follows {self._learning_rate!r}, so that no "
                f"number can be assigned to it; make the optimizer with a number, or assign "
                f"another schedule"
            )
        self._learning_rate = schedule_of(value)
        # Also for those of its name that a model_fn makes anew for each step.
        self._membership.latest.assigned_rate = self._learning_rate

    lr = learning_rate

    @property
    def learning_rate_schedule(self) -> Callable[[int], float]:
        """The learning rate as a function of the number of updates made before."""
        return self._membership.latest.assigned_rate or self._learning_rate

    def described(self, num_updates: int) -> str:
        """See `Updater`."""
        settings = {**self._settings(), **self._clipping.limits}
        if any(self._excluded):
            settings["not decaying"] = [*sorted(self._excluded[0]), *self._excluded[1]]
        if self._scale != 1:
            settings["loss_scale_factor"] = self._scale
        if self._num_accumulated > 1:
            settings["gradient_accumulation_steps"] = self._num_accumulated
        kept = self._membership.latest
        known, text = kept.described
        if known != settings:  # to write them takes longer than all else here
            kept.described = settings, (text := str(settings)[1:-1])
        rate = float(self.rate_after(num_updates))
        by = f"{self._rule_name} with {{{text}, 'learning_rate': {rate}}}"
        return f"update {num_updates} of {self.name!r} by {by}"

    @property
    def _rule_name(self) -> str:
        return type(self).__name__

    def _settings(self) -> dict[str, Any]:
        """The numbers by which it changes variables."""
        names = ("weight_decay", "use_ema", "ema_momentum", "ema_overwrite_frequency")
        return {name: getattr(self, name) for name in names}

    def rate_after(self, num_updates: int) -> float:
        """The learning rate of the update after so many."""
        schedule = self._membership.latest.assigned_rate or self._learning_rate
        return float(schedule(num_updates))  # one of a user's may give a tensor

    def _build_learning_rate(self, learning_rate: LearningRate) -> Callable[[int], float]:
        """For `__init__` of subclasses, as in Keras 2.15: `self._learning_rate = …`."""
        return schedule_of(learning_rate)

    @property
    def variables(self) -> list[Variable]:
        """The counters, and what it keeps beside variables so far."""
        kept = self._membership.latest
        counters = [self.iterations, *([] if kept.batches is None else [kept.batches])]
        slots = [slot for _, of_one in kept.slots.values() for slot in of_one.values()]
        scale = () if self._scaling is None else self._scaling.enter_model().scale
        return [*counters, *slots, *(sums for _, sums in kept.accumulators.values()), *scale]

    @property
    def existing_variables(self) -> list[Variable]:
        """Those of `variables` that exist: before the first step none, and none is made by this."""
        exists = self._membership.latest.iterations is not None
        return self.variables if exists else []

    def restore_later(self, find: Callable[[str], Array | None]) -> None:
        """Ask `find(name)` what slots that do not exist yet begin with; for checkpoints."""
        current_store().restore_later(find)

    def get_state(self) -> dict[str, Any]:
        """What checkpoints have of it beside its variables: the learning rate, if one was assigned.

        It is not in it if it is a function that cannot be written down, which a warning tells.
        """
        return self._membership.latest.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Have a learning rate assigned as it was in `get_state`.

        Raises:
            ValueError: It is an object of a class that is not known here.
        """
        self._membership.latest.set_state(state)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Let weights decay in others only.

        Args:
            var_list: Some variables.
            var_names: Regular expressions that are looked for in names of variables, as "bias".
        """
        names, patterns = self._excluded
        names |= {variable.name for variable in var_list or ()}
        self._excluded = names, (*patterns, *(var_names or ()))

    def _decays(self, variable: Variable) -> bool:
        """Whether weights of `variable` decay, if those of any do."""
        names, patterns = self._excluded
        return not (variable.name in names or any(re.search(p, variable.name) for p in patterns))

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """At the end of training: let variables become their moving averages, if it keeps them."""
        for variable in var_list if self.use_ema else ():
            average = self._average_of(variable)
            if average is not None:  # one that was never updated has none
                variable.assign(average.numpy())

    def _average_of(self, variable: Variable) -> Variable | None:
        of, slots = self._membership.latest.slots.get(variable.name, (None, {}))
        return slots.get(AVERAGE) if of is variable else None

    @property
    def reducers(self) -> MutableMapping[tuple[Any, ...], GradientReducer]:
        """What reduced the gradients of the model's earlier steps."""
        return self._membership.latest.reducers

    def create_slots(self, variables: Sequence[Variable]) -> None:
        """See `Updater`: the slots of the rule, and sums of gradients."""
        self._create_own_slots(variables)
        if self._num_accumulated > 1:
            _ = self._batches
            for variable in variables:
                self._accumulator(variable)

    @abstractmethod
    def _create_own_slots(self, variables: Sequence[Variable]) -> None:
        """Create what `_change` works with beside `variables`, unless it is there."""

    @abstractmethod
    def _change(
        self,
        where: Array | None,
        packs: Sequence[Pack],
        num_updates: int,
        local_index: int,
        average: bool,
    ) -> None:
        """Change what replica `local_index` sees of variables that have seen so many updates."""

    def scale_of_loss(self, local_index: int) -> float:
        """See `Updater`: `loss_scale_factor`."""
        return self._scale

    def update(
        self, packs: Sequence[Pack], local_index: int, average: bool
    ) -> tuple[Sequence[Variable], SupportsFloat]:
        """See `Updater`."""
        return self.update_where(None, packs, local_index, average), 1

    def update_where(
        self, where: Array | None, packs: Sequence[Pack], local_index: int, average: bool
    ) -> Sequence[Variable]:
        """Accumulate, clip, change; see `Updater.update`.

        Args:
            where: A truth value of shape (), where the gradients lie: whether anything is to
                change. None: it is.
            packs, local_index, average: As there.

        Returns:
            The counters.
        """
        counters = [self.iterations]
        if self._num_accumulated > 1:
            num_batches = int(self._batches.value_in(local_index))
            if (num_batches + 1) % self._num_accumulated:
                self._accumulate(where, packs, local_index, average)
                return [self._batches]
            counters.append(self._batches)
            packs = self._accumulated(where, packs, local_index, average)
        # What has no gradient lies in no pack with others.
        present = [pack for pack in packs if pack.gradients[0] is not None]
        num_updates = int(counters[0].value_in(local_index))
        self._change(where, self._clipping.apply(present), num_updates, local_index, average)
        return counters

    def _accumulate(
        self, where: Array | None, packs: Sequence[Pack], local_index: int, average: bool
    ) -> None:
        how = RuleStep(ADD, 1.0, 1, rows_only=True, average=average, where=where)
        for variable, gradient in pairs_of(packs):
            if gradient is not None:
                self._accumulator(variable).cell.update(gradient, (), how, local_index)

    def _accumulated(
        self, where: Array | None, packs: Sequence[Pack], local_index: int, average: bool
    ) -> list[Pack]:
        """The means of the gradients of all steps since the last update; sums begin anew."""
        how = RuleStep(ASSIGN, 1.0, 1, average=average, where=where)
        means: list[Pack] = []
        for variable, gradient in pairs_of(packs):
            sums = self._accumulator(variable)
            total = sums.value_in(local_index).copy()
            if gradient is None and not total.any():
                continue  # it had none in any of the steps
            sums.cell.update(np.zeros_like(total), (), how, local_index)
            if isinstance(gradient, IndexedSlices):
                total = gradient.add_to(total)
            elif gradient is not None:
                total += gradient
            total /= self._num_accumulated
            means.append(Pack.of_one(variable, total))
        return means

    @property
    def _batches(self) -> Variable:
        """How many gradients were accumulated, in all updates together."""
        kept = self._kept_here()
        if kept.batches is None:
            name = f"{self.name}/num_accumulated"
            kept.batches = get_variable(name, (), np.int64, 0, **COUNTER)
        return kept.batches

    def _accumulator(self, variable: Variable) -> Variable:
        known = self._membership.latest.accumulators
        of, found = known.get(variable.name, (None, None))
        if of is not variable or found is None:
            found = self._new_slot(variable, ACCUMULATOR, variable.shape, 0.0)
            known[variable.name] = variable, found
        return found

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        """What is kept beside a variable so far, by name."""
        kept = self._membership.latest
        # By the name and the variable: in another model the name means another one.
        of, slots = kept.slots.get(variable.name, (None, {}))
        if of is not variable:
            with kept.lock:  # or a replica would fill what another one has replaced meanwhile
                of, slots = kept.slots.get(variable.name, (None, {}))
                if of is not variable:
                    kept.slots[variable.name] = variable, (slots := {})
        return slots

    def _slot(
        self, variable: Variable, name: str, shape: tuple[int, ...] | None, start: Any
    ) -> Variable:
        """One slot of a variable, created at the first call; see `_new_slot`."""
        slots = self._slots_of(variable)
        if name not in slots:
            own = variable.shape if shape is None else shape
            slots[name] = self._new_slot(variable, name, own, start)
        return slots[name]

    def _new_slot(
        self, variable: Variable, slot: str, shape: tuple[int, ...], start: Any
    ) -> Variable:
        """A slot that begins as an initializer says, or, for None, as its variable is now."""
        initial = start
        if start is None:
            initial = lambda shape, dtype, rng: variable.numpy()  # noqa: E731
        return current_store().get_variable(
            VariableSpec(name=f"{self.name}/{variable.name}/{slot}", **COUNTER),
            shape,
            variable.dtype,
            initial,
            beside=variable if shape == variable.shape else None,
        )
