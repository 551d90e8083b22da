"""Models: layers with inputs and outputs, a loss, an optimizer and metrics."""

from .loading import clone_model, load_model, model_from_json
from .model import Model
from .sequential import Sequential

__all__ = ["Model", "Sequential", "clone_model", "load_model", "model_from_json"]
