"""What a `model_fn` returns, and what training and evaluation are to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..autodiff import Tensor, lift
from ..nn.metrics import Metric
from ..nn.optimizers import TrainOp, group
from ..strategies import current_store
from .hooks import CheckpointSaverListener
from .session import SessionRunHook


class ModeKeys(enum.StrEnum):
    """For what a `model_fn` is called. Each equals its string."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


_FIELDS = (
    "mode",
    "predictions",
    "loss",
    "train_op",
    "eval_metric_ops",
    "training_hooks",
    "training_chief_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)


class EstimatorSpec:
    """What a `model_fn` found for one batch.

    Args:
        mode: A `ModeKeys`; the one that the `model_fn` was called with.
        predictions: An array or tensor, or a dict of them, with one row per example. Needed to
            predict.
        loss: A scalar, the mean over the examples of the batch. Needed to train and to evaluate.
        train_op: What `optimizer.minimize(loss)` returns, or a list of such, made in order as one
            step. Needed to train.
        eval_metric_ops: Name → metric, updated with this batch. "loss" and "global_step" are taken.
        training_hooks, training_chief_hooks, evaluation_hooks, prediction_hooks: Hooks to run
            besides those of the call; those of the first batch count.

    Raises:
        ValueError: Something that the mode needs is missing, or the loss is not scalar.
        TypeError: A field does not exist, or a value is of a wrong type.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        mode: str | None = None,
        predictions: Any = None,
        loss: Any = None,
        train_op: TrainOp | Sequence[TrainOp] | None = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        training_hooks: Sequence[SessionRunHook] | None = None,
        training_chief_hooks: Sequence[SessionRunHook] | None = None,
        evaluation_hooks: Sequence[SessionRunHook] | None = None,
        prediction_hooks: Sequence[SessionRunHook] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown or mode is None:
            what = f"no field {', '.join(unknown)}" if unknown else "no mode given"
            raise TypeError(
                f"EstimatorSpec: {what}; its fields are {', '.join(_FIELDS)}, and mode is needed"
            )
        self.mode = ModeKeys(mode)
        self.predictions = predictions
        self.loss = None if loss is None else _scalar(loss)
        self.train_op = _one_train_op(train_op)
        self.eval_metric_ops = _metrics(eval_metric_ops, self.mode)
        self.training_hooks = tuple(training_hooks or ())
        self.training_chief_hooks = tuple(training_chief_hooks or ())
        self.evaluation_hooks = tuple(evaluation_hooks or ())
        self.prediction_hooks = tuple(prediction_hooks or ())
        for name, advice in _NEEDED[self.mode].items():
            if getattr(self, name) is None:
                raise ValueError(
                    f"model_fn returned an EstimatorSpec without {name} in mode "
                    f"ModeKeys.{self.mode.name}; pass {advice}"
                )


_NEEDED: Mapping[ModeKeys, Mapping[str, str]] = {
    ModeKeys.TRAIN: {
        "loss": "loss=..., the mean loss over the examples of the batch",
        "train_op": "train_op=optimizer.minimize(loss)",
    },
    ModeKeys.EVAL: {"loss": "loss=..., the mean loss over the examples of the batch"},
    ModeKeys.PREDICT: {"predictions": "predictions=..., an array or a dict of arrays"},
}


def _scalar(loss: Any) -> Tensor:
    tensor = lift(loss)
    if np.size(tensor.data) != 1:
        raise ValueError(
            f"loss must be a scalar, its shape is {np.shape(tensor.data)}; "
            f"take its mean over the examples with np.mean(loss)"
        )
    return tensor if np.ndim(tensor.data) == 0 else np.reshape(tensor, ())  # type: ignore


def _one_train_op(train_op: Any) -> TrainOp | None:
    if train_op is None or isinstance(train_op, TrainOp):
        return train_op
    if isinstance(train_op, Sequence) and all(isinstance(op, TrainOp) for op in train_op):
        return group(*train_op)
    raise TypeError(
        f"train_op must be what optimizer.minimize(loss) returns, or a list of such, "
        f"it is {train_op!r}"
    )


def _metrics(metrics: Mapping[str, Any] | None, mode: ModeKeys) -> Mapping[str, Metric]:
    for name, metric in (metrics or {}).items():
        if name in ("loss", "global_step"):
            raise ValueError(f"eval_metric_ops: the name {name!r} is taken; choose another one")
        if not isinstance(metric, Metric):
            raise TypeError(
                f"eval_metric_ops[{name!r}] must be a paceline.nn.metrics.Metric that was updated "
                f"with the batch, it is {metric!r}"
            )
        if mode is ModeKeys.EVAL and not metric.is_updated:
            raise ValueError(
                f"eval_metric_ops[{name!r}] was never updated and would read as zero; call its "
                f"update_state with the batch in model_fn"
            )
        current_store().require_own(
            metric.variables,
            f"eval_metric_ops[{name!r}]",
            "it would go on counting from one evaluation to the next",
        )
    return metrics or {}


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
        _none_is_empty(self, "hooks", "saving_listeners")
        _check_callable("TrainSpec", self.input_fn)
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
        exporters: Not available yet; must be empty.
        start_delay_secs: How long a separate evaluator process waits before it begins.
        throttle_secs: The shortest time between two evaluations.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[SessionRunHook] | None = None
    exporters: Sequence[Any] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _none_is_empty(self, "hooks", "exporters")
        _check_callable("EvalSpec", self.input_fn)
        _check_positive("EvalSpec", "steps", self.steps)
        for name in ("start_delay_secs", "throttle_secs"):
            if getattr(self, name) < 0:
                raise ValueError(f"EvalSpec: {name} must be ≥ 0, it is {getattr(self, name)}")
        if self.exporters:
            raise ValueError(
                "EvalSpec: exporters are not available in this version; leave them out"
            )


def _none_is_empty(spec: Any, *names: str) -> None:
    """None stands for nothing, as in TensorFlow: from now on a tuple without elements."""
    for name in names:
        object.__setattr__(spec, name, tuple(getattr(spec, name) or ()))


def _check_callable(owner: str, input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(
            f"{owner}: input_fn must be a function that returns a Dataset, it is {input_fn!r}; "
            f"wrap the data, as in input_fn=lambda: dataset"
        )


def _check_positive(owner: str, name: str, value: int | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{owner}: {name} must be > 0 or None, it is {value}")
