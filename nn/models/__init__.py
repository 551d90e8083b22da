"""Models: layers with inputs and outputs, a loss, an optimizer and metrics."""

from .model import Model
from .saving import clone_model, model_from_json
from .sequential import Sequential

__all__ = ["Model", "Sequential", "clone_model", "model_from_json"]
