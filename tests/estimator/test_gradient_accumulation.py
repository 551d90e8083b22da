"""`RunConfig(gradient_accumulation_steps=N)`: N batches are one that is N times as large."""

from contextlib import nullcontext

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.estimator import SessionRunHook
from paceline.inputs import nest
from paceline.nn import layers, optimizers

from ..hooks import Losses
from .places import ONE, PLACES, dataset_of

NUM_ROWS, EVERY = 6, 3
ANYWHERE = {"one": ONE, **PLACES}


def model_fn(features, labels, mode):
    """With rows of a table, a variable that some batches do not reach, and Adam."""
    table = layers.Embedding(NUM_ROWS, 3, name="table", dtype="float64")(features["row"])
    hidden = layers.Dense(3, name="dense", dtype="float64")(features["x"])
    rare = pl.get_variable("rare", (3,), np.float64, initializer=0.5)
    is_rare = features["row"] > 3
    if is_rare.any():
        hidden = hidden + rare * is_rare[:, None]
    loss = np.mean(np.square(np.sum(table + hidden, axis=1) - labels))
    train_op = optimizers.Adam(0.05).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


def batch_of(rng, size):
    features = {
        "x": rng.normal(size=(size, 2)),
        "row": rng.integers(0, NUM_ROWS, size=size),
    }
    return features, rng.normal(size=size)


def dealt(place, num_left):
    """For each worker its batches, of any sizes: two whole steps, and some that are left."""
    rng = np.random.default_rng(4)
    whole = 2 * EVERY * place.num_replicas
    return [
        [batch_of(rng, rng.integers(1, 4)) for _ in range(whole + num_left + index)]
        for index in range(place.num_workers)
    ]


def together(place, batches_of_workers):
    """What all replicas together have for each step."""
    n = place.num_replicas * EVERY
    num_steps = max(-(-len(batches) // n) for batches in batches_of_workers)
    steps = [
        [batch for own in batches_of_workers for batch in own[step * n : (step + 1) * n]]
        for step in range(num_steps)
    ]
    return [nest.map_structure(lambda *parts: np.concatenate(parts), *step) for step in steps]


class KilledError(RuntimeError):
    """As by a kill, at the same step on all workers."""


class Kills(SessionRunHook):
    def __init__(self, step):
        self._step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self._step:
            raise KilledError


def trained(strategy, directory, batches, every, killed_at=None):
    """The losses of the steps."""
    config = pl.RunConfig(
        directory,
        tf_random_seed=1,
        train_distribute=strategy,
        gradient_accumulation_steps=every,
        save_checkpoints_steps=1,
        save_summary_steps=None,
    )
    losses = Losses()
    estimator = pl.Estimator(model_fn, config=config)
    estimator.train_and_report(lambda: dataset_of(batches), hooks=[losses, Kills(killed_at)])
    return losses.values


def saved(directory):
    return checkpoint.load(checkpoint.latest_checkpoint(directory)).arrays()


def require_equal(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("num_left", [0, 4])
@pytest.mark.parametrize("place", ANYWHERE)
def test_n_batches_are_one_of_all_their_examples(place, num_left, on_workers, server_job, tmp_path):
    place = ANYWHERE[place]
    batches = dealt(place, num_left)

    def work(strategy, index):
        return trained(strategy, tmp_path / "job", batches[index], EVERY)

    found = place.run(on_workers, server_job, work, tmp_path / "job")
    losses = trained(None, tmp_path / "one", together(place, batches), 1)
    for of_worker in found:
        np.testing.assert_allclose(of_worker, losses, rtol=1e-9)
    require_equal(saved(tmp_path / "job"), saved(tmp_path / "one"))
    assert saved(tmp_path / "job")["global_step"] == len(losses)


@pytest.mark.parametrize("place", ["one", "mirrored x 2", "2 workers"])
def test_a_run_goes_on_with_the_batch_after_those_of_its_last_step(
    place, on_workers, server_job, tmp_path
):
    place = ANYWHERE[place]
    batches = dealt(place, 1)
    runs = [("at once", None), ("in parts", 1), ("in parts", 2), ("in parts", None)]
    for directory, killed_at in runs:
        with pytest.raises(KilledError) if killed_at else nullcontext():
            place.run(
                on_workers,
                server_job,
                lambda s, i, d=directory, k=killed_at: trained(
                    s, tmp_path / d, batches[i], EVERY, k
                ),
                tmp_path / directory,
            )
    require_equal(saved(tmp_path / "in parts"), saved(tmp_path / "at once"))


def test_a_number_of_batches_below_one_is_refused():
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        pl.RunConfig(gradient_accumulation_steps=0)
