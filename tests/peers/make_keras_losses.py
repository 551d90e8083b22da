"""Write `keras_losses.npz`: what Keras (and PyTorch, for CTC) answers for losses.

    python tests/peers/make_keras_losses.py

needs Keras on TensorFlow, PyTorch and NumPy, not paceline. Each case is stored in float64 and in
float32: `case/dtype/y` and `case/dtype/p` are labels and predictions, `case/dtype/losses` came out,
and `case/dtype/gradient` is that of `sum(losses * cos(arange))` in the predictions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
import torch
from keras import losses

RNG = np.random.default_rng(11)
STORED: dict[str, np.ndarray] = {"version": np.array(keras.__version__)}
SHAPE = (4, 5)


def rounded(values: np.ndarray) -> np.ndarray:
    """To three digits, which compress: nobody cares about the rest of them."""
    return np.round(1024 * values) / 1024


def weights(losses_found: np.ndarray) -> np.ndarray:
    return np.cos(np.arange(float(losses_found.size))).reshape(losses_found.shape)


def case(name: str, function: Callable[..., Any], y: np.ndarray, p: np.ndarray) -> None:
    for dtype in (np.float64, np.float32):
        labels = y if y.dtype.kind == "i" else y.astype(dtype)
        predictions = tf.Variable(p.astype(dtype))
        with tf.GradientTape() as tape:
            found = function(tf.constant(labels), predictions)
            total = tf.reduce_sum(found * weights(found.numpy()).astype(dtype))
        gradient = tape.gradient(total, predictions)
        store(name, labels, predictions.numpy(), found.numpy(), gradient.numpy())


def store(name: str, y: Any, p: Any, found: Any, gradient: Any) -> None:
    found_of = {"y": y, "p": p, "losses": found, "gradient": gradient}
    STORED.update({f"{name}/{p.dtype}/{key}": np.asarray(value) for key, value in found_of.items()})


def numbers() -> None:
    y, p = rounded(RNG.normal(size=SHAPE)), rounded(RNG.normal(size=SHAPE))
    positive = np.abs(y) + 0.5, np.abs(p) + 0.25
    for function in (
        losses.mean_squared_error,
        losses.mean_absolute_error,
        losses.mean_absolute_percentage_error,
        losses.huber,
        losses.log_cosh,
        losses.cosine_similarity,
    ):
        case(function.__name__, function, y, p)
    case("huber of 0.5", partial(losses.huber, delta=0.5), y, p)
    case("cosine_similarity of columns", partial(losses.cosine_similarity, axis=0), y, p)
    case("mean_squared_logarithmic_error", losses.mean_squared_logarithmic_error, *positive)
    case("poisson", losses.poisson, *positive)


def classes() -> None:
    z = rounded(2 * RNG.normal(size=SHAPE))
    p = rounded(np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True) * 0.98 + 0.004)
    numbers = RNG.integers(0, SHAPE[-1], SHAPE[:1])
    one_hot = np.eye(SHAPE[-1])[numbers]
    either = RNG.integers(0, 2, SHAPE).astype(float)
    soft = rounded(RNG.dirichlet(np.ones(SHAPE[-1]), SHAPE[0]))
    cases: dict[str, tuple[Any, np.ndarray, dict[str, Any]]] = {
        "binary": (losses.binary_crossentropy, either, {}),
        "binary smoothed": (losses.binary_crossentropy, either, {"label_smoothing": 0.2}),
        "binary focal": (losses.binary_focal_crossentropy, either, {}),
        "binary focal balanced": (
            losses.binary_focal_crossentropy,
            either,
            {"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.5, "label_smoothing": 0.1},
        ),
        "categorical": (losses.categorical_crossentropy, one_hot, {}),
        "categorical soft": (losses.categorical_crossentropy, soft, {"label_smoothing": 0.1}),
        "categorical focal": (losses.categorical_focal_crossentropy, one_hot, {}),
        "categorical focal by class": (
            losses.categorical_focal_crossentropy,
            soft,
            {"alpha": [0.1, 0.2, 0.3, 0.2, 0.2], "gamma": 3.0, "label_smoothing": 0.1},
        ),
        "sparse": (losses.sparse_categorical_crossentropy, numbers, {}),
        "sparse ignoring": (
            losses.sparse_categorical_crossentropy,
            numbers,
            {"ignore_class": int(numbers[1])},
        ),
    }
    for name, (function, y, options) in cases.items():
        case(name, partial(function, **options), y, p)
        case(f"{name} logits", partial(function, from_logits=True, **options), y, z)
    case("kl_divergence", losses.kl_divergence, soft, p)
    for function in (losses.hinge, losses.squared_hinge):
        case(function.__name__, function, 2 * either - 1, z)
        case(f"{function.__name__} of 0 and 1", function, either, z)
    case("categorical_hinge", losses.categorical_hinge, one_hot, z)
    for name, axis in (("whole", None), ("each", 1)):
        case(f"dice {name}", partial(losses.dice, axis=axis), either, p)
        # Keras 3 has alpha and beta the other way round
        turned = partial(losses.tversky, alpha=0.7, beta=0.3, axis=axis)
        case(f"tversky {name}", turned, either, p)


def ctc() -> None:
    """PyTorch's, of rows whose labels are of several lengths and repeat."""
    labels = np.array([[1, 2, 2, 0], [3, 1, 3, 1], [2, 0, 0, 0], [0, 0, 0, 0]])
    lengths = torch.tensor((labels != 0).sum(axis=1))
    z = rounded(RNG.normal(size=(4, 6, 4)))
    for dtype in (np.float64, np.float32):
        logits = torch.tensor(z.astype(dtype), requires_grad=True)
        log_p = torch.log_softmax(logits, -1).transpose(0, 1)
        steps = torch.full((4,), 6)
        found = torch.nn.functional.ctc_loss(
            log_p, torch.tensor(labels), steps, lengths, reduction="none"
        )
        (found * torch.tensor(weights(found.detach().numpy()).astype(dtype))).sum().backward()
        store("ctc", labels, logits.detach().numpy(), found.detach().numpy(), logits.grad.numpy())


numbers()
classes()
ctc()
np.savez_compressed(Path(__file__).parent / "keras_losses.npz", **STORED)
