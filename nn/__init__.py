"""Building models: layers, losses, metrics and optimizers, under Keras's names."""

from ..autodiff import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from . import activations, initializers, layers, losses, metrics, optimizers, regularizers
from .activations import swish, tanh
from .layers import Input, Model, Sequential
from .losses import compute_average_loss, scale_regularization_loss

__all__ = [
    "Input",
    "Model",
    "Sequential",
    "activations",
    "compute_average_loss",
    "elu",
    "gelu",
    "initializers",
    "layers",
    "leaky_relu",
    "log_softmax",
    "losses",
    "metrics",
    "optimizers",
    "regularizers",
    "relu",
    "scale_regularization_loss",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swish",
    "tanh",
]
