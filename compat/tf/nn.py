"""`tf.nn`: activations, losses of logits, convolutions: TensorFlow's arguments on our functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

import numpy as np

from ... import autodiff
from ...autodiff import Tensor
from ..names import NameTable, serve
from .advice import advice
from .arguments import adapt_all, adapted
from .conversion import accept_symbolic, as_tensor, axes, convert, integers, on_symbolic, plain
from .linalg import clip_by_norm
from .math import l2_normalize as l2_normalize
from .math import softmax as _softmax
from .math import top_k as top_k

_table = NameTable(
    __name__, ("nn", "autodiff", "nn.activations", "compat.tf.math"), advice=advice, adapted=adapted
)
_, __dir__ = serve(_table)


_TAKEN_AS_THEY_ARE = ("compute_average_loss", "scale_regularization_loss")


def __getattr__(name: str) -> Any:
    value = _table[name]
    if isfunction(value) and name not in _TAKEN_AS_THEY_ARE:
        value = on_symbolic(_of_tensor(value))
    return globals().setdefault(name, value)


def _of_tensor(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose first argument may be anything that makes a tensor."""
    first = next(iter(inspect.signature(function).parameters), None)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if args:
            return function(convert(args[0]), *args[1:], **options)
        if first in options:
            options[first] = convert(options[first])
        return function(**options)

    return call


softmax = adapted("tf.nn.softmax", _softmax)


def sparse_softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, name: str | None = None
) -> Any:
    """For each example, the cross entropy of its class number and softmax of its logits."""
    return autodiff.softmax_cross_entropy(convert(logits), plain(labels))


def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> Any:
    """For each example, the cross entropy of its probabilities and softmax of its logits."""
    if axis != -1:
        labels, logits = (np.moveaxis(convert(x), axis, -1) for x in (labels, logits))
    return -np.sum(convert(labels) * autodiff.log_softmax(convert(logits)), axis=-1)


softmax_cross_entropy_with_logits_v2 = softmax_cross_entropy_with_logits


def sigmoid_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Any:
    """For each logit, the cross entropy of its label and sigmoid."""
    return autodiff.sigmoid_cross_entropy(convert(logits), convert(labels))


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: Any, name: str | None = None
) -> Any:
    """The same, where positive labels count `pos_weight` times."""
    z, x = convert(labels), convert(logits)
    return (1 - z) * x + (1 + (pos_weight - 1) * z) * autodiff.softplus(-x)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    """x where it is positive, and else `alpha * x`."""
    return autodiff.leaky_relu(convert(features), alpha)


def silu(features: Any, beta: float = 1.0, name: str | None = None) -> Any:
    """`x * sigmoid(beta * x)`."""
    x = convert(features)
    return autodiff.silu(x) if beta == 1 else x * autodiff.sigmoid(beta * x)


swish = silu


def relu6(features: Any, name: str | None = None) -> Any:
    """Between 0 and 6."""
    return np.minimum(autodiff.relu(convert(features)), 6)


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    """A bias for the last axis.

    Raises:
        ValueError: The channels are not there.
    """
    if data_format not in (None, "NHWC", "N...C"):
        raise ValueError(
            f"bias_add: data_format must be None, 'NHWC' or 'N...C', got {data_format!r}; "
            f"transpose the value, so that its channels are last"
        )
    return convert(value) + convert(bias)


def conv2d(
    input: Any,
    filters: Any = None,
    strides: Any = 1,
    padding: str = "VALID",
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
    filter: Any = None,
) -> Any:
    """The convolution of images (batch, height, width, channels)."""
    _require_plain("conv2d", data_format, dilations)
    kernel = convert(filter if filters is None else filters)
    zeros = np.zeros(kernel.shape[-1], kernel.dtype)
    return autodiff.conv2d(
        convert(input), kernel, zeros, strides=_of_plane(strides), padding=padding.lower()
    )


def max_pool2d(
    input: Any,
    ksize: Any,
    strides: Any = None,
    padding: str = "VALID",
    data_format: str = "NHWC",
    name: str | None = None,
) -> Any:
    """The largest value of each window."""
    _require_plain("max_pool2d", data_format)
    return autodiff.max_pool2d(
        convert(input), _of_plane(ksize), strides=_of_plane(strides), padding=padding.lower()
    )


def avg_pool2d(
    input: Any,
    ksize: Any,
    strides: Any = None,
    padding: str = "VALID",
    data_format: str = "NHWC",
    name: str | None = None,
) -> Any:
    """The mean of each window."""
    _require_plain("avg_pool2d", data_format)
    return autodiff.avg_pool2d(
        convert(input), _of_plane(ksize), strides=_of_plane(strides), padding=padding.lower()
    )


