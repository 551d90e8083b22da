"""Layers under Keras's names, with its argument order and defaults."""

from .base import Layer, LayerOptions, Shape, noting_inference_calls
from .dense import Dense
from .dropout import Dropout
from .elementwise import Activation, Flatten
from .embedding import Embedding
from .images import AveragePooling2D, Conv2D, MaxPooling2D
from .normalization import BatchNormalization, LayerNormalization
from .symbolic import Input, SymbolicTensor, in_order, map_symbolic, symbolic_in

__all__ = [
    "Activation",
    "AveragePooling2D",
    "BatchNormalization",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Input",
    "Layer",
    "LayerNormalization",
    "LayerOptions",
    "MaxPooling2D",
    "Shape",
    "SymbolicTensor",
    "in_order",
    "map_symbolic",
    "noting_inference_calls",
    "symbolic_in",
]
