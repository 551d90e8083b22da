"""Callbacks: what takes part in `fit`, `evaluate` and `predict`, under Keras's names."""

from .backup import BackupAndRestore
from .callback import Callback, CallbackList
from .csv_logger import CSVLogger
from .functions import LambdaCallback
from .history import History
from .learning_rate import LearningRateScheduler, ReduceLROnPlateau
from .model_checkpoint import ModelCheckpoint
from .progress_bar import ProgbarLogger
from .stopping import EarlyStopping, TerminateOnNaN
from .tensor_board import TensorBoard

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "TensorBoard",
    "TerminateOnNaN",
]
