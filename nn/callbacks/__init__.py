"""Callbacks: what takes part in `fit`, `evaluate` and `predict`, under Keras's names."""

from .callback import Callback, CallbackList
from .history import History

__all__ = ["Callback", "CallbackList", "History"]
