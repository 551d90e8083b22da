"""A model that is saved in the midst of its training goes on under any strategy (CK-13, ST-08)."""

import signal
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.nn import (
    Input,
    Sequential,
    callbacks,
    layers,
    load_model,
    mixed_precision,
    optimizers,
)
from paceline.strategies import DEFAULT_STRATEGY, VariableStore
from paceline.training import Preempted

X = np.random.default_rng(0).normal(size=(18, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture
def strategies(server_job):
    """By name, what makes a strategy."""
    return {
        "default": lambda: DEFAULT_STRATEGY,
        "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
        "parameter servers": lambda: server_job(2, 1, max_staleness=0).strategy(),
    }


def model_of():
    model = Sequential([Input((3,)), layers.Dense(4, "tanh"), layers.Dense(1)])
    model.compile(optimizers.Adam(0.05), "mse", ["mae"])
    return model


def fit(model, begin, end, *told):
    """Some epochs, each with a learning rate of its own."""
    rate = callbacks.LearningRateScheduler(lambda epoch: 0.05 / (epoch + 1))
    return model.fit(
        X,
        Y,
        batch_size=4,
        epochs=end,
        initial_epoch=begin,
        shuffle=False,
        verbose=0,
        callbacks=[rate, *told],
    ).history


@pytest.fixture(scope="module")
def uninterrupted():
    """The weights after four epochs, and the logs of the last two."""
    pl.set_seed(1)
    model = model_of()
    fit(model, 0, 2)
    return fit(model, 2, 4), model.get_weights()


@pytest.mark.parametrize("after", ["default", "two replicas", "parameter servers"])
@pytest.mark.parametrize("before", ["default", "two replicas", "parameter servers"])
def test_ck_13_any_strategy_goes_on_with_what_any_other_has_saved(
    tmp_path, uninterrupted, strategies, before, after
):
    pl.set_seed(1)
    with strategies[before]().scope():
        model = model_of()
    fit(model, 0, 2, callbacks.ModelCheckpoint(tmp_path / "epoch {epoch}"))
    with strategies[after]().scope():
        again = load_model(tmp_path / "epoch 2")
    logs = fit(again, 2, 4)
    expected_logs, expected = uninterrupted
    assert logs.keys() == expected_logs.keys()
    for name, values in logs.items():
        np.testing.assert_allclose(values, expected_logs[name], rtol=1e-4)
    for ours, theirs in zip(again.get_weights(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


class Fails(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def test_a_run_with_parameter_servers_that_was_interrupted_goes_on(
    tmp_path, uninterrupted, strategies
):
    def run(*told):
        pl.set_seed(1)
        with strategies["parameter servers"]().scope():
            model = model_of()
            fit(model, 0, 4, callbacks.BackupAndRestore(tmp_path / "b"), *told)
            return model.get_weights()

    with pytest.raises(KeyboardInterrupt):
        run(Fails())
    for ours, theirs in zip(run(), uninterrupted[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_of_trainers_that_are_not_in_step_the_chief_writes(tmp_path, server_job):
    job, errors = server_job(1, 2), []
    strategies = [job.strategy(rank) for rank in range(2)]

    def work(rank):
        try:
            with VariableStore(seed=1).building(), strategies[rank].scope():
                model = model_of()
                fit(model, 0, 2, callbacks.ModelCheckpoint(tmp_path / f"{rank}"))
                model.save(tmp_path / f"last {rank}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"0", "last 0"}
    assert load_model(tmp_path / "last 0").count_params() == 21


def test_a_run_that_is_asked_to_end_saves_before_it_does_and_makes_no_batch_again(
    tmp_path, uninterrupted
):
    made = []

    def run(at=None):
        def ask(batch, logs):
            made.append(batch)
            if len(made) == at:
                signal.raise_signal(signal.SIGTERM)

        pl.set_seed(1)
        model = model_of()
        backup = callbacks.BackupAndRestore(tmp_path / "b", save_before_preemption=True)
        fit(model, 0, 4, backup, callbacks.LambdaCallback(on_batch_end=ask))
        return model.get_weights()

    with pytest.raises(Preempted):
        run(at=8)
    for ours, theirs in zip(run(), uninterrupted[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(made) == 20


def test_a_model_of_mixed_precision_goes_on_with_its_policy_and_the_scale_of_its_loss(tmp_path):
    pl.set_seed(1)
    mixed_precision.set_global_policy("mixed_float16")
    try:
        model = model_of()
        scaled = mixed_precision.LossScaleOptimizer(optimizers.Adam(0.05), dynamic_growth_steps=4)
        model.compile(scaled, "mse")
    finally:
        mixed_precision.set_global_policy("float32")
    fit(model, 0, 2)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.layers[0].compute_dtype == np.float16
    for one in (model, again):
        fit(one, 2, 4)
    assert again.optimizer.loss_scale == model.optimizer.loss_scale != 2.0**15
    for ours, theirs in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_is_restored_is_the_models_own_also_behind_set_seed(tmp_path):
    """Names begin anew there: another model may have the same."""
    pl.set_seed(1)
    model = model_of()
    fit(model, 0, 2)
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")  # its optimizer has no slots so far

    weights = []
    for _ in range(2):
        pl.set_seed(1)
        another = model_of()
        fit(another, 0, 2)
        weights.append(another.get_weights())
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)

    pl.set_seed(1)
    fit(model, 2, 4)
    fit(loaded, 2, 4)
    for right, found in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(right, found)
