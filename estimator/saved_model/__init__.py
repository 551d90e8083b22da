"""Models on their own: exported from an Estimator, and loaded where nothing is trained."""

from .loading import LoadedModel, LoadedSignature, load
from .onnx_export import export_onnx
from .writing import Exported, ReceiverFn, export_model

__all__ = [
    "Exported",
    "LoadedModel",
    "LoadedSignature",
    "ReceiverFn",
    "export_model",
    "export_onnx",
    "load",
]
