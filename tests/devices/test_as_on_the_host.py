"""What a program on cards gives is what it gives on the host (on the stand-in)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import Tensor
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import VariableStore

from ..golden import test_golden_numbers as golden
from .strict_cupy import to_device

PLACES = {"one card": ["GPU:0"], "two cards": ["GPU:0", "GPU:1"]}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(14, 3)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5]] + 1).astype(np.float32)


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest, two_gpus: None) -> list[str]:
    return PLACES[request.param]


@pytest.mark.parametrize(
    "test",
    [
        golden.test_g03_fit_has_the_ratios_that_the_guide_prints,
        golden.test_g04_fit_on_arrays_learns_what_it_learns_from_the_dataset,
        golden.test_g05_custom_loop_prints_the_guides_thirty_losses,
        golden.test_g09_sum_of_replica_ids,
    ],
    ids=lambda test: test.__name__[5:8],
)
def test_the_guides_numbers_come_from_cards_too(test: Any, places: list[str]) -> None:
    test(pl.MirroredStrategy(places))


def test_the_guides_losses_of_an_estimator_come_from_cards_too(
    places: list[str], tmp_path: Any
) -> None:
    hook = golden.Losses()
    strategy = pl.MirroredStrategy(places)
    config = pl.RunConfig(model_dir=tmp_path, train_distribute=strategy, eval_distribute=strategy)
    regressor = golden.LinearRegressor(
        [golden.numeric_column("feats")], optimizer="SGD", config=config
    )
    regressor.train(golden.feats_input_fn, hooks=[hook], steps=10)
    assert (hook.values[0], hook.values[-1]) == (np.float32(1.0), np.float32(2.877698e-13))
    found = regressor.evaluate(golden.feats_input_fn, steps=10)
    assert found["loss"] == np.float32(1.4210855e-14)


def network() -> Sequential:
    hidden = layers.Dense(4, "tanh", kernel_initializer="orthogonal")
    return Sequential([hidden, layers.Dense(1)])


MAKERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: optimizers.SGD(0.1),
    "of several steps": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "clipped": lambda: optimizers.Adam(0.1, global_clipnorm=0.1),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.1)),
    "averaged": lambda: optimizers.Adam(0.1, use_ema=True, ema_momentum=0.7),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_fit_evaluate_and_predict_give_what_the_host_gives(maker: str, places: list[str]) -> None:
    """The last batch is of two examples, of which a second replica has one or none."""

    def found(strategy: pl.Strategy, weights: Any) -> Any:
        with VariableStore(seed=1).building():
            with strategy.scope():
                model = network()
                model.compile(MAKERS[maker](), "mse", weighted_metrics=["mse", "mae"])
            logs = model.fit(X, Y, 4, epochs=3, shuffle=False, verbose=0, sample_weight=weights)
            called = model(X[:2], training=False).numpy()
            with strategy.scope():
                predicted = model.predict(X, 5, verbose=0)
            return (
                *logs.history.values(),
                model.evaluate(X[:13], Y[:13], 4, verbose=0),
                model.predict(X, 4, verbose=0),
                predicted,
                called,
            )

    weights = np.linspace(0.5, 2, len(X), dtype=np.float32)
    pairs = zip(
        found(pl.MirroredStrategy(places), weights),
        found(pl.get_strategy(), weights),
        strict=True,
    )
    for on_cards, on_host in pairs:
        np.testing.assert_allclose(on_cards, on_host, rtol=1e-4, atol=1e-6)


def test_a_variable_whose_first_value_has_fortrans_order_is_trained(places: list[str]) -> None:
    """CuPy keeps that order, and one line of such an array is a copy, changed for nothing."""
    first = np.asfortranarray(X[:4])
    with pl.MirroredStrategy(places).scope() as strategy:
        variable = pl.Variable(first)
        optimizer = optimizers.SGD(1.0, gradient_accumulation_steps=2)

    def step() -> None:
        optimizer.minimize(np.sum(variable * 0.5), var_list=[variable])()

    for _ in range(2):
        strategy.run(step)
    for copy in variable.local_values():
        np.testing.assert_allclose(copy, first - 0.5, rtol=1e-6)
    variable.assign(first)
    strategy.run(step)
    strategy.run(step)
    np.testing.assert_allclose(variable.numpy(), first - 0.5, rtol=1e-6)


def test_code_outside_replicas_sees_what_cards_keep_on_the_host(places: list[str]) -> None:
    """Expressions with NumPy's arrays, rows, gradients and assignments."""
    with pl.MirroredStrategy(places[::-1]).scope():
        weights, table = pl.Variable(np.array([1.0, 2.0])), pl.Variable(np.eye(3))
    assert type((weights * np.array([2.0, 2.0])).data) is np.ndarray
    with pl.GradientTape() as tape:
        loss = np.sum(weights * np.array([3.0, 4.0])) + np.sum(np.take(table, [1, 1], axis=0))
    slopes = tape.gradient(loss, [weights, table])
    assert loss.item() == 13
    weights.assign_sub(slopes[0] * np.array([1.0, 0.5]))
    np.testing.assert_array_equal(weights.numpy(), [-2, 0])
    np.testing.assert_array_equal(slopes[1].to_dense()[:, 0], [0, 2, 0])
    for variable in (weights, table):
        assert all(type(copy) is type(to_device(0)) for copy in variable.local_values())


