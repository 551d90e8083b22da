"""The hooks that come with the package; what a hook is says `session.py`."""

from .checkpoint_saver import CheckpointSaverHook, CheckpointSaverListener, CheckpointWriter
from .reporting import LoggingTensorHook, ProgressHook, StepCounterHook
from .stopping import NanLossDuringTrainingError, NanTensorHook, StopAtStepHook
from .timer import SecondOrStepTimer

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointWriter",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProgressHook",
    "SecondOrStepTimer",
    "StepCounterHook",
    "StopAtStepHook",
]
