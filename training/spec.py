"""What the loop asks of a model: a function of a batch and a mode that gives a `Spec`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..autodiff import Tensor
from ..strategies import TrainOp
from .fetches import Figure
from .session import SessionRunHook


class ModeKeys(enum.StrEnum):
    """For what a model is called. Each equals its string."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(slots=True, kw_only=True)
class Spec:
    """What a model found for one batch.

    Args:
        predictions: An array or tensor, or a structure of them, with one row per example.
        loss: A scalar, the mean over the examples of the batch; None where a figure tells it.
        train_op: The step that is to be made. Needed to train.
        is_made: Whether the model has changed variables already, before it returned.
        eval_metric_ops: Name → figure, which has counted this batch.
        logs: What callbacks are told: figures, and values of this batch.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: Hooks to run
            besides those of the call; those of the first batch count.
        named: What hooks may ask for by names of the model's own; None for nothing.
    """

    predictions: Any = None
    loss: Tensor | None = None
    train_op: TrainOp | None = None
    is_made: bool = False
    eval_metric_ops: Mapping[str, Figure] = field(default_factory=dict)
    logs: Mapping[str, Any] = field(default_factory=dict)
    training_chief_hooks: Sequence[SessionRunHook] = ()
    training_hooks: Sequence[SessionRunHook] = ()
    evaluation_hooks: Sequence[SessionRunHook] = ()
    prediction_hooks: Sequence[SessionRunHook] = ()
    named: Mapping[str, Any] | None = None


ModelCall: TypeAlias = "Callable[[Any, ModeKeys], Spec]"
"""`model(batch, mode)`: called in each replica, once for each batch."""
