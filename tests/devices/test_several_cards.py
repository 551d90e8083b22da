"""Replicas on cards of their own: each on its stream, ordered by events (on the stand-in)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import paceline as pl

from .test_steps import DIGITS, IMAGES, RATE, example


def trained(strategy: pl.Strategy, model_dir: Path) -> dict[str, np.ndarray]:
    """The variables after two epochs, the last batch of which is one of two examples."""
    config = pl.RunConfig(model_dir=str(model_dir), train_distribute=strategy, tf_random_seed=1)
    estimator = pl.Estimator(example("digits").model_fn, config=config, params=RATE)
    data = pl.Dataset.from_tensor_slices((IMAGES[:50], DIGITS[:50]))
    estimator.train(lambda: data.batch(8).repeat(2))
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def test_two_cards_learn_what_two_replicas_on_the_host_learn(
    two_gpus: None, tmp_path: Path
) -> None:
    strategy = pl.MirroredStrategy()
    assert strategy.extended.worker_devices == tuple(
        f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)
    )
    cards = trained(strategy, tmp_path / "cards")
    host = trained(pl.MirroredStrategy(["CPU:0", "CPU:1"]), tmp_path / "host")
    assert cards.keys() == host.keys()
    for name, value in host.items():
        np.testing.assert_allclose(cards[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_card_and_the_host_go_on_from_checkpoints_of_each_other(
    a_card: Any, tmp_path: Path
) -> None:
    ways = {"host, card, host": ["CPU:0", "GPU:0", "CPU:0"], "host alone": ["CPU:0"] * 3}
    found = {}
    for way, places in ways.items():
        for place in places:
            found[way] = trained(pl.OneDeviceStrategy(place), tmp_path / way)
    for name, value in found["host alone"].items():
        np.testing.assert_allclose(
            found["host, card, host"][name], value, rtol=1e-3, atol=1e-5, err_msg=name
        )
