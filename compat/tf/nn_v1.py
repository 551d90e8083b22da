"""`tf.compat.v1.nn`: functions whose arguments TensorFlow 2 has in another order, over `tf.nn`."""

from __future__ import annotations

from typing import Any

from . import nn
from .conversion import accept_symbolic


def __getattr__(name: str) -> Any:
    return getattr(nn, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(nn)})


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Any:
    """`tf.nn.dropout`, by the part that is kept or by the `rate` of zeros."""
    if (keep_prob is None) == (rate is None):
        raise ValueError(
            f"dropout: one of keep_prob and rate must be given, got {keep_prob} and {rate}"
        )
    return nn.dropout(x, 1 - keep_prob if rate is None else rate, noise_shape, seed)


def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Any, Any]:
    """`tf.nn.moments`."""
    return nn.moments(x, axes, keepdims=bool(keepdims or keep_dims))


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Any:
    """`tf.nn.embedding_lookup` of a table that is not in parts, so that no strategy divides it."""
    return nn.embedding_lookup(params, ids, max_norm)


def in_top_k(predictions: Any, targets: Any, k: int, name: str | None = None) -> Any:
    """`tf.math.in_top_k`, whose first two arguments are the other way round."""
    return nn.in_top_k(targets, predictions, k)


def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: str | None = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
    filters: Any = None,
) -> Any:
    """`tf.nn.conv2d`."""
    if strides is None or padding is None:
        raise ValueError("conv2d: strides and padding must be given")
    kernel = filter if filters is None else filters
    return nn.conv2d(input, kernel, strides, padding, data_format, dilations)


def max_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: str | None = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Any:
    """`tf.nn.max_pool2d`."""
    images = value if input is None else input
    return nn.max_pool2d(images, *_windows("max_pool", ksize, strides, padding), data_format)


def avg_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: str | None = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Any:
    """`tf.nn.avg_pool2d`."""
    images = value if input is None else input
    return nn.avg_pool2d(images, *_windows("avg_pool", ksize, strides, padding), data_format)


avg_pool2d = avg_pool
max_pool2d = max_pool


def _windows(name: str, ksize: Any, strides: Any, padding: str | None) -> tuple[Any, Any, str]:
    """These, all of which must be given although `value` may have another name."""
    if ksize is None or strides is None or padding is None:
        raise ValueError(f"{name}: ksize, strides and padding must be given")
    return ksize, strides, padding


accept_symbolic(globals())
