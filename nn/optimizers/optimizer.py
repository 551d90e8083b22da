"""`Optimizer`: from a loss, or from gradients, to changed variables."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from ...autodiff import Array, IndexedSlices, Tensor, backward, by_host, no_grad
from ...observe import log_once
from ...strategies import (
    COUNTER,
    Pack,
    TrainOp,
    Update,
    Variable,
    add_up,
    apply_outside_replicas,
    apply_reduced,
    as_array,
    deferred,
    get_or_create_global_step,
    get_replica_context,
    get_strategy,
    get_variable,
    make_given,
    once_outside_replicas,
    pairs_of,
    to_host,
)
from .. import initializers
from ..policies import global_policy
from .clipping import scaled
from .learning_rate import LearningRate
from .state import AVERAGE, OptimizerState

_INSTEAD = {
    "decay": "pass learning_rate=schedules.InverseTimeDecay(rate, 1, decay)",
    "jit_compile": "leave it away, nothing is compiled",
    "lr": "it is called learning_rate",
}
"""What to pass for arguments of Keras's older optimizers."""

_scaling: list[Callable[[Optimizer], Optimizer]] = []


def install_scaling(around: Callable[[Optimizer], Optimizer]) -> None:
    """Let `around` make the optimizer that scales losses. Called once, by its module."""
    assert not _scaling, "there is one way in which losses are scaled"
    _scaling.append(around)


