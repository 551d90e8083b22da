"""Faults in steps in which `model_fn` is not called: told, and gone on from, as in any other."""

import signal

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import latest_checkpoint, load
from paceline.estimator import NanLossDuringTrainingError, Preempted, SessionRunHook
from paceline.nn import layers, losses, optimizers
from paceline.strategies import MirroredStrategy

from . import replays

STEPS, FAULT = 9, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(STEPS * 4, 5)).astype(np.float32)
LABELS = RNG.integers(0, 3, len(X))
STRATEGIES = {1: lambda: None, 2: lambda: MirroredStrategy(["CPU:0", "CPU:1"])}


class LostError(Exception):
    """Of a hook."""


class Fault(SessionRunHook):
    """Calls something behind a step."""

    def __init__(self, fault):
        self._fault, self._num_steps = fault, 0

    def after_run(self, run_context, run_values):
        self._num_steps += 1
        if self._num_steps == FAULT:
            self._fault()


def lose():
    raise LostError


def model(calls):
    def model_fn(features, labels, mode):
        calls.append(mode)
        h = layers.Dropout(0.3)(layers.Dense(4, "tanh")(features), training=mode == "train")
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, layers.Dense(3)(h))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.1).minimize(loss))

    return model_fn


def train(model_dir, is_replayed, num_replicas, hooks=(), x=X):
    """Train to the last step; the newest checkpoint."""
    calls = []
    config = replays.config(is_replayed, STRATEGIES[num_replicas](), save_checkpoints_steps=2)
    estimator = pl.Estimator(model(calls), str(model_dir), config)
    data = pl.Dataset.from_tensor_slices((x, LABELS)).batch(4 // num_replicas)
    try:
        estimator.train(lambda: data, hooks, max_steps=STEPS)
    finally:
        assert not is_replayed or len(calls) <= 3 * num_replicas < FAULT * num_replicas
    return load(latest_checkpoint(model_dir))


FAULTS = {
    "a hook fails": (lose, LostError),
    "Ctrl-C": (lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt),
    "SIGTERM": (lambda: signal.raise_signal(signal.SIGTERM), Preempted),
}


@pytest.mark.parametrize("num_replicas", STRATEGIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_ends_with_a_fault_goes_on_to_the_same_weights(tmp_path, fault, num_replicas):
    expected = train(tmp_path / "undisturbed", True, num_replicas).arrays()
    cause, error = FAULTS[fault]
    found = {}
    for is_replayed in (True, False):
        model_dir = tmp_path / str(is_replayed)
        with pytest.raises(error) as raised:
            train(model_dir, is_replayed, num_replicas, [Fault(cause)])
        found[is_replayed] = str(raised.value), load(latest_checkpoint(model_dir)).step
    assert found[True] == found[False]
    resumed = train(tmp_path / "True", True, num_replicas)
    replays.assert_same(([], resumed.arrays()), ([], expected))


@pytest.mark.parametrize("num_replicas", STRATEGIES)
def test_a_loss_that_is_no_number_is_told_and_not_saved(tmp_path, num_replicas):
    x = X.copy()
    x[4 * (FAULT - 1)] = np.nan
    found = {}
    for is_replayed in (True, False):
        model_dir = tmp_path / str(is_replayed)
        with pytest.raises(NanLossDuringTrainingError) as raised:
            train(model_dir, is_replayed, num_replicas, x=x)
        found[is_replayed] = str(raised.value), load(latest_checkpoint(model_dir)).step
    assert found[True] == found[False]
    assert found[True][1] == 4
