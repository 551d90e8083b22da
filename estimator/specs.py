"""What a `model_fn` returns, and what training and evaluation are to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np

from ..autodiff import Tensor, lift_array
from ..nn.metrics import Metric
from ..strategies import TrainOp, Variable, current_store, group
from ..training import Figure, ModeKeys, SessionRunHook, Spec
from .export import Exporter, checked_exporters, signatures
from .hooks import CheckpointSaverListener

_FIELDS = (
    "mode",
    "predictions",
    "loss",
    "train_op",
    "eval_metric_ops",
    "export_outputs",
    "training_chief_hooks",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)


@final
class EstimatorSpec(Spec):
    """What a `model_fn` found for one batch.

    Args:
        mode: A `ModeKeys`; the one that the `model_fn` was called with.
        predictions: An array or tensor, or a dict of them, with one row per example. Needed to
            predict.
        loss: A scalar, the mean over the examples of the batch. Needed to train and to evaluate.
        train_op: What `optimizer.minimize(loss)` returns, or a list of such, made in order as one
            step. Needed to train.
        eval_metric_ops: Name → metric, updated with this batch. "loss" and "global_step" are taken.
            In the place of a `Metric` there may be a pair (value, update). `update` is called at
            once where the mode is EVAL, to add this batch to variables; None where `model_fn` has
            done that. `value` gives the figure at the end of the evaluation, over all replicas: a
            function without arguments, a variable, or a `Metric`.
        export_outputs: What an exported model gives, by the name of the signature: a
            `PredictOutput`, `ClassificationOutput` or `RegressionOutput`, or a dict of tensors. Of
            several one is "serving_default". None: a `PredictOutput` of the predictions.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: Hooks to run
            besides those of the call; those of the first batch count.

    Raises:
        ValueError: Something that the mode needs is missing, or the loss is not scalar.
        TypeError: A field does not exist, or a value is of a wrong type.
    """

    __slots__ = ("export_outputs", "mode")

    def __init__(
        self,
        mode: str | None = None,
        predictions: Any = None,
        loss: Any = None,
        train_op: TrainOp | Sequence[TrainOp] | None = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, Any] | None = None,
        training_chief_hooks: Sequence[SessionRunHook] | None = None,
        training_hooks: Sequence[SessionRunHook] | None = None,
        evaluation_hooks: Sequence[SessionRunHook] | None = None,
        prediction_hooks: Sequence[SessionRunHook] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown or mode is None:
            what = f"no field {', '.join(unknown)}" if unknown else "no mode given"
            raise TypeError(
                f"EstimatorSpec: {what}; its fields are {', '.join(_FIELDS)}, and mode is needed"
            )
        self.mode = mode if type(mode) is ModeKeys else ModeKeys(mode)
        super().__init__(
            predictions=predictions,
            loss=None if loss is None else _scalar(loss),
            train_op=_one_train_op(train_op),
            eval_metric_ops=_metrics(eval_metric_ops, self.mode) if eval_metric_ops else {},
            training_chief_hooks=_hooks("training_chief_hooks", training_chief_hooks),
            training_hooks=_hooks("training_hooks", training_hooks),
            evaluation_hooks=_hooks("evaluation_hooks", evaluation_hooks),
            prediction_hooks=_hooks("prediction_hooks", prediction_hooks),
        )
        self.export_outputs = None if export_outputs is None else signatures(export_outputs)
        for name, advice in _NEEDED[self.mode].items():
            if getattr(self, name) is None:
                raise ValueError(
                    f"model_fn returned an EstimatorSpec without {name} in mode "
                    f"ModeKeys.{self.mode.name}; pass {advice}"
                )

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """The same with other values of some fields, checked anew.

        Raises:
            ValueError: Another mode: what was computed for one is nothing for the next.
            TypeError: A field does not exist.
        """
        mode = changes.get("mode", self.mode)
        if mode != self.mode:
            raise ValueError(
                f"_replace cannot change mode from {self.mode!s} to {mode!s}; return another "
                f"EstimatorSpec for the other mode"
            )
        fields = {name: getattr(self, name) for name in _FIELDS}
        return EstimatorSpec(**{**fields, **changes})


def _hooks(field: str, hooks: Any) -> tuple[SessionRunHook, ...]:
    return _all_of(field, hooks, SessionRunHook) if hooks else ()


_NEEDED: Mapping[ModeKeys, Mapping[str, str]] = {
    ModeKeys.TRAIN: {
        "loss": "loss=..., the mean loss over the examples of the batch",
        "train_op": "train_op=optimizer.minimize(loss)",
    },
    ModeKeys.EVAL: {"loss": "loss=..., the mean loss over the examples of the batch"},
    ModeKeys.PREDICT: {"predictions": "predictions=..., an array or a dict of arrays"},
}


def _scalar(loss: Any) -> Tensor:
    tensor = lift_array(loss)
    shape = tensor.shape
    if not shape:
        return tensor
    if math.prod(shape) != 1:
        raise ValueError(
            f"loss must be a scalar, its shape is {shape}; "
            f"take its mean over the examples with np.mean(loss)"
        )
    return np.reshape(tensor, ())  # type: ignore[return-value]


def _one_train_op(train_op: Any) -> TrainOp | None:
    if train_op is None or isinstance(train_op, TrainOp):
        return train_op
    if isinstance(train_op, Sequence) and all(isinstance(op, TrainOp) for op in train_op):
        return group(*train_op)
    raise TypeError(
        f"train_op must be what optimizer.minimize(loss) returns, or a list of such, "
        f"it is {train_op!r}"
    )


@final
@dataclass(frozen=True)
class FigureOfPair(Figure):
    """What a pair (value, update) has become: a figure that is asked for when all data are seen.

    Args:
        value: Gives it, over all replicas, in cross-replica context.
    """

    value: Callable[[], Any]

    def result(self) -> Any:
        """The figure; all workers call this."""
        return lift_array(self.value()).numpy()


def _metrics(metrics: Mapping[str, Any], mode: ModeKeys) -> Mapping[str, Figure]:
    return {name: _metric(name, given, mode) for name, given in metrics.items()}


def _metric(name: str, given: Any, mode: ModeKeys) -> Figure:
    """A metric as it is given; of a pair the value, when its update has been made."""
    if name in ("loss", "global_step"):
        raise ValueError(f"eval_metric_ops: the name {name!r} is taken; choose another one")
    value, update = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    is_pair = value is not given
    if update is not None and not callable(update):
        raise TypeError(
            f"eval_metric_ops[{name!r}]: the update of a pair (value, update) is a function "
            f"without arguments, or None where model_fn has made it; it is {update!r}"
        )
    if update is not None and mode is ModeKeys.EVAL:
        update()
    if isinstance(value, FigureOfPair):
        return value
    if isinstance(value, Metric):
        _require_updated(name, value, mode)
        _require_own(name, value.variables)
        return value
    if is_pair and isinstance(value, Variable):
        _require_own(name, [value])
        return FigureOfPair(value.as_a_whole)
    if is_pair and callable(value):
        return FigureOfPair(value)
    raise TypeError(
        f"eval_metric_ops[{name!r}] must be a paceline.nn.metrics.Metric that was updated "
        f"with the batch, or a pair (value, update) whose value is one, a variable, or a function "
        f"without arguments (the number of one batch says nothing of all); it is {given!r}"
    )


def _require_updated(name: str, metric: Metric, mode: ModeKeys) -> None:
    if mode is ModeKeys.EVAL and not metric.is_updated:
        raise ValueError(
            f"eval_metric_ops[{name!r}] was never updated and would read as zero; call its "
            f"update_state with the batch in model_fn"
        )


def _require_own(name: str, variables: Sequence[Variable]) -> None:
    current_store().require_own(
        variables,
        f"eval_metric_ops[{name!r}]",
        "it would go on counting from one evaluation to the next",
    )


@dataclass(frozen=True)
class TrainSpec:
    """How to train, in `train_and_evaluate`.

    Args:
        input_fn: Gives the training data; see `Estimator.train`.
        max_steps: The global step at which training ends; None: at the end of the data.
        hooks: Take part in training.
        saving_listeners: Told before and after each checkpoint, on the chief.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[SessionRunHook] | None = None
    saving_listeners: Sequence[CheckpointSaverListener] | None = None

    def __post_init__(self) -> None:
        _check_callable("TrainSpec", self.input_fn)
        kinds = {"hooks": SessionRunHook, "saving_listeners": CheckpointSaverListener}
        for name, kind in kinds.items():
            object.__setattr__(self, name, _all_of(name, getattr(self, name), kind))
        _check_positive("TrainSpec", "max_steps", self.max_steps)


