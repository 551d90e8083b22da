"""Cross-entropy losses, fused with the softmax or sigmoid before them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .activations import log_softmax, logistic, softplus
from .fusion import fused
from .higher_order import by_definition
from .tensor import Tensor, lift_array, record
from .tensor_like import Array

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def softmax_cross_entropy(logits: Any, labels: Any) -> Tensor:
    """-log(softmax(logits)[label]) of each example.

    Args:
        logits: (..., num_classes), floating.
        labels: Class numbers of shape (...), whole numbers; or probabilities of the shape of
            `logits`, which may have a gradient themselves.

    Returns:
        (...), one loss for each example.

    Raises:
        ValueError: A shape that does not fit, or a class number outside [0, num_classes). On a GPU
            such an example's loss is "not a number" instead.
    """
    logits, labels = lift_array(logits), lift_array(labels)
    z, target = logits.data, labels.data
    if target.shape == z.shape:
        return _soft_cross_entropy(logits, labels)
    if target.shape != z.shape[:-1] or target.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be whole numbers of shape {z.shape[:-1]} or probabilities of shape "
            f"{z.shape}, to go with logits of shape {z.shape}; got {target.dtype} of shape "
            f"{target.shape}"
        )
    num_classes = z.shape[-1]
    if not isinstance(target, np.ndarray):
        return _of_classes_at_once(logits, target)
    check_labels(target, num_classes)
    picked = target.reshape(-1)
    rows = np.ascontiguousarray(z.reshape(-1, num_classes), like=z)
    weights = rows - rows.max(axis=1, keepdims=True)
    # The places of the labels' logits in one line of all: found in a fifth of the time that two
    # arrays of numbers, of the row and in it, take.
    places = np.arange(0, rows.size, num_classes or 1, like=z)
    places += picked.astype(places.dtype, copy=False)
    shifted = weights.reshape(-1)[places]
    np.exp(weights, out=weights)  # at most 1, and 1 for one class: no sum overflows, or is 0
    total = weights.sum(axis=1)
    losses = np.log(total)
    losses -= shifted

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda z: _of_classes(z, target), g, (logits,), (z,))
        g = g.reshape(-1)
        dz = weights * (g / total)[:, None]  # g (softmax(z) - one_hot), with neither made
        dz.reshape(-1)[places] -= g
        return (dz.reshape(z.shape),)

    return record(losses.reshape(target.shape), (logits,), vjp)


def _of_classes_at_once(logits: Tensor, target: Array) -> Tensor:
    """The same on a GPU, in few kernels.

    To look at class numbers would be to wait for the device, which does not refuse any.
    """
    z = logits.data
    num_classes = z.shape[-1]
    rows, picked = z.reshape(-1, num_classes), target.reshape(-1, 1)
    classes = np.arange(num_classes, like=z)
    most = rows.max(axis=1, keepdims=True)
    weights, of_label = fused(_weights_and_label, rows, most, picked, classes)
    sums = weights.sum(axis=1, keepdims=True), of_label.sum(axis=1, keepdims=True)
    losses = fused(partial(_loss, num_classes), *sums, picked)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda z: _of_classes(z, target), g, (logits,), (z,))
        g = g.reshape(-1, 1)
        return (fused(_loss_gradient, g, weights, sums[0], picked, classes).reshape(z.shape),)

    return record(losses.reshape(target.shape), (logits,), vjp)


def _weights_and_label(z: Any, most: Any, picked: Any, classes: Any) -> tuple[Any, Any]:
    shifted = z - most
    return np.exp(shifted), np.where(classes == picked, shifted, 0)


def _loss(num_classes: int, total: Any, of_label: Any, picked: Any) -> Any:
    exists = (picked >= 0) & (picked < num_classes)
    return np.where(exists, np.log(total) - of_label, np.nan)


def _loss_gradient(g: Any, weights: Any, total: Any, picked: Any, classes: Any) -> Any:
    return weights * (g / total) - np.where(classes == picked, g, 0)


def _of_classes(logits: Tensor, labels: Array) -> Any:
    shares: Any = log_softmax(logits)
    return -np.take_along_axis(shares, labels[..., None], -1)[..., 0]


def check_labels(labels: Array, num_classes: int) -> None:
    """Refuse a class number outside [0, num_classes), by its value and position."""
    # Without a sign, as what is below 0 is a large number then: one look instead of two.
    if labels.size == 0 or labels.view(_UNSIGNED[labels.dtype.itemsize]).max() < num_classes:
        return
    found = np.argwhere((labels < 0) | (labels >= num_classes))
    if not len(found):  # numbers with their bytes in the other order look large as well
        return
    bad = found[0].tolist()
    raise ValueError(
        f"labels must lie in [0, {num_classes}), the classes that logits of shape "
        f"(..., {num_classes}) tell apart; found {labels[tuple(bad)].item()} at position "
        f"{bad[0] if len(bad) == 1 else tuple(bad)}; number the classes from 0, or give the last "
        f"layer more outputs"
    )


def _soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-sum(targets * log_softmax(logits)) along the last axis."""
    z, target = logits.data, targets.data
    log_share = z - z.max(axis=-1, keepdims=True)
    log_share -= np.log(np.exp(log_share).sum(axis=-1, keepdims=True))

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(
                lambda z, t: -np.sum(t * log_softmax(z), axis=-1), g, (logits, targets), (z, target)
            )
        g = g[..., None]
        dz = None
        if logits.requires_grad:
            dz = (np.exp(log_share) * target.sum(axis=-1, keepdims=True) - target) * g
        return dz, -g * log_share if targets.requires_grad else None

    return record(-(target * log_share).sum(axis=-1), (logits, targets), vjp)


def sigmoid_cross_entropy(logits: Any, targets: Any) -> Tensor:
    """-t log(sigmoid(z)) - (1 - t) log(1 - sigmoid(z)) of each element, without overflow.

    Args:
        logits: z, any shape, floating.
        targets: t of the same shape, 0 or 1 or a probability between.

    Returns:
        The shape of `logits`, one loss for each element.
    """
    logits, targets = lift_array(logits), lift_array(targets)
    z, t = logits.data, targets.data
    if np.shape(t) != z.shape:
        raise ValueError(
            f"targets must have the shape of logits, {z.shape}, got {np.shape(t)}; reshape one of "
            f"them, for they are not broadcast"
        )
    if t.dtype != z.dtype and not targets.requires_grad:
        t = t.astype(z.dtype)
    # softplus(z) - z t, with softplus(z) = max(z, 0) + log(1 + exp(-|z|)), whose exp is at most 1
    losses = np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.absolute(z)))

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda z, t: softplus(z) - z * t, g, (logits, targets), (z, t))
        dt = g * -z if targets.requires_grad else None
        return np.multiply(g, logistic(z) - t, out=g) if logits.requires_grad else None, dt

    return record(losses, (logits, targets), vjp)
