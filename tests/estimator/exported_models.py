"""Models for ONNX, at the top of a module: of built-in layers, and of NumPy's functions."""

import numpy as np

import paceline as pl
from paceline import autodiff
from paceline.nn import Sequential, layers, optimizers


def spec(mode, **outputs):
    """In training the loss is the mean square of the first output."""
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions=outputs)
    loss = np.mean(np.square(autodiff.lift_array(next(iter(outputs.values())))))
    train_op = optimizers.SGD(0.1).minimize(loss) if loss.requires_grad else []
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


def digits_cnn(features, mode):
    """As examples/digits.py has it."""
    training = mode == pl.ModeKeys.TRAIN
    x = features["image"]
    x = layers.Conv2D(8, 3, activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.BatchNormalization()(x, training)
    x = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    x = layers.AveragePooling2D(2, padding="same", strides=1)(x)
    x = layers.Dropout(0.5)(layers.Flatten()(x), training)
    logits = layers.Dense(10)(x)
    return spec(
        mode,
        logits=logits,
        probabilities=autodiff.softmax(logits),
        digit=np.argmax(logits, axis=-1),
    )


def sequential(features, mode):
    """Convolution and pool as one operation, windows that overlap, and every activation."""
    x = features["image"]
    first = Sequential([layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D()])(x)
    pool = layers.MaxPooling2D(3, strides=2, padding="same")
    second = pool(layers.Conv2D(4, (3, 2), padding="same", use_bias=False, activation="tanh")(x))
    outputs = {"first": first, "second": second}
    outputs["groups"] = layers.Conv2D(4, 2, groups=2, dilation_rate=2)(first)
    rows = layers.Reshape((-1, 4))(first)
    outputs["steps"] = layers.Conv1D(3, 2, padding="causal", dilation_rate=3)(rows)
    outputs["means"] = layers.AveragePooling1D(2, padding="same")(rows)
    flat = layers.Flatten()(x) - 0.5
    for name in ("elu", "gelu", "leaky_relu", "silu", "softmax", "softplus", "swish", "linear"):
        outputs[name] = layers.Activation(name)(flat)
    return spec(mode, **outputs)


def mlp_with_embedding(features, mode):
    rows = layers.Embedding(20, 5)(features["word"])
    words = np.mean(rows, axis=1)
    joined = np.concatenate([words, features["numbers"] * 0.5 - 1.0], axis=-1)
    hidden = layers.LayerNormalization()(layers.Dense(7, activation="gelu")(joined))
    return spec(mode, score=layers.Dense(1, activation="sigmoid")(hidden))


def numpy_functions(features, mode):
    """Many of NumPy's functions, each an output."""
    x = features["x"]
    w = pl.get_variable("w", (3, 3)).value()
    several = np.split(x, [1], axis=1)
    outputs = {
        "arithmetic": (x + 1) / (2 - x) * x - x**2 + np.maximum(x, 0.1) - np.minimum(x, w[0]),
        "functions": np.log1p(np.exp(x)) + np.sqrt(np.square(x) + 1) + np.tanh(x) - np.expm1(-x),
        "choice": np.where(x > 0.5, x, -x),
        "rows": np.sum(x, axis=1, keepdims=True) + np.max(x, axis=1)[:, np.newaxis],
        "whole": np.mean(x, axis=0),
        "product": x @ w + np.einsum("ij,jk->ik", x, w),
        "turned": np.transpose(np.stack([x, x], axis=1), (0, 2, 1)),
        "parts": np.concatenate([several[1], several[0]], axis=1),
        "cut": x[:, 1:][:, ::-1],
        "last": x[:, -1],
        "clipped": np.clip(x, 0.2, 0.8) + np.clip(x - 0.5, None, 0),
        "padded": np.pad(x, ((0, 0), (1, 0))),
        "flags": np.greater_equal(x, 0.5),
        "ones": np.where(x > 0.5, x * 0 + 1, 0),
        "reshaped": np.reshape(x, (-1, 3, 1)),
        "taken": np.take(x, [2, 0], axis=1),
        "smooth": autodiff.silu(x)
        + autodiff.softplus(x)
        + autodiff.elu(x)
        + autodiff.leaky_relu(x),
        "sums": autodiff.logsumexp(x, axis=1) + autodiff.log_softmax(x)[:, 0],
        "double": x.astype(np.float64) * 2,
        "approximate": autodiff.gelu(x, approximate=True),
        "whatever": np.ones(3, np.float32) * 2,
    }
    return spec(mode, **outputs)


def sorting(features, mode):
    return spec(mode, y=np.sort(features["x"] * pl.get_variable("w", (3,)), axis=1))


def reading_values(features, mode):
    x = features["x"] * pl.get_variable("w", (3,))
    return spec(mode, y=autodiff.lift_array(x.numpy() * 2) + 1)


def comparing(features, mode):
    x = features["x"] * pl.get_variable("w", (3,))
    return spec(mode, y=(x > 0.5).astype(np.int64))


def branching(features, mode):
    x = features["x"] * pl.get_variable("w", (3,))
    return spec(mode, y=np.exp(x) if len(x) > 2 else np.tanh(x))


def in_place(features, mode):
    y = np.exp(features["x"] * pl.get_variable("w", (3,)))
    if mode == pl.ModeKeys.PREDICT:
        y.data[...] *= 2
    return spec(mode, y=y)


def text(features, mode):
    pl.get_variable("w", (3,))
    return spec(mode, y=np.asarray(features["x"]) == "a")
