"""Fit on scikit-learn's digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import paceline as pl
from paceline.nn import Sequential, callbacks, layers, losses, optimizers


def test_fit_reads_handwritten_digits():
    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    x, labels = x[order], labels[order]
    pl.set_seed(1)
    with pl.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = Sequential(
            [
                layers.Conv2D(32, 3, activation="relu", padding="same"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, "relu"),
                layers.Dropout(0.2),
                layers.Dense(10),
            ]
        )
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    rate = callbacks.LearningRateScheduler(lambda epoch, lr: 3e-3 * 0.75**epoch)
    model.fit(x[:1440], labels[:1440], 32, 10, callbacks=[rate], verbose=0)
    found = model.evaluate(x[1440:], labels[1440:], verbose=0, return_dict=True)
    assert found["accuracy"] >= 0.98
    predicted = model.predict(x[1440:], verbose=0).argmax(axis=1)
    assert np.mean(predicted == labels[1440:]) == pytest.approx(found["accuracy"])
    pl.set_seed(None)
