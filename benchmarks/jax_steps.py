"""The same training steps in JAX, jitted, buffers donated, as an experienced user writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import handwritten
import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from workloads import LEARNING_RATE, WORKLOADS, Data, Loop, loop_of

Params: TypeAlias = dict[str, jax.Array]
Logits: TypeAlias = Callable[[Params, jax.Array], jax.Array]
Step: TypeAlias = Callable[[np.ndarray, np.ndarray], float]


def make_loop(name: str, data: Data) -> Loop:
    """The loop of a workload; see workloads.py."""
    workload = WORKLOADS[name]
    if workload.sizes:
        return loop_of(make_step(mlp, handwritten.mlp_params(workload.sizes)), data)
    return loop_of(make_step(cnn, handwritten.cnn_params()), data)


def cnn(params: Params, x: jax.Array) -> jax.Array:
    """Logits of the tutorial's CNN.

    The pool is a maximum over axes of a reshaped array: of `reduce_window` the gradient is several
    times slower on a processor.
    """
    dimensions = ("NHWC", "HWIO", "NHWC")
    z = lax.conv_general_dilated(x, params["conv/w"], (1, 1), "VALID", dimension_numbers=dimensions)
    n, rows, columns, filters = z.shape
    pools = jax.nn.relu(z + params["conv/b"]).reshape(n, rows // 2, 2, columns // 2, 2, filters)
    return mlp(params, pools.max(axis=(2, 4)).reshape(n, -1))


def mlp(params: Params, x: jax.Array) -> jax.Array:
    """Logits of the dense layers, with relu between them."""
    last = sum(name.startswith("dense") for name in params) // 2 - 1
    for i in range(last):
        x = jax.nn.relu(x @ params[f"dense_{i}/w"] + params[f"dense_{i}/b"])
    return x @ params[f"dense_{last}/w"] + params[f"dense_{last}/b"]


def make_step(
    logits: Logits, params: Mapping[str, np.ndarray], learning_rate: float = LEARNING_RATE
) -> Step:
    """`step(x, y)` trains on float32 examples and labels (batch,), and returns the loss."""

    def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(logits(params, x))
        return -jnp.take_along_axis(log_p, y[:, None], axis=1).mean()

    def update(params: Params, x: jax.Array, y: jax.Array) -> tuple[Params, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - learning_rate * g, params, gradients), value

    update_in_place = jax.jit(update, donate_argnums=0)
    state = {name: jnp.array(value) for name, value in params.items()}

    def step(x: np.ndarray, y: np.ndarray) -> float:
        nonlocal state
        state, value = update_in_place(state, x, y.astype(np.int32))
        return float(value)

    return step
