"""Models: layers with inputs and outputs, a loss, an optimizer and metrics."""

from .model import Model
from .sequential import Sequential

__all__ = ["Model", "Sequential"]
