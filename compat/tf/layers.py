"""`tf.layers` of TensorFlow 1: a function for each layer, which finds its weights by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ..names import NameTable, serve
from .advice import advice
from .arguments import refuse
from .conversion import convert
from .variables import get_variable_scope

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
    "average_pooling3d": "AveragePooling3D",
    "conv1d": "Conv1D",
    "conv2d": "Conv2D",
    "conv2d_transpose": "Conv2DTranspose",
    "dense": "Dense",
    "flatten": "Flatten",
    "max_pooling1d": "MaxPooling1D",
    "max_pooling2d": "MaxPooling2D",
    "max_pooling3d": "MaxPooling3D",
    "separable_conv1d": "SeparableConv1D",
    "separable_conv2d": "SeparableConv2D",
}
_table = NameTable(
    __name__, renamed={name: f"nn.layers.{ours}" for name, ours in _OLD.items()}, advice=advice
)
_, __dir__ = serve(_table)


def _function(layer: str) -> Callable[..., Any]:
    def call(
        inputs: Any, *args: Any, name: str | None = None, reuse: Any = None, **options: Any
    ) -> Any:
        full = _full_name(name, reuse)
        return getattr(nn.layers, layer)(*args, name=full, **options)(convert(inputs))

    return call


def _full_name(name: str | None, reuse: Any = None) -> str | None:
    """The name of a layer behind that of the scope at hand.

    Raises:
        ValueError: A layer that was made before is to be found, and has no name.
    """
    scope = get_variable_scope()
    if name is not None:
        return scope.full_name(name)
    if reuse or scope.reuse:
        raise ValueError(
            "reuse: a layer is found again by its name; pass name=..., here and where it is made"
        )
    return None


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
    drawn = None if noise_shape is None else tuple(noise_shape)
    layer = nn.layers.Dropout(rate, drawn, seed, name=_full_name(name))
    return layer(convert(inputs), training=training)


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = "zeros",
    gamma_initializer: Any = "ones",
    moving_mean_initializer: Any = "zeros",
    moving_variance_initializer: Any = "ones",
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: bool = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Any:
    """Batch normalization; moving statistics are updated by the call itself, in training.

    `fused` and what belongs to renorm have no effect.

    Raises:
        ValueError: Renormalization, virtual batches or an adjustment are asked for.
    """
    refuse(
        "batch_normalization",
        ("renorm", renorm, False, "use LayerNormalization for small batches"),
        ("virtual_batch_size", virtual_batch_size, None, "use more replicas"),
        ("adjustment", adjustment, None, "compute it before the layer"),
    )
    layer = nn.layers.BatchNormalization(
        axis=axis,
        momentum=momentum,
        epsilon=epsilon,
        center=center,
        scale=scale,
        beta_initializer=beta_initializer,
        gamma_initializer=gamma_initializer,
        moving_mean_initializer=moving_mean_initializer,
        moving_variance_initializer=moving_variance_initializer,
        beta_regularizer=beta_regularizer,
        gamma_regularizer=gamma_regularizer,
        beta_constraint=beta_constraint,
        gamma_constraint=gamma_constraint,
        trainable=trainable,
        name=_full_name(name, reuse),
    )
    return layer(convert(inputs), training=training)
