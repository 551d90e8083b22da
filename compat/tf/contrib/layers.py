"""`tf.contrib.layers`: functions over `tf.layers`, with an activation by default, and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .... import nn
from ...names import NameTable, serve
from .. import layers
from .. import nn as tf_nn
from ..advice import advice
from ..arguments import refuse

_COLUMNS = "estimator.feature_column."
__getattr__, __dir__ = serve(
    NameTable(
        __name__,
        ("compat.tf.contrib.columns",),
        {name: _COLUMNS + name for name in ("bucketized_column", "crossed_column")},
        advice,
    )
)


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = None) -> Any:
    """`GlorotUniform`, or without `uniform` `GlorotNormal`."""
    kind = nn.initializers.GlorotUniform if uniform else nn.initializers.GlorotNormal
    return kind(seed=seed)


def l1_regularizer(scale: float, scope: str | None = None) -> Any:
    """`scale · Σ|w|`."""
    return nn.regularizers.L1(scale)


def l2_regularizer(scale: float, scope: str | None = None) -> Any:
    """`scale · Σw² / 2`: half of what Keras's regularizer gives."""
    return nn.regularizers.L2(scale / 2)


def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Any:
    """Each example as one row."""
    return layers.flatten(inputs, name=scope)


def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Callable[[Any], Any] | None = tf_nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = "glorot_uniform",
    weights_regularizer: Any = None,
    biases_initializer: Any = "zeros",
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """`tf.layers.dense`; with a `normalizer_fn` there is no bias.

    Raises:
        ValueError: A regularizer is given.
    """
    _refuse_regularizers("fully_connected", weights_regularizer, biases_regularizer)
    found = layers.dense(
        inputs,
        num_outputs,
        use_bias=normalizer_fn is None and biases_initializer is not None,
        kernel_initializer=weights_initializer,
        bias_initializer=biases_initializer or "zeros",
        trainable=trainable,
        name=scope,
        reuse=reuse,
    )
    return _finished(found, activation_fn, normalizer_fn, normalizer_params)


def conv2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Callable[[Any], Any] | None = tf_nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = "glorot_uniform",
    weights_regularizer: Any = None,
    biases_initializer: Any = "zeros",
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: str | None = None,
) -> Any:
    """`tf.layers.conv2d`; with a `normalizer_fn` there is no bias.

    Raises:
        ValueError: A regularizer is given, or `data_format` is not "NHWC".
    """
    _refuse_regularizers("conv2d", weights_regularizer, biases_regularizer)
    _refuse_format("conv2d", data_format)
    found = layers.conv2d(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding.lower(),
        dilation_rate=rate,
        use_bias=normalizer_fn is None and biases_initializer is not None,
        kernel_initializer=weights_initializer,
        bias_initializer=biases_initializer or "zeros",
        trainable=trainable,
        name=scope,
        reuse=reuse,
    )
    return _finished(found, activation_fn, normalizer_fn, normalizer_params)


def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str | None = None,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """`tf.layers.max_pooling2d`.

    Raises:
        ValueError: `data_format` is not "NHWC".
    """
    _refuse_format("max_pool2d", data_format)
    return layers.max_pooling2d(inputs, kernel_size, stride, padding.lower(), name=scope)


def dropout(
    inputs: Any,
    keep_prob: float = 0.5,
    noise_shape: Any = None,
    is_training: bool = True,
    outputs_collections: Any = None,
    scope: str | None = None,
    seed: int | None = None,
) -> Any:
    """`tf.layers.dropout` by the part that is kept; in training unless `is_training` is False."""
    return layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training, scope)


def _finished(
    found: Any,
    activation: Callable[[Any], Any] | None,
    normalizer: Callable[..., Any] | None,
    options: Mapping[str, Any] | None,
) -> Any:
    normal = found if normalizer is None else normalizer(found, **(options or {}))
    return normal if activation is None else activation(normal)


def _refuse_regularizers(name: str, weights: Any, biases: Any) -> None:
    instead = "add its value of the weights to the loss"
    refuse(
        name,
        ("weights_regularizer", weights, None, instead),
        ("biases_regularizer", biases, None, instead),
    )


def _refuse_format(name: str, data_format: str | None) -> None:
    if data_format not in (None, "NHWC"):
        raise ValueError(f"{name}: data_format must be 'NHWC', got {data_format!r}; transpose")