class Optimizer(OptimizerState):
    """Changes variables along their gradients, in step on all replicas.

    Two ways lead to a change, and they differ in who divides the loss:

    - `minimize(loss)`: `loss` is the mean over the replica's examples. Gradients are *averaged*
      over replicas, weighted by their numbers of examples, so that N replicas do what one would do
      with the whole batch.
    - `apply_gradients(...)`, for custom loops: gradients are *summed* over replicas; the loss is to
      be divided by the global batch size, as `nn.compute_average_loss` does.

    To write one of your own, in Keras's manner: make what it keeps beside variables in `build`, and
    change a variable in `update_step`. Both run outside of replicas, where `assign` sets the copies
    of all; on parameter servers, which know the optimizers of this package only, it is refused.

    >>> class SignDescent(Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         variable.assign_sub(learning_rate * np.sign(gradient))
    >>> SignDescent(learning_rate=0.5).learning_rate
    0.5

    Args:
        name: The beginning of its variables' names.
        learning_rate: A number ≥ 0, a schedule (a function of the number of updates made so far),
            or a function of no argument, which is asked in each step.
        clipnorm, clipvalue, global_clipnorm: At most one of them: the largest norm of each
            gradient, the largest absolute value of each element, the largest norm of all
            gradients together. Applies to the gradients after they are reduced (and accumulated).
        weight_decay: Times the learning rate: the part of each variable that an update takes away
            before anything else. See `exclude_from_weight_decay`.
        use_ema: Keep the exponential moving average of each variable; see
            `finalize_variable_values`.
        ema_momentum: How much of the average stays in each update.
        ema_overwrite_frequency: Let variables become their averages after each so many updates.
        loss_scale_factor: What a loss is multiplied by before its gradients are computed, which
            are divided by it after that: for losses in low precision. In a custom loop
            `scale_loss` multiplies, and `apply_gradients` divides.
        gradient_accumulation_steps: Change variables in every so many-th step only, along the mean
            of the gradients of all since the last change. The sums so far are in checkpoints.
        sparse: What becomes of rows that a step did not read, where the gradient covers rows only
            (`IndexedSlices`, as of an `Embedding`). "dense": the same as with the dense gradient,
            which is zero there, as in Keras: moments and momentum decay and go on moving the rows.
            "lazy": they and their slots stay as they are; it is another algorithm, whose step
            costs as much as its batch and not as the table. SGD without momentum and Adagrad
            change no such row in either way, unless weights decay or are averaged. Lamb and
            Adafactor, which look at whole variables, know "dense" only.

    Raises:
        ValueError: A negative learning rate, more than one way of clipping, or an unknown `sparse`.
    """

    _takes_rate: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._takes_rate = "learning_rate" in inspect.signature(cls.update_step).parameters

    def __init__(
        self, name: str = "optimizer", *, learning_rate: LearningRate = 0.001, **options: Any
    ) -> None:
        for argument in _INSTEAD.keys() & options.keys():
            raise TypeError(
                f"{type(self).__name__} has no argument {argument!r}; {_INSTEAD[argument]}"
            )
        super().__init__(name, learning_rate=learning_rate, **options)
        self.built = self._built = False
        self._index_dict: dict[str, int] = {}

    def scale_loss(self, loss: Any) -> Any:
        """The loss times `loss_scale_factor`, for `apply_gradients` of its gradients."""
        return loss if self._scale == 1 else loss * self._scale

    @by_host
    def minimize(
        self,
        loss: Any,
        global_step: Variable | Sequence[Variable] | None = None,
        var_list: Sequence[Variable] | None = None,
        tape: Any = None,
    ) -> TrainOp:
        """A deferred training step: call what is returned, in each replica, to make it happen.

        Args:
            loss: A scalar, the mean over this replica's examples. Under the global policy
                "mixed_float16" it is scaled, as by a `LossScaleOptimizer` around this one.
            global_step: The counter that a step increases; the model's global step by default. A
                list here is the `var_list`, as in Keras.
            var_list: The variables to change; by default all trainable ones of the model (in a
                custom loop: those that the loss depends on). One that the loss depends on in no
                replica is left as it is.
            tape: Has no effect: the loss itself knows how it was computed.
        """
        _check_loss(loss)
        if isinstance(global_step, (list, tuple)):  # Keras's order
            global_step, var_list = None, global_step
        assert global_step is None or isinstance(global_step, Variable)
        return self._scaling_losses()._minimize(loss, global_step, var_list)

    def _scaling_losses(self) -> Optimizer:
        """Itself; under "mixed_float16" with a `LossScaleOptimizer` around it, the same for all."""
        if self._scale != 1 or global_policy().name != "mixed_float16":
            return self
        with self._lock:
            if self._scaling is None:
                self._scaling = _scaling[0](self)
            scaling: Any = self._scaling
        around: Optimizer = scaling
        return around

    def _minimize(
        self, loss: Any, global_step: Variable | None, var_list: Sequence[Variable] | None
    ) -> TrainOp:
        kept = self.enter_model()
        if global_step is None:
            # Outside a model nobody else would keep the count.
            kept.global_step = global_step = get_or_create_global_step()
        self._require_possible()
        return deferred(TrainOp([Update(self, loss, var_list)], [global_step]))

    def compute_gradients(
        self, loss: Any, var_list: Sequence[Variable] | None = None
    ) -> list[tuple[Any, Variable]]:
        """This replica's gradients, as `apply_gradients` takes them.

        Args:
            loss: A scalar tensor, or a function of no argument that computes it. It is multiplied
                by `loss_scale_factor`.
            var_list: By default what `minimize` changes.

        Returns:
            Pairs; the gradient of a variable that the loss does not depend on is None.
        """
        loss = loss() if callable(loss) else loss
        _check_loss(loss)
        variables = Update(self, loss, var_list).variables
        found = backward(self.scale_loss(loss))
        replica = get_replica_context()
        index = 0 if replica is None else replica.local_index
        return [(found.get(v.leaf(index)), v) for v in variables]

    def aggregate_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Variable]]
    ) -> list[tuple[Any, Variable]]:
        """The sums over all replicas, for `apply_gradients(…, skip_gradients_aggregation=True)`.

        Every replica must call it. Outside of replicas nothing happens to them.
        """
        pairs, replica = list(grads_and_vars), get_replica_context()
        if replica is None:
            return pairs
        given = [g for g, _ in pairs if g is not None]
        sums = iter(replica.all_reduce("sum", given) if given else ())
        return [(None if g is None else next(sums), v) for g, v in pairs]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Variable]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> None:
        """Change each variable along its gradient, after summing gradients over replicas.

        In replica context every replica must call it, with the same variables. In cross-replica
        context all copies are changed along the gradients as they are given.

        Args:
            grads_and_vars: Pairs; a gradient is an array, `IndexedSlices`, or None for nothing. A
                variable that occurs twice has the sum of its gradients; one without a gradient on
                any replica is left as it is.
            name: Without effect.
            skip_gradients_aggregation: Whether the caller has summed gradients, so that all
                replicas give the same. `experimental_aggregate_gradients=False` is its older name.

        Raises:
            ValueError: No pair has a gradient.
        """
        pairs = [(None if g is None else as_array(g), v) for g, v in grads_and_vars]
        if all(g is None for g, _ in pairs):
            raise ValueError(
                "no gradient is given for any variable; does the loss depend on the variables "
                f"({', '.join(v.name for _, v in pairs) or 'none given'})?"
            )
        if self._scale != 1:
            pairs = [(None if g is None else scaled(g, 1 / self._scale), v) for g, v in pairs]
        self.enter_model()
        self._require_possible()
        replica = get_replica_context()
        index = 0 if replica is None else replica.local_index
        variables, found = _summed(pairs, index)
        is_reduced = skip_gradients_aggregation or not experimental_aggregate_gradients
        if replica is None or is_reduced:
            _warn_of_missing(v.name for v in variables if v.leaf(index) not in found)
        if replica is None:
            given = [(v, found.get(v.leaf(0))) for v in variables]
            apply_outside_replicas(self, given)
        elif is_reduced:
            apply_reduced(self, variables, found)
        else:
            make_given(TrainOp([Update(self, None, variables, found)]))

    def _require_possible(self) -> None:
        """Refuse what variables on parameter servers cannot have."""
        remote = get_strategy().extended.remote_storage
        if remote is None:
            return
        self._require_servers_can()
        num_workers = get_strategy().extended.job.num_trainers
        if self._clipping.limits and num_workers > 1 and remote.averages_workers:
            raise ValueError(
                f"optimizer {self.name!r} is to clip gradients ({self._clipping}), but where "
                f"{num_workers} workers make each step together at parameter servers "
                f"(max_staleness=0) each would clip its own, before the servers take the mean; "
                f"leave it out, let workers make steps of their own (max_staleness=None), or use "
                f"MultiWorkerMirroredStrategy"
            )

    def _require_servers_can(self) -> None:
        raise ValueError(
            f"{type(self).__name__} has an update_step of its own, and parameter servers know the "
            f"optimizers of paceline.nn only; use one of these, or another strategy"
        )

    def build(self, variables: Sequence[Variable]) -> None:
        """Make what is kept beside `variables`, all that are to be trained; for subclasses.

        They call `super().build(variables)` and `add_variable_from_reference` for each.
        """
        self._index_dict = {variable.name: i for i, variable in enumerate(variables)}
        self.built = True

    def update_step(self, gradient: Any, variable: Variable, learning_rate: float) -> None:
        """Change one variable; for subclasses, which may leave the learning rate out.

        Args:
            gradient: Its gradient over all replicas, a dense array of its shape.
            variable: Its `assign`, as that of what was made beside it, reaches all replicas.
            learning_rate: That of this update.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no update_step(gradient, variable, learning_rate); write "
            f"one, or use an optimizer of paceline.nn.optimizers"
        )

    def add_variable(
        self, shape: tuple[int, ...], dtype: Any = None, initializer: Any = "zeros", name: str = ""
    ) -> Variable:
        """A variable of the optimizer's own, which is saved with the model."""
        full_name = f"{self.name}/{name or 'variable'}"
        return get_variable(full_name, shape, dtype, initializers.get(initializer), **COUNTER)

    def add_variable_from_reference(
        self,
        reference_variable: Variable | None = None,
        name: str = "",
        initializer: Any = "zeros",
        *,
        model_variable: Variable | None = None,
        variable_name: str = "",
        shape: tuple[int, ...] | None = None,
        initial_value: Any = None,
    ) -> Variable:
        """A variable beside another one, by default of its shape and of zeros, which is saved.

        Args:
            reference_variable, name: Beside which, and what it is called there;
                `model_variable` and `variable_name` are their older names.
            initializer, initial_value: What it begins with.
            shape: Its own, if it is another one.
        """
        beside = reference_variable if model_variable is None else model_variable
        if beside is None:
            raise TypeError("add_variable_from_reference needs a reference_variable")
        start = initializers.get(initializer) if initial_value is None else as_array(initial_value)
        return self._slot(beside, name or variable_name or "slot", shape, start)

    def add_slot(self, variable: Variable, name: str, initializer: Any = "zeros") -> Variable:
        """`add_variable_from_reference` under its oldest name."""
        return self.add_variable_from_reference(variable, name, initializer)

    def get_slot(self, variable: Variable, name: str) -> Variable:
        """What was made beside a variable under that name."""
        return self._slots_of(variable)[name]

    def _var_key(self, variable: Variable) -> str:
        return variable.name

    def _get_variable_index(self, variable: Variable) -> int:
        return self._index_dict[variable.name]

    def _create_own_slots(self, variables: Sequence[Variable]) -> None:
        kept = self._membership.latest
        with self._lock:
            if self._built_for is not kept:
                self.built = self._built = False
                self._built_for = kept
                self.build(list(variables))
            for variable in variables if self.use_ema else ():
                self._slot(variable, AVERAGE, None, None)
            unknown = [v.name for v in variables if v.name not in self._index_dict]
        if unknown:
            raise ValueError(
                f"optimizer {self.name!r} was built for {len(self._index_dict)} variables, and "
                f"{', '.join(unknown)} are not among them; give it all variables in its first "
                f"step, or make one optimizer for each set of variables"
            )

    def _change(
        self,
        where: Array | None,
        packs: Sequence[Pack],
        num_updates: int,
        local_index: int,
        average: bool,
    ) -> None:
        def change() -> None:
            rate = self.rate_after(num_updates)
            with no_grad():
                for variable, gradient in pairs_of(packs):
                    with variable.device_of(0).use():  # outside replicas it is read there
                        self._change_one(variable, gradient, rate, num_updates)

        # What somebody has written assigns, and cannot choose for each element: it is waited for.
        if where is None or to_host(where):
            once_outside_replicas(change)

    def _change_one(self, variable: Variable, gradient: Any, rate: float, num_updates: int) -> None:
        if self.weight_decay and self._decays(variable):
            variable.assign(variable.numpy() * (1 - rate * self.weight_decay))
        # A copy: what a user keeps of it must not change with the next step's gradients.
        is_sparse = isinstance(gradient, IndexedSlices)
        own = gradient.to_dense() if is_sparse else gradient.copy()
        if self._takes_rate:
            self.update_step(own, variable, rate)
        else:
            self.update_step(own, variable)  # type: ignore[call-arg]
        if not self.use_ema:
            return
        average = self._slot(variable, AVERAGE, None, None)
        momentum = self.ema_momentum if num_updates else 0.0
        average.assign(momentum * average.numpy() + (1 - momentum) * variable.numpy())
        every = self.ema_overwrite_frequency
        if every and (num_updates + 1) % every == 0:
            variable.assign(average.numpy())


def _check_loss(loss: Any) -> None:
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


def _warn_of_missing(names: Iterable[str]) -> None:
    """Say once which variables have no gradient, where no step that reduces them would."""
    if missing := ", ".join(names):
        message = "No gradient is given for some variables, which stay as they are: %s."
        log_once(logging.WARNING, message, missing)


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
