"""Optimizers, learning-rate schedules and gradient clipping."""

from ...strategies import StepResult, TrainOp, group, make_step
from . import schedules
from .algorithms import (
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lamb,
    Lion,
    Nadam,
    RMSprop,
    get,
)
from .clipping import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm
from .kept import restore_optimizers, states_of_optimizers
from .learning_rate import linearly_scaled
from .loss_scale import LossScaleOptimizer
from .optimizer import Optimizer
from .rules import server_rules
from .serving import train_or_serve

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "Nadam",
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
    "linearly_scaled",
    "make_step",
    "restore_optimizers",
    "schedules",
    "server_rules",
    "states_of_optimizers",
    "train_or_serve",
]
