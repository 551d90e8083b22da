"""Optimizers, learning-rate schedules and gradient clipping."""

from ...strategies import StepResult, TrainOp, group, make_step
from . import schedules
from .algorithms import SGD, Adagrad, Adam, AdamW, Ftrl, RMSprop, get
from .clipping import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm
from .optimizer import Optimizer
from .rules import server_rules

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Ftrl",
    "Optimizer",
    "RMSprop",
    "StepResult",
    "TrainOp",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "get",
    "global_norm",
    "group",
    "make_step",
    "schedules",
    "server_rules",
]