@dataclass(frozen=True)
class EvalSpec:
    """How to evaluate, in `train_and_evaluate`.

    Args:
        input_fn: Gives the evaluation data.
        steps: The number of batches of one evaluation; None takes all data. As in TensorFlow the
            default is 100 batches, which may be less than your data.
        name: Names the evaluation, where there are several.
        hooks: Take part in each evaluation.
        exporters: One `Exporter`, or several with names of their own: asked after each evaluation.
        start_delay_secs: How long a separate evaluator process waits before it begins.
        throttle_secs: The shortest time between two evaluations.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[SessionRunHook] | None = None
    exporters: Exporter | Sequence[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_callable("EvalSpec", self.input_fn)
        _check_positive("EvalSpec", "steps", self.steps)
        if not isinstance(self.name, str | None):
            raise TypeError(f"EvalSpec: name must be a str or None, it is {self.name!r}")
        hooks = _all_of("hooks", self.hooks, SessionRunHook)
        object.__setattr__(self, "hooks", hooks)
        object.__setattr__(self, "exporters", checked_exporters(self.exporters))
        for name in ("start_delay_secs", "throttle_secs"):
            value = getattr(self, name)
            if not isinstance(value, Real) or value < 0:
                raise ValueError(f"EvalSpec: {name} must be a number ≥ 0, it is {value!r}")


def _all_of(name: str, values: Any, kind: type[Any]) -> tuple[Any, ...]:
    """Values as a tuple; None stands for none, as in TensorFlow.

    Raises:
        TypeError: They are not several, or one is not of that kind.
    """
    if isinstance(values, kind) or not isinstance(values, Iterable | None):
        raise TypeError(f"{name} must be a list of {kind.__name__}s, it is {values!r}")
    listed = tuple(values or ())
    for value in listed:
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} must be objects of {kind.__name__} or of a subclass, one is {value!r}; "
                f"give an instance of such a class"
            )
    return listed


def _check_callable(owner: str, input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(
            f"{owner}: input_fn must be a function that returns a Dataset, it is {input_fn!r}; "
            f"wrap the data, as in input_fn=lambda: dataset"
        )


def _check_positive(owner: str, name: str, value: int | None) -> None:
    if value is not None and not (isinstance(value, Real) and value > 0):
        raise ValueError(f"{owner}: {name} must be > 0 or None, it is {value!r}")
