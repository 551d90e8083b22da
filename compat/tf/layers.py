"""`tf.layers` of TensorFlow 1: a function for each layer, which finds its weights by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ..names import NameTable, serve
from .advice import advice
from .conversion import convert

_OLD = {
    "AveragePooling1D": "AveragePooling1D",
    "AveragePooling2D": "AveragePooling2D",
    "BatchNormalization": "BatchNormalization",
    "Conv1D": "Conv1D",
    "Conv2D": "Conv2D",
    "Dense": "Dense",
    "Dropout": "Dropout",
    "Flatten": "Flatten",
    "MaxPooling1D": "MaxPooling1D",
    "MaxPooling2D": "MaxPooling2D",
}
_FUNCTIONS = {
    "average_pooling1d": "AveragePooling1D",
    "average_pooling2d": "AveragePooling2D",
    "conv1d": "Conv1D",
    "conv2d": "Conv2D",
    "conv2d_transpose": "Conv2DTranspose",
    "dense": "Dense",
    "flatten": "Flatten",
    "max_pooling1d": "MaxPooling1D",
    "max_pooling2d": "MaxPooling2D",
}
_table = NameTable(
    __name__, renamed={name: f"nn.layers.{ours}" for name, ours in _OLD.items()}, advice=advice
)
_, __dir__ = serve(_table)


def _function(layer: str) -> Callable[..., Any]:
    def call(inputs: Any, *args: Any, reuse: Any = None, **options: Any) -> Any:
        return getattr(nn.layers, layer)(*args, **options)(convert(inputs))

    return call


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return globals().setdefault(name, _function(_FUNCTIONS[name]))
    return _table[name]


def dropout(
    inputs: Any,
    rate: float = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: bool = False,
    name: str | None = None,
) -> Any:
    """A part `rate` of the elements is zero in training, the others are scaled up."""
    return nn.layers.Dropout(rate, seed=seed, name=name)(convert(inputs), training=training)


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    name: str | None = None,
    **options: Any,
) -> Any:
    """Batch normalization; moving statistics are updated by the call itself, in training."""
    layer = nn.layers.BatchNormalization(
        axis=axis, momentum=momentum, epsilon=epsilon, center=center, scale=scale, name=name
    )
    return layer(convert(inputs), training=training)
