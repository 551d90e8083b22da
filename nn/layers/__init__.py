"""Layers under Keras's names, with its argument order and defaults."""

from .base import Input, Layer, LayerOptions
from .convolution import Conv2D
from .dense import Dense
from .dropout import Dropout
from .elementwise import Activation, Flatten
from .embedding import Embedding
from .inference_calls import noting_inference_calls
from .normalization import BatchNormalization, LayerNormalization
from .pooling import AveragePooling2D, MaxPooling2D
from .sequential import Sequential

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
    "Sequential",
    "noting_inference_calls",
]
