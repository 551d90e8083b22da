"""Gradients of gradients where they meet strategies, layers and optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline import nn
from paceline.nn import layers, optimizers

ROWS = 4


def critic() -> Any:
    return nn.Sequential(
        [
            layers.Conv2D(3, 3, activation="relu", input_shape=(6, 6, 1)),
            layers.MaxPooling2D(),
            layers.LayerNormalization(),
            layers.Flatten(),
            layers.Dense(4, activation="tanh"),
            layers.Dense(1),
        ]
    )


def train(strategy: Any, num_replicas: int) -> list[np.ndarray]:
    """Two steps of a critic with a gradient penalty, on the same global batches for all."""
    rng = np.random.default_rng(0)
    with strategy.scope():
        model, optimizer = critic(), optimizers.Adam(0.01)
        model.build((None, 6, 6, 1))
        for variable in model.trainable_variables:
            variable.assign(0.3 * rng.normal(size=variable.shape).astype(np.float32))

    def step(images: Any) -> None:
        images = pl.Tensor(images)
        with pl.GradientTape() as outer:
            with pl.GradientTape() as tape:
                tape.watch(images)
                scores = model(images, training=True)
            slopes = tape.gradient(scores, images)
            norms = np.linalg.norm(slopes.reshape(len(images), -1), axis=1)
            loss = np.sum((norms - 1) ** 2) / ROWS + np.sum(scores) / ROWS
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(outer.gradient(loss, variables), variables, strict=True))

    for _ in range(2):
        parts = np.split(rng.normal(size=(ROWS, 6, 6, 1)).astype(np.float32), num_replicas)
        batch = strategy.experimental_distribute_values_from_function(
            lambda context, parts=parts: parts[context.replica_id_in_sync_group]
        )
        strategy.run(step, (batch,))
    return [variable.numpy() for variable in model.trainable_variables]


def test_a_gradient_penalty_on_two_replicas_is_that_on_one() -> None:
    alone = train(pl.OneDeviceStrategy("CPU:0"), 1)
    together = train(pl.MirroredStrategy(["CPU:0", "CPU:1"]), 2)
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def test_gradients_that_have_a_gradient_are_applied_like_others() -> None:
    variable, optimizer = pl.Variable(np.ones(3, np.float32)), optimizers.SGD(0.1, clipvalue=2.0)
    with pl.GradientTape():
        with pl.GradientTape() as tape:
            loss = np.sum(variable**3)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
    np.testing.assert_allclose(variable.numpy(), 0.8)


def test_clipping_by_a_norm_does_not_lose_a_gradient_of_the_norm_unsaid() -> None:
    variable = pl.Variable(np.ones(3, np.float32))
    with pl.GradientTape():
        with pl.GradientTape() as tape:
            loss = np.sum(variable**3)
        slope = tape.gradient(loss, variable)
        with pytest.raises(TypeError, match=r"cut it silently out of the gradient graph.*\.numpy"):
            optimizers.clip_by_global_norm([slope], 1.0)


def test_a_sum_over_replicas_has_no_gradient_of_a_gradient_and_says_so() -> None:
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step() -> None:
        x = pl.Tensor(np.ones(2), requires_grad=True)
        with pl.GradientTape():
            with pl.GradientTape() as tape:
                y = pl.get_replica_context().all_reduce("SUM", x * x)
            tape.gradient(y, x)

    with pytest.raises(RuntimeError, match=r"second-order gradient of \w+ is not supported"):
        strategy.run(step)
