"""`Optimizer`: from a loss, or from gradients, to changed variables."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np

from ...autodiff import Array, Tensor
from ...strategies import (
    COUNTER,
    GradientReducer,
    Membership,
    RuleStep,
    TrainOp,
    Update,
    Updater,
    Variable,
    VariableSpec,
    add_up,
    apply_outside_replicas,
    as_array,
    current_store,
    get_or_create_global_step,
    get_replica_context,
    get_strategy,
    get_variable,
    make_step,
)
from ..serialization import Serializable
from . import schedules
from .clipping import Clipping
from .rules import Rule

LearningRate: TypeAlias = "float | Callable[[int], float]"


class Optimizer(Serializable, Updater):
    """Changes variables along their gradients, by one rule, in step on all replicas.

    Two ways lead to a change, and they differ in who divides the loss:

    - `minimize(loss)`: `loss` is the mean over the replica's examples. Gradients are *averaged*
      over replicas, weighted by their numbers of examples, so that N replicas do what one would do
      with the whole batch.
    - `apply_gradients(...)`, for custom loops: gradients are *summed* over replicas; the loss is to
      be divided by the global batch size, as `nn.compute_average_loss` does.

    Args:
        rule: The arithmetic with its numbers, and the slots that it keeps beside each variable.
        learning_rate: A number ≥ 0, or a schedule: a function of the number of updates made so far.
        name: The beginning of its variables' names.
        clipnorm, clipvalue, global_clipnorm: At most one of them: the largest norm of each
            gradient, the largest absolute value of each element, the largest norm of all
            gradients together. Applies to the gradients after they are reduced.
        sparse: What becomes of rows that a step did not read, where the gradient covers rows only
            (`IndexedSlices`, as of an `Embedding`). "dense": the same as with the dense gradient,
            which is zero there, as in Keras: moments and momentum decay and go on moving the rows.
            "lazy": they and their slots stay as they are; it is another algorithm, whose step
            costs as much as its batch and not as the table. SGD without momentum and Adagrad
            change no such row in either way.

    Raises:
        ValueError: A negative learning rate, more than one way of clipping, or an unknown `sparse`.
    """

    def __init__(
        self,
        rule: Rule,
        learning_rate: LearningRate,
        name: str,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        sparse: str = "dense",
    ) -> None:
        if sparse not in ("dense", "lazy"):
            raise ValueError(f"sparse must be 'dense' or 'lazy', it is {sparse!r}")
        self.learning_rate = schedules.get(learning_rate)
        self._rule = rule
        self._clipping = Clipping(clipnorm, clipvalue, global_clipnorm)
        self._slot_values = rule.slots()
        self._wished = name, partial(_Kept.of, tuple(self._slot_values))
        self._membership = Membership(self, *self._wished)
        self.name = self._membership.name
        self._rows_only = sparse == "lazy" or rule.keeps_unread()

    def named_here(self) -> Self:
        """A copy that is named as if the calling model had made it.

        Outside models names are counted through the whole process: an optimizer that was made there
        is called "adam_3" if it is the fourth, and by another name when the script runs again.
        """
        other = copy.copy(self)
        other._membership = Membership(other, *self._wished)
        other.name = other._membership.name
        return other

    @property
    def iterations(self) -> Variable:
        """The number of updates made so far: an int64 scalar variable."""
        # Outside models a hook or a user asks, who means those of the model that was trained last.
        is_in_model = current_store().keep
        kept = self._membership.here(self) if is_in_model else self._membership.latest
        if kept.iterations is None:
            kept.iterations = get_variable(f"{self.name}/iterations", (), np.int64, 0, **COUNTER)
        return kept.iterations

    @property
    def variables(self) -> list[Variable]:
        """The number of updates, and the slots that exist so far."""
        slots = self._membership.latest.slots.values()
        return [self.iterations, *(slot for _, of_one in slots for slot in of_one)]

    @property
    def existing_variables(self) -> list[Variable]:
        """Those of `variables` that exist: before the first step none, and none is made by this."""
        exists = self._membership.latest.iterations is not None
        return self.variables if exists else []

    def restore_later(self, find: Callable[[str], Array | None]) -> None:
        """Ask `find(name)` what slots that do not exist yet begin with; for checkpoints."""
        current_store().restore_later(find)

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
    ) -> TrainOp:
        """A deferred training step: call what is returned, in each replica, to make it happen.

        Args:
            loss: A scalar, the mean over this replica's examples.
            global_step: The counter that a step increases; the model's global step by default.
            var_list: The variables to change; by default all trainable ones of the model (in a
                custom loop: those that the loss depends on). One that the loss depends on in no
                replica is left as it is.
        """
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"loss must be a tensor computed from the model's variables, it is {type(loss)}; "
                f"values from .numpy() have left the gradient graph"
            )
        if loss.size != 1:
            raise ValueError(
                f"loss must be a scalar, its shape is {loss.shape}; "
                f"take its mean over the examples with np.mean(loss)"
            )
        kept = self._membership.here(self)
        if global_step is None:
            # Outside a model nobody else would keep the count.
            kept.global_step = global_step = get_or_create_global_step()
        self._require_clipping_of_means()
        return TrainOp([Update(self, loss, var_list)], [global_step])

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Change each variable along its gradient, after summing gradients over replicas.

        In replica context every replica must call it, with the same variables. In cross-replica
        context all copies are changed along the gradients as they are given.

        Args:
            grads_and_vars: Pairs; a gradient is an array, `IndexedSlices`, or None for nothing. A
                variable that occurs twice has the sum of its gradients; one without a gradient on
                any replica is left as it is.

        Raises:
            ValueError: No pair has a gradient.
        """
        pairs = [(None if g is None else as_array(g), v) for g, v in grads_and_vars]
        if all(g is None for g, _ in pairs):
            raise ValueError(
                "no gradient is given for any variable; does the loss depend on the variables "
                f"({', '.join(v.name for _, v in pairs) or 'none given'})?"
            )
        self._membership.here(self)
        self._require_clipping_of_means()
        replica = get_replica_context()
        variables, found = _summed(pairs, 0 if replica is None else replica.local_index)
        if replica is not None:
            update = Update(self, None, variables, found)
            make_step(TrainOp([update]), 1, average=False)
        else:
            given = [(v, found[v.leaf(0)]) for v in variables if v.leaf(0) in found]
            apply_outside_replicas(self, given)

    @property
    def reducers(self) -> MutableMapping[tuple[Any, ...], GradientReducer]:
        """What reduced the gradients of the model's earlier steps."""
        return self._membership.latest.reducers

    def _require_clipping_of_means(self) -> None:
        """Refuse to clip a worker's own part of a mean that parameter servers take."""
        if not self._clipping.limits:
            return
        extended = get_strategy().extended
        num_workers = extended.job.num_trainers
        remote = extended.remote_storage
        if num_workers == 1 or remote is None or not remote.averages_workers:
            return
        raise ValueError(
            f"optimizer {self.name!r} is to clip gradients ({self._clipping}), but where "
            f"{num_workers} workers make each step together at parameter servers (max_staleness=0) "
            f"each would clip its own, before the servers take the mean; leave it out, let workers "
            f"make steps of their own (max_staleness=None), or use MultiWorkerMirroredStrategy"
        )

    def clipped(self, gradients: Sequence[tuple[Variable, Any]]) -> Sequence[tuple[Variable, Any]]:
        """The gradients as they are applied, after they were reduced."""
        if not self._clipping.limits:
            return gradients
        clipped = self._clipping.apply([g for _, g in gradients])
        return [(v, g) for (v, _), g in zip(gradients, clipped, strict=True)]

    def rule_step(self, num_updates: int, average: bool) -> RuleStep:
        """How variables change that have seen so many updates."""
        rate = self.learning_rate(num_updates)
        return RuleStep(self._rule, rate, num_updates + 1, self._rows_only, average)

    def described(self, num_updates: int) -> str:
        """The update after so many, as a line that differs where another one would be made."""
        rate = float(self.learning_rate(num_updates))
        settings: dict[str, Any] = {**self._rule.numbers, **self._clipping.limits}
        settings |= {"learning_rate": rate, "sparse": "lazy" if self._rows_only else "dense"}
        return f"update {num_updates} of {self.name!r} by {self._rule.name} with {settings}"

    def slots(self, variable: Variable) -> list[Variable]:
        """What the rule keeps beside `variable`, created at the first call."""
        if not self._slot_values:
            return []
        known = self._membership.latest.slots
        # By the name and the variable: in another model the name means another one.
        of, slots = known.get(variable.name, (None, []))
        if of is not variable:
            slots = [
                current_store().get_variable(
                    VariableSpec(name=f"{self.name}/{variable.name}/{slot}", **COUNTER),
                    variable.shape,
                    variable.dtype,
                    start,
                    beside=variable,
                )
                for slot, start in self._slot_values.items()
            ]
            known[variable.name] = variable, slots
        return slots


