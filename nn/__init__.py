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
from . import (
    activations,
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    mixed_precision,
    optimizers,
    regularizers,
)
from .activations import swish, tanh
from .layers import Input
from .losses import compute_average_loss, scale_regularization_loss
from .models import Model, Sequential, clone_model, load_model, model_from_json
from .serialization import Serializable, custom_object_scope, deserialize, serialize

__all__ = [
    "Input",
    "Model",
    "Sequential",
    "Serializable",
    "activations",
    "callbacks",
    "clone_model",
    "compute_average_loss",
    "constraints",
    "custom_object_scope",
    "deserialize",
    "elu",
    "gelu",
    "initializers",
    "layers",
    "leaky_relu",
    "load_model",
    "log_softmax",
    "losses",
    "metrics",
    "mixed_precision",
    "model_from_json",
    "optimizers",
    "regularizers",
    "relu",
    "scale_regularization_loss",
    "serialize",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swish",
    "tanh",
]
