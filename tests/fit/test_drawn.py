"""Drawn combinations: two fits, each on a strategy of its own, learn what one process would."""

from random import Random

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Input, Model, layers, optimizers
from paceline.strategies import DEFAULT_STRATEGY, VariableStore

KINDS = ("default", "mirrored", "central", "workers")


def drawn(seed):
    """A combination, as a plain value."""
    random = Random(seed)
    runs = [
        {"kind": random.choice(KINDS), "replicas": random.randint(1, 3), "workers": 2}
        for _ in range(2)
    ]
    return {
        "runs": runs,
        "num_examples": random.randint(7, 30),
        "batch_size": random.randint(6, 10),  # a worker must have an example to begin
        "weighted": random.random() < 0.5,
        "optimizer": random.choice(["sgd", "adam", "adagrad"]),
        "regularizer": random.choice([None, "l2"]),
        "epochs": random.randint(1, 2),
        "steps": random.choice([None, None, 1]),
        "of_dataset": random.random() < 0.5,
    }


def made(scenario):
    a, b = Input((3,), name="a"), Input((2,), name="b")
    hidden = layers.Dense(3, "tanh", kernel_regularizer=scenario["regularizer"], name="h")(a)
    ends = [layers.Dense(1, name="p")(hidden + b[:, :1]), layers.Dense(2, name="q")(hidden)]
    model = Model({"a": a, "b": b}, ends)
    weighted = ["mae"] if scenario["weighted"] else []
    model.compile(
        optimizers.get(scenario["optimizer"]),
        {"p": "mse", "q": "mae"},
        {"q": ["mse"]},
        loss_weights=[1.0, 0.5],
        weighted_metrics={"p": weighted},
    )
    return model


def train(strategy, scenario, weights):
    """One fit from given weights: the weights and logs that it leaves."""
    rng = np.random.default_rng(1)
    n = scenario["num_examples"]
    x = {name: rng.normal(size=(n, k)).astype(np.float32) for name, k in (("a", 3), ("b", 2))}
    y = tuple(rng.normal(size=(n, k)).astype(np.float32) for k in (1, 2))
    w = rng.uniform(0.5, 2, n).astype(np.float32)
    how = {"epochs": scenario["epochs"], "steps_per_epoch": scenario["steps"], "verbose": 0}
    parts = (x, y, w) if scenario["weighted"] else (x, y)
    with VariableStore(seed=2).building():
        with strategy.scope():
            model = made(scenario)
        if weights is not None:
            model.set_weights(weights)
        if scenario["of_dataset"]:
            data = pl.Dataset.from_tensor_slices(parts).batch(scenario["batch_size"])
            history = model.fit(data, **how)
        else:
            weight = {"sample_weight": w} if scenario["weighted"] else {}
            how |= {"batch_size": scenario["batch_size"], "shuffle": False}
            history = model.fit(x, y, **weight, **how)
        found = model.evaluate(x, y, verbose=0, return_dict=True)
        return model.get_weights(), history.history, found


def run(on_workers, scenario, where, weights):
    """The same on each worker of a strategy."""
    devices = [f"CPU:{i}" for i in range(where["replicas"])]
    if where["kind"] == "workers":
        size = where["workers"], where["replicas"]
        return on_workers(*size, lambda strategy, _: train(strategy, scenario, weights))
    strategy = {
        "default": lambda: DEFAULT_STRATEGY,
        "mirrored": lambda: pl.MirroredStrategy(devices),
        "central": lambda: pl.CentralStorageStrategy(devices),
    }[where["kind"]]()
    return [train(strategy, scenario, weights)]


@pytest.mark.parametrize("seed", range(8))
def test_fit_after_fit_learns_what_one_process_would(on_workers, seed):
    scenario, weights = drawn(seed), None
    for where in scenario["runs"]:
        expected = train(DEFAULT_STRATEGY, scenario, weights)
        for found in run(on_workers, scenario, where, weights):
            for part, like in zip(found[0], expected[0], strict=True):
                np.testing.assert_allclose(part, like, rtol=2e-4, atol=1e-5, err_msg=scenario)
            for logs, like in zip(found[1:], expected[1:], strict=True):
                assert logs.keys() == like.keys()
                for name, value in like.items():
                    np.testing.assert_allclose(logs[name], value, rtol=2e-4, err_msg=scenario)
        weights = expected[0]
