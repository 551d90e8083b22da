"""`Trainable`: a layer that can be given a loss, an optimizer and metrics, and makes steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor, no_grad
from ...inputs import nest
from ...strategies import (
    COUNTER,
    Strategy,
    Variable,
    current_store,
    get_strategy,
    get_variable,
    outside_scopes,
)
from ...training import TrainingSession
from .. import optimizers
from ..layers import Layer
from ..metrics import Metric
from ..optimizers import Optimizer
from ..serialization import serialize
from .compiled import Compiled, Part
from .saving import Savable


class Trainable(Savable):
    """What `fit` needs of a model: `train_step`, `test_step` and `predict_step`, and what they use.

    They are called in each replica with the replica's part of a batch. A subclass may write its
    own, as with Keras: see docs/fit.md.

    Attributes:
        distribute_strategy: The strategy in whose scope it was made.
        replays_steps: Whether `fit` calls the operations of a step again, and not `train_step`.
        stop_training: A callback sets it to have `fit` end after the batch, or epoch, under way.
        stop_evaluating: The same of `evaluate`, after a batch.
    """

    optimizer: Optimizer
    _ends: tuple[Any, Any] | None = None  # the inputs and outputs that a model was made with
    stop_training = stop_evaluating = False
    replays_steps = False
    training_session: TrainingSession | None = None
    # A model that is made anew in each step, in a model_fn, has none of these.
    _compiled: Compiled | None = None
    _steps_made: Variable | None = None
    _found: dict[str, Any] | None = None
    _beginning: tuple[int, int, Sequence[Any]] | None = None

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.distribute_strategy: Strategy = get_strategy()

    def compile(
        self,
        optimizer: str | Optimizer = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool | None = None,
        steps_per_execution: int | None = None,
        jit_compile: bool | str | None = None,
        pss_evaluation_shards: int | str = 0,
    ) -> None:
        """Say by what it is trained and measured.

        Where the model has several outputs, each argument but the first may be a list with an
        entry for each, or a dict by their names (`output_names`).

        Args:
            optimizer: An optimizer, or its name.
            loss: A loss, its name, or a function `(y_true, y_pred) -> one loss for each example`.
            metrics: A list of metrics, their names, or such functions. "accuracy" is the kind that
                fits the shapes of labels and predictions.
            loss_weights: Factors of the outputs' losses.
            weighted_metrics: Like metrics; these take the examples' weights into account.
            run_eagerly, steps_per_execution: Have no effect: every step is eager NumPy, and is made
                by itself.
            jit_compile: True is the promise that within an epoch `train_step` computes the same of
                each batch: `fit` calls the operations of two steps again in those to come, and the
                model is not called; see docs/fit.md. Nothing is compiled, and no other value has an
                effect. It is not saved with the model.
            pss_evaluation_shards: Has no effect: each task of a job with parameter servers
                evaluates exactly, by itself.

        Raises:
            ValueError: A name that is unknown.
            TypeError: Something that is none of these.
        """
        self.optimizer = optimizers.get(optimizer)
        self._compiled = Compiled(loss, metrics, loss_weights, weighted_metrics)
        self.replays_steps = jit_compile is True

    @property
    def is_compiled(self) -> bool:
        """Whether `compile` was called."""
        return self._compiled is not None

    def get_compile_config(self) -> dict[str, Any] | None:
        """What `compile` was given, as plain values; None where it was not called.

        Raises:
            TypeError: Something cannot be written down (a lambda); it is named.
        """
        if self._compiled is None:
            return None
        return {"optimizer": serialize(self.optimizer), **serialize(self._compiled.given)}

    @property
    def compiled(self) -> Compiled:
        """What `compile` was given.

        Raises:
            ValueError: It was not called.
        """
        if self._compiled is None:
            raise ValueError(
                f"model {self.name!r} was not compiled: call model.compile(optimizer, loss) first"
            )
        return self._compiled

    @property
    def output_names(self) -> list[str]:
        """What the outputs are called."""
        return self.compiled.output_names()

    def counters(self) -> list[Variable]:
        return [] if self._steps_made is None else [self._steps_made]

    def begin_at(self, epoch: int, batch: int, input_states: Sequence[Any]) -> None:
        """Let the `fit` that has just begun go on in the midst of another one.

        Args:
            epoch: The number of the epoch.
            batch: How many batches of it were made.
            input_states: What `training_session.input_states()` gave then; may be empty.
        """
        self._beginning = epoch, batch, input_states

    def take_beginning(self) -> tuple[int, int, Sequence[Any]] | None:
        """What `begin_at` was given, once."""
        taken, self._beginning = self._beginning, None
        return taken

    def step_counter(self) -> Variable:
        """The count of training steps that `fit` has made."""
        if self._steps_made is None:
            with self.distribute_strategy.scope():
                name = current_store().unique_name(f"{self.variables_prefix}/steps")
                self._steps_made = get_variable(name, (), np.int64, 0, **COUNTER)
        return self._steps_made

    def make_metrics(self) -> None:
        """Make what `compile` asked for, if that was not done; for `fit` and `evaluate`."""
        self.look_again()
        if self._compiled is not None:
            self._compiled.begin(self.output_names, self.distribute_strategy)

    def look_again(self) -> None:
        """An epoch begins: layers, or what of them is trained, may have changed since the last."""
        self._found = {}

    def look_always(self) -> None:
        """No epoch is under way: whoever calls may have changed the model."""
        self._found = None

    def _once(self, what: str, find: Callable[[], Any]) -> Any:
        """What another step of the epoch has found: to look for it takes a tenth of small steps."""
        known = self._found
        if known is None:
            return find()
        if what not in known:
            known[what] = find()
        return known[what]

    @property
    def metrics(self) -> list[Metric]:
        """The loss and the metrics that `compile` asked for, then those that are attributes."""
        compiled = [] if self._compiled is None else self._compiled.figures.values()
        return [*compiled, *self._own_metrics()]

    @property
    def metrics_names(self) -> list[str]:
        """What logs call `metrics`."""
        return list(self._figures())

    def reset_metrics(self) -> None:
        """Let all metrics begin anew, as at the beginning of each epoch."""
        for metric in self.metrics:
            metric.reset_state()

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> Tensor:
        """The sum of the outputs' losses and of the penalties of weights, as a scalar.

        It is the mean over the replica's examples. In `fit` and `evaluate` it is also counted in
        the metric "loss".

        Args:
            x: The inputs; of no use here.
            y: Labels, in a structure like that of the outputs.
            y_pred: What the model has computed.
            sample_weight: A factor for each example's loss, (n,); None for 1.

        Raises:
            ValueError: There is neither a loss nor a penalty.
        """
        penalties = self.losses if self._once("penalties", lambda: bool(self.losses)) else ()
        loss = self.compiled.loss_of(self.parts(y, y_pred, sample_weight), penalties)
        if loss is None:
            raise ValueError(
                f"model {self.name!r} has no loss; name one: model.compile(optimizer, loss='mse')"
            )
        return loss

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Count a batch in the metrics that `compile` asked for.

        Args:
            x, y, y_pred, sample_weight: As for `compute_loss`.

        Returns:
            The metrics by name. Their results are read when all replicas have made the step.
        """
        self.compiled.update(self.parts(y, y_pred, sample_weight))
        figures: dict[str, Any] = self._once("figures", self._figures)
        return figures

    def compiled_loss(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        regularization_losses: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss that `compile` was given, as custom steps of Keras 2 call it.

        Args:
            y_true, y_pred, sample_weight: As for `compute_loss`.
            regularization_losses: Penalties to add.

        Raises:
            ValueError: There is none.
        """
        parts = self.parts(y_true, y_pred, sample_weight)
        loss = self.compiled.loss_of(parts, regularization_losses or ())
        if loss is None:
            raise ValueError(f"model {self.name!r} has no loss; name one in compile")
        return loss

    @property
    def compiled_metrics(self) -> CompiledMetrics:
        """What `compile` was given as metrics, as custom steps of Keras 2 call it."""
        return CompiledMetrics(self)

    def train_step(self, data: Any) -> Mapping[str, Any]:
        """One training step of a replica.

        Args:
            data: Its batch: `x`, `(x, y)` or `(x, y, sample_weight)`.

        Returns:
            Logs: metrics, or values of the batch, by name.
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=True)
        loss = self.compute_loss(x, y, y_pred, sample_weight)
        # Deferred: `fit` makes it at the end of this step, in one exchange with what it has to say.
        trained = self._once("trained", lambda: self.trainable_variables)
        self.optimizer.minimize(loss, var_list=trained)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> Mapping[str, Any]:
        """The evaluation of a replica's batch; see `train_step`."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        self.compute_loss(x, y, y_pred, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def make_weights_where_trained(self, data: Any) -> None:
        """Let the first call of a model, which creates its weights, be under its own strategy.

        `predict` computes on one device, and where variables live on servers so does `evaluate`.
        """
        if not self._called and get_strategy() is not self.distribute_strategy:
            with outside_scopes(), self.distribute_strategy.scope(), no_grad():
                self.predict_step(data)

    def predict_step(self, data: Any) -> Any:
        """The predictions for a batch, of which labels and weights are left aside."""
        x, _, _ = unpack_x_y_sample_weight(data)
        return self(x, training=False)

    def parts(self, y: Any, y_pred: Any, sample_weight: Any = None) -> list[Part]:
        """What concerns each output."""
        return self.compiled.parts(self._names_of(y_pred), y, y_pred, sample_weight)

    def _names_of(self, y_pred: Any) -> list[str]:
        if isinstance(y_pred, Mapping):
            return list(y_pred)
        if self._ends is None and isinstance(y_pred, (list, tuple)) and len(y_pred) > 1:
            return [f"output_{index + 1}" for index in range(len(y_pred))]
        return self.output_names

    def _own_metrics(self) -> list[Metric]:
        return _metrics_in(value for name, value in list(vars(self).items()) if name != "_found")

    def _figures(self) -> dict[str, Metric]:
        compiled = {} if self._compiled is None else self._compiled.figures
        own = {metric.name: metric for metric in self._own_metrics()}
        return {**compiled, **own}


class CompiledMetrics:
    """The metrics of a model, as custom steps of Keras 2 update them.

    Args:
        model: Whose.
    """

    def __init__(self, model: Trainable) -> None:
        self._model = model

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, without the loss."""
        return [m for name, m in self._model.compiled.figures.items() if not name.endswith("loss")]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch."""
        self._model.compiled.update(self._model.parts(y_true, y_pred, sample_weight))


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """What a step is given, as inputs, labels and weights of examples; None for what is not there.

    Raises:
        ValueError: A tuple of more than three.
    """
    if not isinstance(data, (tuple, list)):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ValueError(
            f"a batch must be x, (x, y) or (x, y, sample_weight), it is a tuple of {len(data)}; "
            f"put several inputs into a tuple or dict of their own: ((x1, x2), y)"
        )
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight


def _metrics_in(values: Any) -> list[Metric]:
    """The metrics among attributes, also in lists and dicts."""
    return [leaf for value in values for leaf in nest.flatten(value) if isinstance(leaf, Metric)]


def require_unique_names(model: str, layers: Iterable[Layer]) -> None:
    """Refuse two layers of one name in a model: losses, logs and `get_layer` go by it.

    Raises:
        ValueError: The name, and both layers.
    """
    known: dict[str, Layer] = {}
    for layer in layers:
        other = known.setdefault(layer.name, layer)
        if other is not layer:
            first, second = (f"{type(one).__name__}(name={one.name!r})" for one in (other, layer))
            raise ValueError(
                f"the layers of model {model!r} must have different names, and two of them, "
                f"{first} and {second}, have the same; give one of them another name"
            )
