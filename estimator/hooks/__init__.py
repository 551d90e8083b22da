"""The hooks that come with the package; what a hook is says `session.py`."""

from .checkpoint_saver import CheckpointSaverHook, CheckpointSaverListener, CheckpointWriter
from .recording import HistoryHook, SummarySaverHook
from .reporting import LoggingTensorHook, ProgressHook, StepCounterHook
from .stopping import NanLossDuringTrainingError, NanTensorHook, StopAtStepHook
from .timer import SecondOrStepTimer

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointWriter",
    "HistoryHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProgressHook",
    "SecondOrStepTimer",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]
