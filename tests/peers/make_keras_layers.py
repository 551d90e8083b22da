"""Write `keras_layers.npz`: what Keras's layers answer, which tests compare with ours.

    python tests/peers/make_keras_layers.py

needs Keras with TensorFlow, not paceline. `said` is JSON: the cases, each with a layer's class, its
arguments and those of the call, and the name, dtype and shape of each array, which lie in `values`
one behind the other. Each case was made with weights drawn anew, in float64 where TensorFlow
can. `case/x0` … went in, `case/w0` … are the weights, `case/y0` … came out; `case/gx0` … and
`case/gw0` … are the gradients of the sum of all `y * cos(arange)`, by the inputs and by the weights
that train.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf

RNG = np.random.default_rng(7)
CASES: list[dict[str, Any]] = []
STORED: dict[str, np.ndarray] = {}
IMAGE, SEQUENCE, VOLUME = (2, 7, 6, 4), (3, 8, 4), (2, 4, 5, 4, 2)
ONLY_FLOAT32 = {"MaxPooling3D", "AveragePooling3D"}
MASK = [[1, 1, 1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]]


def normal(shape: Any) -> np.ndarray:
    """Normal to four digits, which compress: nobody cares about the rest of them."""
    return np.round(8192 * RNG.normal(size=shape)) / 8192


def make(given: dict[str, Any], dtype: str) -> Any:
    """A layer from its class and arguments; an argument that is such a dict is a layer too."""
    arguments = {
        key: make(value, dtype) if isinstance(value, dict) else value
        for key, value in given["arguments"].items()
    }
    return getattr(keras.layers, given["layer"])(**arguments, dtype=dtype)


def case(layer: str, /, *shapes: Any, call: dict[str, Any] | None = None, **arguments: Any) -> None:
    """One case with inputs of these shapes."""
    given = {"layer": layer, "arguments": arguments, "call": call or {}, "inputs": len(shapes)}
    name = f"{len(CASES)}"
    CASES.append(given)
    dtype = "float32" if layer in ONLY_FLOAT32 else "float64"
    made = make(given, dtype)
    inputs = [tf.constant(normal(shape), dtype) for shape in shapes]
    takes = inputs[0] if len(inputs) == 1 else inputs
    called = {
        key: tf.constant(np.array(value, bool)) if "mask" in key else value
        for key, value in given["call"].items()
    }
    if "initial_state" in called:
        takes, called["initial_state"] = inputs[0], inputs[1:]
    if layer == "MultiHeadAttention":

        def compute() -> Any:
            return made(*inputs, **called)
    else:

        def compute() -> Any:
            return made(takes, **called)

    compute()
    for weight in made.weights:
        values = normal(weight.shape)
        weight.assign(np.abs(values) if "variance" in weight.name else values / 2)
    for i, weight in enumerate(made.weights):
        STORED[f"{name}/w{i}"] = weight.numpy()
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = compute()
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        total = sum(
            tf.reduce_sum(
                y
                * tf.reshape(tf.cos(tf.range(tf.size(y, tf.int64).numpy(), dtype=y.dtype)), y.shape)
            )
            for y in outputs
        )
    sources = [*inputs, *[weight.value for weight in made.trainable_weights]]
    gradients = tape.gradient(total, sources, unconnected_gradients="zero")
    for key, arrays in (("x", inputs), ("y", outputs)):
        STORED.update({f"{name}/{key}{i}": array.numpy() for i, array in enumerate(arrays)})
    for i, gradient in enumerate(gradients):
        key = f"gx{i}" if i < len(inputs) else f"gw{i - len(inputs)}"
        STORED[f"{name}/{key}"] = gradient.numpy()


def convolutions() -> None:
    for padding in ("valid", "same"):
        case("Conv1D", SEQUENCE, filters=3, kernel_size=3, padding=padding, strides=2)
        case("Conv2D", IMAGE, filters=6, kernel_size=[3, 2], padding=padding, dilation_rate=[1, 2])
        case("Conv2D", IMAGE, filters=6, kernel_size=3, padding=padding, groups=2, strides=[1, 2])
        case("Conv3D", VOLUME, filters=3, kernel_size=[2, 3, 2], padding=padding, strides=[1, 2, 1])
        for strides in (1, 2, 3):
            case(
                "Conv2DTranspose", IMAGE, filters=3, kernel_size=2, padding=padding, strides=strides
            )
        case("Conv1DTranspose", SEQUENCE, filters=3, kernel_size=3, padding=padding, strides=2)
        case(
            "DepthwiseConv2D", IMAGE, kernel_size=3, padding=padding, depth_multiplier=2, strides=2
        )
        case("SeparableConv2D", IMAGE, filters=5, kernel_size=3, padding=padding)
        for pool in ("MaxPooling", "AveragePooling"):
            case(f"{pool}1D", SEQUENCE, pool_size=3, strides=2, padding=padding)
            case(f"{pool}2D", IMAGE, pool_size=[3, 2], strides=2, padding=padding)
            case(f"{pool}3D", VOLUME, pool_size=2, strides=[1, 2, 2], padding=padding)
    case("Conv1D", SEQUENCE, filters=3, kernel_size=3, padding="causal", dilation_rate=2)
    case("Conv1D", SEQUENCE, filters=4, kernel_size=2, groups=4, activation="relu")
    case("Conv2DTranspose", IMAGE, filters=3, kernel_size=3, strides=2, output_padding=1)
    case(
        *("Conv2DTranspose", IMAGE),
        filters=3,
        kernel_size=3,
        strides=2,
        padding="same",
        output_padding=1,
    )
    case("Conv3DTranspose", VOLUME, filters=2, kernel_size=2, strides=2, activation="tanh")
    case("DepthwiseConv1D", SEQUENCE, kernel_size=3, depth_multiplier=1)
    case("DepthwiseConv2D", IMAGE, kernel_size=2, dilation_rate=2, activation="relu")
    case("SeparableConv1D", SEQUENCE, filters=5, kernel_size=3, depth_multiplier=2)
    for rank, shape in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME)):
        for keepdims in (False, True):
            case(f"GlobalMaxPooling{rank}D", shape, keepdims=keepdims)
            case(f"GlobalAveragePooling{rank}D", shape, keepdims=keepdims)
    case("GlobalAveragePooling1D", SEQUENCE, call={"mask": MASK})


def shapes() -> None:
    case("ZeroPadding1D", SEQUENCE, padding=[1, 2])
    case("ZeroPadding2D", IMAGE, padding=[[1, 0], [2, 1]])
    case("ZeroPadding2D", IMAGE, padding=[1, 2])
    case("ZeroPadding3D", VOLUME, padding=1)
    case("Cropping1D", SEQUENCE, cropping=[1, 2])
    case("Cropping2D", IMAGE, cropping=[[1, 0], [2, 1]])
    case("Cropping3D", VOLUME, cropping=1)
    case("UpSampling1D", SEQUENCE, size=3)
    case("UpSampling2D", IMAGE, size=[2, 3])
    case("UpSampling2D", IMAGE, size=[2, 3], interpolation="bilinear")
    case("UpSampling3D", VOLUME, size=2)
    case("Flatten", IMAGE)
    case("Reshape", SEQUENCE, target_shape=[2, -1])
    case("Permute", IMAGE, dims=[3, 1, 2])
    case("RepeatVector", (3, 4), n=2)


def merges() -> None:
    pair = (3, 4), (3, 4)
    for layer in ("Add", "Multiply", "Average", "Maximum", "Minimum"):
        case(layer, *pair, (3, 4))
    case("Subtract", *pair)
    case("Concatenate", (3, 2, 4), (3, 5, 4), axis=1)
    case("Dot", (3, 5, 4), (3, 4, 2), axes=[2, 1])
    case("Dot", *pair, axes=1, normalize=True)


def elementwise() -> None:
    names = "elu exponential gelu hard_sigmoid leaky_relu linear log_softmax mish relu relu6 selu"
    if keras.__version__ >= "3":  # its hard_sigmoid is another function than that of Keras 2
        names = names.replace(" hard_sigmoid", "")
    for name in f"{names} sigmoid silu softmax softplus softsign tanh".split():
        case("Activation", (3, 4), activation=name)
    case("ReLU", (3, 9), max_value=0.8, negative_slope=0.1, threshold=0.2)
    case("ReLU", (3, 9), negative_slope=0.1)
    case("ELU", (3, 4), alpha=0.5)
    case("PReLU", SEQUENCE, shared_axes=[1])
    case("PReLU", SEQUENCE)
    case("Softmax", SEQUENCE, axis=1)
    case("Rescaling", SEQUENCE, scale=0.5, offset=-1.0)


def normalizations() -> None:
    case("LayerNormalization", IMAGE)
    case("LayerNormalization", IMAGE, axis=[1, 3], scale=False)
    case("LayerNormalization", IMAGE, axis=1, epsilon=0.1)
    for training in (False, True):
        for axis in (-1, 1):
            case("BatchNormalization", IMAGE, axis=axis, call={"training": training})
    case("GroupNormalization", IMAGE, groups=2)
    case("GroupNormalization", IMAGE, groups=-1)
    case("UnitNormalization", SEQUENCE)


def recurrent() -> None:
    for layer in ("SimpleRNN", "LSTM", "GRU"):
        case(layer, SEQUENCE, units=3)
        case(layer, SEQUENCE, units=3, return_sequences=True, go_backwards=True)
        case(
            layer, SEQUENCE, units=3, return_sequences=True, return_state=True, call={"mask": MASK}
        )
        case(layer, SEQUENCE, units=3, go_backwards=True, call={"mask": MASK})
        case(layer, SEQUENCE, units=3, use_bias=False, activation="relu")
        case(
            *(layer, SEQUENCE, (3, 3), *([(3, 3)] if layer == "LSTM" else [])),
            units=3,
            return_sequences=True,
            call={"initial_state": True},
        )
        rnn = {"layer": layer, "arguments": {"units": 2, "return_sequences": True}}
        case("Bidirectional", SEQUENCE, layer=rnn, call={"mask": MASK})
        case("Bidirectional", SEQUENCE, layer=rnn | {"arguments": {"units": 2}}, merge_mode="sum")
    case("GRU", SEQUENCE, units=3, reset_after=False, return_sequences=True, call={"mask": MASK})
    case("LSTM", SEQUENCE, units=3, unit_forget_bias=False, recurrent_activation="tanh")
    dense = {"layer": "Dense", "arguments": {"units": 2, "activation": "tanh"}}
    case("TimeDistributed", SEQUENCE, layer=dense)


def attentions() -> None:
    query, value = (2, 3, 4), (2, 5, 4)
    mask = [[[1, 1, 0, 1, 0]] * 3, [[0, 1, 1, 1, 1]] * 3]
    case("Attention", query, value)
    case("Attention", query, (2, 5, 6), value, use_scale=True)
    case("AdditiveAttention", query, value)
    case("MultiHeadAttention", query, value, num_heads=2, key_dim=3)
    case("MultiHeadAttention", query, query, num_heads=2, key_dim=3, call={"use_causal_mask": True})
    case(
        *("MultiHeadAttention", query, value),
        num_heads=2,
        key_dim=3,
        value_dim=2,
        output_shape=5,
        use_bias=False,
        call={"attention_mask": mask},
    )


if __name__ == "__main__":
    for fill in (
        *(convolutions, shapes, merges, elementwise, normalizations),
        *(recurrent, attentions),
    ):
        fill()
    # One array with an index: a thousand small ones would be three times as large.
    index = {name: [array.dtype.str, *array.shape] for name, array in STORED.items()}
    values = np.concatenate([array.ravel().astype(np.float64) for array in STORED.values()])
    said = {"version": f"Keras {keras.__version__}", "cases": CASES, "index": index}
    path = Path(__file__).parent / "keras_layers.npz"
    np.savez_compressed(path, said=np.array(json.dumps(said)), values=values)
