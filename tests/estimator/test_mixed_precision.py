"""MB-19 under every strategy: a step that overflows is skipped by all, and the scale is saved."""

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.nn import layers, mixed_precision, optimizers

from ..hooks import Losses
from .places import ONE, PLACES, dataset_of

OVERFLOWING = 3
START = 2.0**15


@pytest.fixture(autouse=True)
def mixed_float16():
    mixed_precision.set_global_policy("mixed_float16")
    yield
    mixed_precision.set_global_policy("float32")


def model_fn(features, labels, mode):
    hidden = layers.Dense(4, activation="tanh", name="hidden")(features)
    outputs = layers.Dense(1, name="outputs", dtype="float32")(hidden)
    loss = np.mean(np.square(outputs[:, 0] - labels))
    train_op = optimizers.Adam(0.05).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


def batches_of(place, num_steps=6):
    """For each worker its batches; in one step one example of one replica makes gradients huge."""
    rng = np.random.default_rng(0)
    dealt = [
        [
            tuple(0.3 * rng.normal(size=n).astype(np.float32) for n in ((4, 3), 4))
            for _ in range(num_steps * place.num_replicas)
        ]
        for _ in range(place.num_workers)
    ]
    _, labels = dealt[-1][OVERFLOWING * place.num_replicas + place.num_replicas - 1]
    labels[-1] = 3000.0
    return dealt


def trained(strategy, directory, batches, **settings):
    config = pl.RunConfig(
        directory, tf_random_seed=1, train_distribute=strategy, save_summary_steps=None, **settings
    )
    losses = Losses()
    estimator = pl.Estimator(model_fn, config=config)
    estimator.train_and_report(lambda: dataset_of(batches), hooks=[losses])
    return losses.values


def saved(directory):
    return checkpoint.load(checkpoint.latest_checkpoint(directory)).arrays()


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("place", {"one": ONE, **PLACES})
def test_mb_19_all_skip_the_step_whose_gradients_overflow(
    place, every, on_workers, server_job, tmp_path
):
    place = {"one": ONE, **PLACES}[place]
    dealt = batches_of(place)

    def work(strategy, index):
        settings = {"gradient_accumulation_steps": every}
        return trained(strategy, tmp_path / "job", dealt[index], **settings)

    place.run(on_workers, server_job, work, tmp_path / "job")
    found = saved(tmp_path / "job")
    num_steps = 6 // every
    assert found["global_step"] == num_steps
    assert found["adam/iterations"] == num_steps - 1
    assert found["adam/loss_scale"] == START / 2
    assert found["adam/good_steps"] == num_steps - 1 - OVERFLOWING // every
    assert found["hidden/kernel"].dtype == np.float32
    # Without the batches of that step, as one process.
    batches = place.global_batches(dealt)
    first = OVERFLOWING // every * every
    del batches[first : first + every]
    trained(None, tmp_path / "one", batches, gradient_accumulation_steps=every)
    for name, value in saved(tmp_path / "one").items():
        if name not in ("global_step", "adam/loss_scale", "adam/good_steps"):
            np.testing.assert_allclose(found[name], value, rtol=0.05, atol=0.01, err_msg=name)


def test_several_workers_at_servers_are_told_what_to_do_instead(server_job):
    strategy = server_job(1, 2, 0).strategy()
    with strategy.scope():
        w = pl.Variable(np.ones(2, np.float32), name="w")
    with pytest.raises(ValueError, match=r"LossScaleOptimizer\(…, dynamic=False"):
        strategy.run(lambda: optimizers.SGD().minimize(np.sum(w * 1.0), var_list=[w]))
