"""Hooks: what takes part in a run without being part of the model."""

from .basic import (
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
)
from .checkpoint_saver import CheckpointSaverHook, CheckpointSaverListener
from .session_run_hook import (
    NO_VALUES,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .sigterm import SigtermHook
from .timer import SecondOrStepTimer

__all__ = [
    "NO_VALUES",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "SecondOrStepTimer",
    "Session",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SigtermHook",
    "StepCounterHook",
    "StopAtStepHook",
]
