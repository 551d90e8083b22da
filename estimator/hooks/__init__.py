"""The hooks that come with the package; what a hook is says `training/session.py`."""

from .checkpoint_saver import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    CheckpointWriter,
    RunSaver,
)
from .in_memory_evaluation import InMemoryEvaluatorHook
from .profiling import ProfilerHook
from .recording import HistoryHook, SummarySaverHook
from .reporting import BuildReport, LoggingTensorHook, ProgressHook, StepCounterHook
from .stopping import (
    NanLossDuringTrainingError,
    NanTensorHook,
    StopAtCheckpointStepHook,
    StopAtStepHook,
)
from .timer import SecondOrStepTimer
from .values import FeedFnHook, FinalOpsHook
from .waiting import GlobalStepWaiterHook

__all__ = [
    "BuildReport",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointWriter",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "HistoryHook",
    "InMemoryEvaluatorHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "RunSaver",
    "SecondOrStepTimer",
    "StepCounterHook",
    "StopAtCheckpointStepHook",
    "StopAtStepHook",
    "SummarySaverHook",
]