ON_HOST = Tensor(np.array([0.0, 2.0, 1.0]))
WITH_A_TENSOR: dict[str, Callable[[Any, Tensor], Any]] = {
    "before": lambda x, c: c * x,
    "behind": lambda x, c: np.maximum(x, c),
    "alone": lambda x, c: np.exp(c) + x,
    "one element": lambda x, c: x / c[1],
    "joined": lambda x, c: np.concatenate([x, c]),
    "as a condition": lambda x, c: np.where(c > 0, x, c),
    "as positions": lambda x, c: x[c.astype(int)] + np.take(x, c.astype(int)),
    "rows of it": lambda x, c: c[x.astype(int)] + np.take(c, x.astype(int), axis=0),
}


@pytest.mark.parametrize("is_given", [False, True], ids=["found", "given to run"])
@pytest.mark.parametrize("compute", WITH_A_TENSOR.values(), ids=WITH_A_TENSOR)
def test_a_tensor_made_outside_replicas_is_an_operand_on_any_card(
    compute: Any, is_given: bool, places: list[str]
) -> None:
    with pl.MirroredStrategy(places).scope() as strategy:
        x = pl.Variable(np.array([1.0, 0.0, 2.0]))
    parts = strategy.run(lambda *given: compute(x, *(given or [ON_HOST])), (ON_HOST,) * is_given)
    for found in strategy.experimental_local_results(parts):
        np.testing.assert_array_equal(found.numpy(), compute(x, ON_HOST).numpy())


def test_gradients_flow_from_cards_to_a_tensor_of_the_host(places: list[str]) -> None:
    """Second ones as well."""
    strategy, x = pl.MirroredStrategy(places), Tensor(np.array([1.0, 2.0]), requires_grad=True)

    def step() -> Any:
        with pl.GradientTape() as outer:
            outer.watch(x)
            with pl.GradientTape() as tape:
                tape.watch(x)
                y = np.sum(x**3 * np.array([1.0, 10.0]))
            slope = tape.gradient(y, x)
        return slope, outer.gradient(slope, x)

    for parts, expected in zip(strategy.run(step), ([3, 120], [6, 120]), strict=True):
        for found in strategy.experimental_local_results(parts):
            np.testing.assert_allclose(found.numpy(), expected)


def test_what_the_host_keeps_is_read_whole_and_by_rows_on_cards(places: list[str]) -> None:
    """Both gradients come back to it and are added up there, by a tape and by an optimizer."""

    def found(devices: list[str]) -> list[Any]:
        strategy = pl.CentralStorageStrategy(devices, parameter_device="CPU:0")
        with strategy.scope():
            table, optimizer = pl.Variable(np.eye(3)), optimizers.SGD(0.25)

        def loss() -> Any:
            rows = np.take(table, [[0, 2], [2, 2]], axis=0)
            return np.sum(rows * rows) + np.sum(table * np.arange(3.0))

        def step() -> Any:
            with pl.GradientTape() as tape:
                value = loss()
            slope = tape.gradient(value, table)
            optimizer.minimize(loss(), var_list=[table])()
            return np.sum(slope * table.numpy())

        sums = strategy.reduce("MEAN", strategy.run(step))
        return [sums, table.numpy()]

    on_host = found(["CPU:0", "CPU:1"][: len(places)])
    for one, other in zip(found(places), on_host, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
