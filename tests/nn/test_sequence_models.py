"""Models of sequences train under any number of replicas as in one process."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.nn import Sequential, layers, losses, optimizers
from paceline.strategies import MirroredStrategy, VariableStore, get_replica_context

RNG = np.random.default_rng(0)
WORDS = RNG.integers(1, 9, size=(16, 7))
WORDS[np.arange(7) >= RNG.integers(3, 8, size=(16, 1))] = 0
LABELS = (WORDS == 3).any(axis=1).astype(np.int64)
F64 = {"dtype": np.float64}


class Transformer(layers.Layer):
    """One block, as in Keras's examples."""

    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(9, 8, mask_zero=True, **F64)
        self.attention = layers.MultiHeadAttention(2, 4, **F64)
        self.norms = [layers.LayerNormalization(epsilon=1e-6, **F64) for _ in range(2)]
        self.hidden = [layers.Dense(16, "relu", **F64), layers.Dense(8, **F64)]
        self.pool = layers.GlobalAveragePooling1D()
        self.out = layers.Dense(2, **F64)

    def call(self, inputs):
        x = self.embed(inputs)
        x = self.norms[0](layers.Add(name="residual")([x, self.attention(x, x)]))
        y = self.hidden[1](self.hidden[0](x))
        return self.out(self.pool(self.norms[1](y + x), mask=inputs != 0))


def lstm():
    return Sequential(
        [
            layers.Embedding(9, 8, mask_zero=True, **F64),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True, **F64), **F64),
            layers.GRU(5, **F64),
            layers.Dense(2, **F64),
        ]
    )


def trained(make, num_replicas, steps):
    """The loss of each step on the global batch, and the weights at the end."""
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    with VariableStore(seed=5).building(), strategy.scope():
        model, optimizer = make(), optimizers.Adam(0.02)
        each_loss = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        share = len(WORDS) // num_replicas

        def step():
            index = get_replica_context().local_index
            own = slice(index * share, (index + 1) * share)
            loss = np.mean(each_loss(LABELS[own], model(WORDS[own], training=True)))
            optimizer.minimize(loss)()
            return loss

        found = []
        for _ in range(steps):
            found.append(float(strategy.reduce("MEAN", strategy.run(step), axis=None)))
        return found, model.get_weights()


@pytest.mark.parametrize("make", [lstm, Transformer])
def test_a_model_of_sequences_learns_alike_on_one_and_two_replicas(make):
    alone, weights = trained(make, 1, 25)
    together, others = trained(make, 2, 25)
    assert alone[-1] < 0.6 * alone[0]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-9)