max_pool, avg_pool = max_pool2d, avg_pool2d


def _of_plane(sizes: Any) -> Any:
    """Of [1, height, width, 1] the two in the middle."""
    if sizes is None or isinstance(sizes, int):
        return sizes
    numbers = [int(n) for n in sizes]
    if len(numbers) == 4:
        return tuple(numbers[1:3])
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _require_plain(name: str, data_format: str, dilations: Any = None) -> None:
    if data_format != "NHWC" or dilations not in (None, 1, [1, 1], [1, 1, 1, 1]):
        raise ValueError(
            f"tf.nn.{name} takes images as (batch, height, width, channels), NHWC, without "
            f"dilations; transpose them with np.transpose, or use a layer of paceline.nn"
        )


def dropout(
    x: Any,
    rate: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    keep_prob: float | None = None,
) -> Any:
    """A part `rate` of the elements is zero, the others are scaled up."""
    from ... import nn

    rate = 1 - keep_prob if rate is None and keep_prob is not None else rate
    drawn = None if noise_shape is None else integers(noise_shape)
    return nn.layers.Dropout(rate, drawn, seed)(convert(x), training=True)


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """The transpose of a convolution of (batch, axes…, channels).

    Args:
        input: With one to three axes between the batch and the channels.
        filters: (lengths…, output channels, input channels).
        output_shape: The shape of the result, which strides alone leave open.
        strides, dilations: One number, or one for each axis.
        padding: "SAME" or "VALID".
        data_format: Must be None or one with the channels last.

    Raises:
        ValueError: The convolution of a result of this shape does not have the shape of the input.
    """
    x, kernel = convert(input), convert(filters)
    if data_format not in (None, "NWC", "NHWC", "NDHWC"):
        raise ValueError(f"conv_transpose: channels must be last, data_format is {data_format!r}")
    steps, holes = (_of_each_axis(n, x.ndim - 2) for n in (strides, dilations or 1))
    wanted, added = integers(output_shape), []
    for n, size, step, hole, length in zip(
        x.shape[1:-1], kernel.shape, steps, holes, wanted[1:-1], strict=False
    ):
        extent = (size - 1) * hole + 1
        shortest = extent - (2 * (extent // 2) if padding.upper() == "SAME" else 0)
        added.append(length - (n - 1) * step - shortest)
    result = autodiff.conv_transpose(x, kernel, steps, padding.lower(), added, holes)
    if result.shape[1:] != wanted[1:] or wanted[0] not in (-1, len(x)):
        raise ValueError(
            f"conv_transpose: output_shape must be {result.shape} here, got {wanted}; its channels "
            f"are those of the filters and its batch that of the input"
        )
    return result


def _of_each_axis(numbers: Any, count: int) -> tuple[int, ...]:
    """One number for each axis, of which those of the batch and the channels are left out."""
    given = integers(numbers)
    if len(given) == count + 2:
        return given[1:-1]
    return given * count if len(given) == 1 else given


def embedding_lookup(
    params: Any, ids: Any, max_norm: float | None = None, name: str | None = None
) -> Any:
    """The rows of a table at these numbers, scaled down to a norm of at most `max_norm`.

    Raises:
        ValueError: The table is in several parts.
    """
    if isinstance(params, list | tuple):
        if len(params) != 1:
            raise ValueError(
                f"embedding_lookup: params must be one table, got {len(params)} parts; concatenate "
                f"them with tf.concat"
            )
        (params,) = params
    rows = np.take(convert(params), plain(ids), axis=0)
    return rows if max_norm is None else clip_by_norm(rows, max_norm, axes=-1)


def l2_loss(t: Any, name: str | None = None) -> Any:
    """Half the sum of squares."""
    return np.sum(np.square(convert(t))) / 2


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Any, Any]:
    """Mean and variance along axes."""
    x, axis = convert(x), _axes(axes)
    mean, variance = (f(x, axis=axis, keepdims=keepdims) for f in (np.mean, np.var))
    return as_tensor(mean), as_tensor(variance)


_axes = axes


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: float,
    name: str | None = None,
) -> Any:
    """`scale * (x - mean) / √(variance + epsilon) + offset`."""
    factor = 1 / np.sqrt(convert(variance) + variance_epsilon)
    factor = factor if scale is None else factor * convert(scale)
    normal = (convert(x) - convert(mean)) * factor
    return normal if offset is None else normal + convert(offset)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """A dense layer without activation."""
    return np.matmul(convert(x), convert(weights)) + convert(biases)


accept_symbolic(globals())
adapt_all(globals(), "tf.nn")
