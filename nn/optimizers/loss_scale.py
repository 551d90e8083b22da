"""`LossScaleOptimizer`: the small gradients of half precision are no zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, SupportsFloat

import numpy as np

from ...autodiff import Array, IndexedSlices
from ...strategies import (
    COUNTER,
    Device,
    Pack,
    Variable,
    VariableSpec,
    current_store,
    get_replica_context,
    get_strategy,
)
from ..arguments import count
from .clipping import scaled
from .optimizer import Optimizer, install_scaling

_LARGEST = float(np.finfo(np.float32).max)


class LossScaleOptimizer(Optimizer):
    """Another optimizer, whose losses are multiplied by a large number before their gradients.

    The gradients, which are divided by it, are those of the loss, but what would be too small for
    float16 on the way is not. `minimize` does so by itself; in a custom loop `get_scaled_loss`
    multiplies, `get_unscaled_gradients` divides, and `apply_gradients` takes what that gives.

    A dynamic scale is halved where a gradient is not finite, in a step that changes nothing else:
    all replicas and workers look at the same reduced gradients. It is doubled when so many updates
    in a row went well. Micikevicius et al., "Mixed Precision Training" (2018). The scale is in
    checkpoints. A skipped step counts for the global step, and is none of `iterations`.

    A GPU decides by itself: it keeps the old values, or writes the new ones. The host learns what
    it was when it asks for the scale of the next step, whose forward pass it has queued by then.

    Args:
        inner_optimizer: What changes variables.
        dynamic: Whether the scale follows the gradients.
        initial_scale: That of the first step; 2¹⁵ by default if it is dynamic.
        dynamic_growth_steps: The updates between two doublings.

    Raises:
        ValueError: The scale is not positive; or not given, and not dynamic.
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        dynamic: bool = True,
        initial_scale: float | None = None,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ) -> None:
        if not isinstance(inner_optimizer, Optimizer):
            raise TypeError(f"inner_optimizer must be an optimizer, not {inner_optimizer!r}")
        if isinstance(inner_optimizer, LossScaleOptimizer):
            raise TypeError("the loss is scaled already: inner_optimizer is a LossScaleOptimizer")
        if initial_scale is None and not dynamic:
            raise ValueError("a scale that is not dynamic is to be given, as initial_scale")
        self.inner_optimizer = inner_optimizer
        self.dynamic = dynamic
        self.initial_scale = 2.0**15 if initial_scale is None else float(initial_scale)
        if not self.initial_scale > 0:
            raise ValueError(f"initial_scale must be positive, it is {initial_scale!r}")
        self.dynamic_growth_steps = count("dynamic_growth_steps", dynamic_growth_steps)
        super().__init__(name or f"{inner_optimizer.name}_loss_scale")

    @property
    def iterations(self) -> Variable:
        """The number of updates made so far: that of the inner optimizer."""
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        """That of the inner optimizer, to be read and assigned."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    lr = learning_rate

    @property
    def learning_rate_schedule(self) -> Callable[[int], float]:
        """That of the inner optimizer."""
        return self.inner_optimizer.learning_rate_schedule

    def get_state(self) -> dict[str, Any]:
        return self.inner_optimizer.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.inner_optimizer.set_state(state)

    @property
    def prefix(self) -> str:
        """That of the inner optimizer."""
        return self.inner_optimizer.prefix

    def rate_after(self, num_updates: int) -> float:
        """See `Updater`."""
        return self.inner_optimizer.rate_after(num_updates)

    @property
    def variables(self) -> list[Variable]:
        """Those of the inner optimizer, and the scale."""
        return [*self.inner_optimizer.variables, *self._own_variables()]

    @property
    def existing_variables(self) -> list[Variable]:
        """Those of `variables` that exist."""
        return [*self.inner_optimizer.existing_variables, *self._kept_here().scale]

    def _own_variables(self) -> Sequence[Variable]:
        """The scale, and the number of updates since it last changed."""
        kept = self._kept_here()
        if not kept.scale:
            starts = ("loss_scale", np.float32, self.initial_scale), ("good_steps", np.int64, 0)
            kept.scale = tuple([self._number(*start) for start in starts])
        return kept.scale

    def _number(self, name: str, dtype: type, start: float) -> Variable:
        full_name = f"{self.inner_optimizer.name}/{name}"
        spec = VariableSpec(full_name, **COUNTER, is_on_host=True)
        return current_store().get_variable(spec, (), dtype, start)

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied by."""
        replica = get_replica_context()
        return self.scale_of_loss(0 if replica is None else replica.local_index)

    def scale_of_loss(self, local_index: int) -> float:
        """See `Updater`."""
        return float(self._own_variables()[0].value_in(local_index))

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale; a function that gives the loss becomes one that gives that."""
        if callable(loss):
            return lambda: self.scale_loss(loss())
        return loss * self.loss_scale

    get_scaled_loss = scale_loss

    def get_unscaled_gradients(self, grads: Iterable[Any]) -> list[Any]:
        """Gradients of a scaled loss, as `apply_gradients` takes them: divided by the scale."""
        factor = 1 / self.loss_scale
        return [None if gradient is None else scaled(gradient, factor) for gradient in grads]

    def described(self, num_updates: int) -> str:
        """See `Updater`."""
        inner = self.inner_optimizer.described(num_updates)
        return f"{inner}, the loss times {self.loss_scale:g}"

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def create_slots(self, variables: Sequence[Variable]) -> None:
        """See `Updater`."""
        _ = self._own_variables()
        self.inner_optimizer.create_slots(variables)

    def update(
        self, packs: Sequence[Pack], local_index: int, average: bool
    ) -> tuple[Sequence[Variable], SupportsFloat]:
        """See `Updater`: the inner optimizer's update, if all gradients are finite."""
        are_finite = _are_finite(packs)
        device = Device.of(are_finite)
        is_made = device.fetch(are_finite)
        if self.dynamic:
            self._follow(is_made, local_index)
        if device.kind == "CPU" and not float(is_made):
            return (), 0  # to compute with what is no number would only warn
        where = None if device.kind == "CPU" else are_finite
        counters = self.inner_optimizer.update_where(where, packs, local_index, average)
        return counters, is_made

    def _follow(self, is_made: SupportsFloat, local_index: int) -> None:
        """Let the scale become that of the next step."""
        own = self._own_variables()
        scale, num_good = (variable.value_in(local_index).item() for variable in own)
        grows = num_good + 1 >= self.dynamic_growth_steps
        above = scale if grows and 2 * scale <= _LARGEST else 0.0
        changes = (
            _Either(is_made, above, max(scale / 2, 1.0) - scale),
            _Either(is_made, -num_good if grows else 1, -num_good),
        )
        for variable, change in zip(own, changes, strict=True):
            variable.cell.increase(local_index, change)

    def _require_possible(self) -> None:
        self.inner_optimizer._require_possible()
        remote = get_strategy().extended.remote_storage
        if self.dynamic and remote is not None and get_strategy().extended.job.num_trainers > 1:
            raise ValueError(
                "several workers at parameter servers each have gradients of their own, so that "
                "they would not agree on steps to skip, nor on the scale of the loss; give "
                "LossScaleOptimizer(…, dynamic=False, initial_scale=…), use the policy "
                "'mixed_bfloat16', or MultiWorkerMirroredStrategy"
            )

    def _scaling_losses(self) -> Optimizer:
        return self

    def enter_model(self) -> Any:
        self.inner_optimizer.enter_model()
        return super().enter_model()

    def _create_own_slots(self, variables: Sequence[Variable]) -> None:
        raise AssertionError("the inner optimizer has them")


@dataclass(frozen=True, slots=True)
class _Either:
    """One of two numbers, by a decision that may be on its way from a card."""

    decision: SupportsFloat
    if_so: float
    if_not: float

    def __float__(self) -> float:
        return float(self.if_so if float(self.decision) else self.if_not)


def _are_finite(packs: Sequence[Pack]) -> Array:
    """Whether all gradients are numbers: a truth value of shape (), where they lie."""
    found = [np.isfinite(values).all() for pack in packs for values in _values_in(pack)]
    are_finite = reduce(np.logical_and, found, np.True_)
    return np.asarray(are_finite) if isinstance(are_finite, np.generic) else are_finite


def _values_in(pack: Pack) -> list[Array]:
    if pack.joined is not None:
        return [pack.joined]
    present = [gradient for gradient in pack.gradients if gradient is not None]
    return [g.values if isinstance(g, IndexedSlices) else g for g in present]


install_scaling(LossScaleOptimizer)
