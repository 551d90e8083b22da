"""Layers under Keras's names, with its argument order and defaults."""

from .base import Layer, LayerOptions, noting_inference_calls
from .dense import Dense
from .dropout import Dropout
from .elementwise import Activation, Flatten
from .embedding import Embedding
from .images import AveragePooling2D, Conv2D, MaxPooling2D
from .model import Model
from .normalization import BatchNormalization, LayerNormalization
from .sequential import Sequential
from .symbolic import Input, SymbolicTensor

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
    "Model",
    "Sequential",
    "SymbolicTensor",
    "noting_inference_calls",
]
