"""Losses and their gradients against Keras and PyTorch, whose answers are stored."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import losses

STORED = dict(np.load(Path(__file__).parents[1] / "peers" / "keras_losses.npz"))

SMOOTHED = {"label_smoothing": 0.1}
BALANCED = {"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.5, **SMOOTHED}
BY_CLASS = {"alpha": [0.1, 0.2, 0.3, 0.2, 0.2], "gamma": 3.0, **SMOOTHED}
IGNORED = int(STORED["sparse/float64/y"][1])

OF_CLASSES = {
    "binary": losses.binary_crossentropy,
    "binary smoothed": partial(losses.binary_crossentropy, label_smoothing=0.2),
    "binary focal": losses.binary_focal_crossentropy,
    "binary focal balanced": partial(losses.binary_focal_crossentropy, **BALANCED),
    "categorical": losses.categorical_crossentropy,
    "categorical soft": partial(losses.categorical_crossentropy, **SMOOTHED),
    "categorical focal": losses.categorical_focal_crossentropy,
    "categorical focal by class": partial(losses.categorical_focal_crossentropy, **BY_CLASS),
    "sparse": losses.sparse_categorical_crossentropy,
    "sparse ignoring": partial(losses.sparse_categorical_crossentropy, ignore_class=IGNORED),
}
CASES = {
    **{
        name: getattr(losses, name)
        for name in (
            "mean_squared_error",
            "mean_absolute_error",
            "mean_absolute_percentage_error",
            "mean_squared_logarithmic_error",
            "huber",
            "log_cosh",
            "poisson",
            "cosine_similarity",
            "kl_divergence",
            "hinge",
            "squared_hinge",
            "categorical_hinge",
            "ctc",
        )
    },
    "huber of 0.5": partial(losses.huber, delta=0.5),
    "cosine_similarity of columns": partial(losses.cosine_similarity, axis=0),
    "hinge of 0 and 1": losses.hinge,
    "squared_hinge of 0 and 1": losses.squared_hinge,
    "dice whole": losses.dice,
    "dice each": partial(losses.dice, axis=1),
    "tversky whole": partial(losses.tversky, alpha=0.3, beta=0.7),
    "tversky each": partial(losses.tversky, alpha=0.3, beta=0.7, axis=(1,)),
    **OF_CLASSES,
    **{f"{name} logits": partial(f, from_logits=True) for name, f in OF_CLASSES.items()},
}


def test_every_stored_case_is_compared():
    assert {key.split("/")[0] for key in STORED} - {"version"} == set(CASES)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_mb_09_losses_and_gradients_are_those_of_peers(name, dtype):
    y, p, expected, gradient = (
        STORED[f"{name}/{dtype}/{key}"] for key in ("y", "p", "losses", "gradient")
    )
    predictions = Tensor(p, requires_grad=True)
    found = CASES[name](y, predictions)
    assert found.dtype == dtype
    # From logits Keras goes over probabilities that it clips, in focal losses.
    close = {"rtol": 1e-6, "atol": 1e-6} if "focal" in name else {"rtol": 1e-9, "atol": 1e-8}
    close = {"rtol": 2e-5, "atol": 2e-6} if dtype == "float32" else close
    np.testing.assert_allclose(found.numpy(), expected, **close)
    slope = np.cos(np.arange(float(found.size))).reshape(found.shape).astype(dtype)
    np.testing.assert_allclose(backward(found, slope)[predictions], gradient, **close)
