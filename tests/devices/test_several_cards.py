"""Replicas on cards of their own: each on its stream, ordered by events (on the stand-in)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl

from . import strict_cupy
from .test_steps import DIGITS, IMAGES, RATE, asked_by_a_step, example, with_an_estimator


@pytest.fixture(params=["by NCCL", "by copies"])
def two_cards(request: pytest.FixtureRequest) -> Iterator[None]:
    with strict_cupy.cards(2, has_nccl=request.param == "by NCCL"):
        yield


def trained(strategy: pl.Strategy, model_dir: Path) -> dict[str, np.ndarray]:
    """The variables after two epochs, the last batch of which is one of two examples."""
    config = pl.RunConfig(model_dir=str(model_dir), train_distribute=strategy, tf_random_seed=1)
    estimator = pl.Estimator(example("digits").model_fn, config=config, params=RATE)
    data = pl.Dataset.from_tensor_slices((IMAGES[:50], DIGITS[:50]))
    estimator.train(lambda: data.batch(8).repeat(2))
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def test_two_cards_learn_what_two_replicas_on_the_host_learn(
    two_cards: None, tmp_path: Path
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


def test_a_step_waits_for_two_cards_as_for_one_when_its_loss_is_read(
    two_cards: None, tmp_path: Path
) -> None:
    waits = {}
    for name, strategy in (
        ("one card", pl.OneDeviceStrategy("GPU:0")),
        ("two cards", pl.MirroredStrategy()),
    ):
        train = with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path / name, strategy)
        waits[name] = asked_by_a_step(train).waits
    assert len(waits["two cards"]) == 2 * len(waits["one card"])  # each reads its replica's loss


def test_a_bucket_is_added_up_while_backward_goes_on(tmp_path: Path) -> None:
    with strict_cupy.cards(2), strict_cupy.counted() as counts:
        strategy = pl.MirroredStrategy()
        strategy.extended.bytes_per_pack = 1
        with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path, strategy)(2)
    places = [i for i, launch in enumerate(counts.launches) if launch.startswith("allReduce")]
    # The first step only finds out how gradients go backward.
    between = counts.launches[places[len(places) // 2] : places[-1]]
    assert any("at_once.py" in launch for launch in between)