class _Kept:
    """What an optimizer has found in the store of one model."""

    __slots__ = ("__weakref__", "global_step", "iterations", "reducers", "slots")

    def __init__(self) -> None:
        self.iterations: Variable | None = None
        self.global_step: Variable | None = None
        self.slots: dict[str, tuple[Variable, list[Variable]]] = {}
        self.reducers: dict[tuple[Any, ...], GradientReducer] = {}

    @staticmethod
    def of(slots: Sequence[str], name: str) -> _Kept:
        """What optimizers of this name have found, of which most are made anew for each step."""
        kept: _Kept = current_store().find_or_create(("optimizer", name, *slots), _Kept)
        return kept

    def __deepcopy__(self, memo: dict[int, Any]) -> _Kept:
        return _Kept()  # a copy of an optimizer finds its variables by their names


def _summed(
    pairs: Sequence[tuple[Any, Variable]], local_index: int
) -> tuple[list[Variable], dict[Tensor, Any]]:
    """Each variable once, and the sum of the gradients that it was given in one replica."""
    variables: dict[Tensor, Variable] = {}
    found: dict[Tensor, Any] = {}
    for gradient, variable in pairs:
        leaf = variable.leaf(local_index)
        variables[leaf] = variable
        if gradient is not None:
            found[leaf] = add_up([found[leaf], gradient]) if leaf in found else gradient
    return list(variables.values()), found
