"""The loop: training, evaluation and prediction of a model, with the hooks that take part."""

from .batches import count_examples
from .evaluation import EvaluationSession, evaluate, evaluated
from .fetches import Figure, name_value, named_values
from .hook import (
    Counts,
    Rest,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .prediction import PredictionSession, on_host, predict, spec_of
from .preemption import EndOnSignalHook, Preempted, SignalWatch
from .replaying import ReplayedModel
from .session import Session
from .spec import ModeKeys, ModelCall, Spec
from .training import TrainingEnd, TrainingSession, train

__all__ = [
    "Counts",
    "EndOnSignalHook",
    "EvaluationSession",
    "Figure",
    "ModeKeys",
    "ModelCall",
    "PredictionSession",
    "Preempted",
    "ReplayedModel",
    "Rest",
    "Session",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SignalWatch",
    "Spec",
    "TrainingEnd",
    "TrainingSession",
    "count_examples",
    "evaluate",
    "evaluated",
    "name_value",
    "named_values",
    "on_host",
    "predict",
    "spec_of",
    "train",
]
