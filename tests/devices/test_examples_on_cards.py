"""The examples learn on cards what they learn on the host (on the stand-in), in few steps."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl

from ..hooks import Losses
from .test_steps import CLICKS, DIGITS, IMAGES, RATE, WORDS, example

HOST, CARDS = ["CPU:0", "CPU:1"], ["GPU:0", "GPU:1"]
NUM_STEPS = 4


@pytest.mark.parametrize(
    ("name", "params", "data"),
    [
        ("digits", RATE, (IMAGES, DIGITS)),
        ("residual", {**RATE, "depth": 2}, (IMAGES, DIGITS)),
        ("word_embeddings", None, WORDS),
        ("recommender", {**RATE, "rows": 100}, (CLICKS, DIGITS.astype(np.float32))),
    ],
)
def test_losses_of_an_estimator_are_those_of_the_host(
    name: str, params: Any, data: Any, two_gpus: None, tmp_path: Path
) -> None:
    """The last batch is of 12 examples for two replicas, and each loss is right to 1e-4 of it."""

    def losses(devices: list[str]) -> list[float]:
        strategy = pl.MirroredStrategy(devices)
        config = pl.RunConfig(train_distribute=strategy, tf_random_seed=1)
        estimator = pl.Estimator(example(name).model_fn, tmp_path / devices[0], config, params)
        hook = Losses()
        batches = pl.Dataset.from_tensor_slices(data).take(NUM_STEPS * 16 - 4).batch(8)
        estimator.train(lambda: batches, hooks=[hook])
        return hook.values

    on_host = losses(HOST)
    assert len(on_host) == NUM_STEPS
    np.testing.assert_allclose(losses(CARDS), on_host, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "numbers", "options"),
    [
        ("custom_loop", {}, ["--epochs", "2"]),
        ("gan", {}, ["--rounds", "3"]),
        ("linear_regression", {"NUM_STEPS": 5}, []),
    ],
)
def test_what_a_script_prints_is_what_it_prints_on_the_host(
    name: str, numbers: Any, options: list[str], two_gpus: None, monkeypatch: Any, capsys: Any
) -> None:
    def printed(devices: list[str]) -> list[float]:
        script = example(name)
        for attribute, value in numbers.items():
            setattr(script, attribute, value)
        if hasattr(script, "load"):
            script.load = lambda split: pl.Dataset.from_tensor_slices((IMAGES, DIGITS))
        monkeypatch.setattr(sys, "argv", [name, *options, "--devices", *devices])
        script.main()
        return [float(text) for text in re.findall(r"-?\d+\.\d+|\d+", capsys.readouterr().out)]

    on_host = printed(HOST)
    assert len(on_host) > 1
    np.testing.assert_allclose(printed(CARDS), on_host, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("index", range(4))
def test_premade_models_lose_train_evaluate_and_predict_as_on_the_host(
    index: int, two_gpus: None, tmp_path: Path
) -> None:
    """Those of examples/wine.py: linear, of buckets and crosses, deep, and both."""
    module = example("wine")
    x = np.random.default_rng(0).normal(size=(60, 13)).astype(np.float32)
    data = module.features(x), np.array(module.CULTIVARS)[DIGITS[:60] % 3]

    def found(devices: list[str]) -> Any:
        strategy = pl.MirroredStrategy(devices)
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy, tf_random_seed=1)
        estimator = list(module.models(str(tmp_path / devices[0]), x, config))[index]
        hook, batches = Losses(), pl.Dataset.from_tensor_slices(data).batch(8)
        estimator.train(lambda: batches, hooks=[hook])
        predicted = [p["probabilities"] for p in estimator.predict(lambda: batches)]
        return hook.values, list(estimator.evaluate(lambda: batches).values()), predicted

    for on_cards, on_host in zip(found(CARDS), found(HOST), strict=True):
        np.testing.assert_allclose(on_cards, on_host, rtol=1e-4, atol=1e-6)
