"""CK-02: what is saved under one strategy goes on under any other, as if nothing had happened."""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.estimator.saving import CheckpointShards
from paceline.nn import layers, optimizers
from paceline.strategies import VariableAggregation, VariableStore, VariableSynchronization

from ..hooks import Losses

GLOBAL_BATCH = 12
STEPS = 4
TWO = ["CPU:0", "CPU:1"]


@dataclass(frozen=True)
class Kind:
    """One way of running a job in this process.

    Args:
        run: `run(on_workers, server_job, work, model_dir)` calls `work(strategy, index)` on each
            worker.
        num_replicas: In all.
    """

    run: object
    num_replicas: int


def alone(make):
    def run(on_workers, server_job, work, model_dir):
        with VariableStore().building():
            work(make(), 0)

    return run


def together(num_workers, num_replicas):
    return lambda on_workers, server_job, work, model_dir: on_workers(
        num_workers, num_replicas, work
    )


def on_servers(num_servers, num_replicas):
    def run(on_workers, server_job, work, model_dir):
        storage = CheckpointShards(1 + num_servers, model_dir)
        job = server_job(num_servers, 1, storage=storage)
        with VariableStore().building():
            work(job.strategy(num_replicas=num_replicas), 0)

    return run


KINDS = {
    "default": Kind(alone(lambda: None), 1),
    "one device": Kind(alone(partial(pl.OneDeviceStrategy, "CPU:0")), 1),
    "mirrored x 2": Kind(alone(partial(pl.MirroredStrategy, TWO)), 2),
    "central storage x 2": Kind(alone(partial(pl.CentralStorageStrategy, TWO)), 2),
    "2 workers": Kind(together(2, 1), 2),
    "2 workers x 2": Kind(together(2, 2), 4),
    "2 servers": Kind(on_servers(2, 1), 1),
    "2 servers, 2 replicas": Kind(on_servers(2, 2), 2),
}
X = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
Y = np.square(X) @ np.array([[1.0], [-2.0], [0.5]], np.float32)


def model_fn(features, labels, mode):
    """Slots, a scalar that each replica counts for itself, weights of two layers."""
    seen = pl.Variable(
        0.0,
        name="seen",
        synchronization=VariableSynchronization.ON_READ,
        aggregation=VariableAggregation.SUM,
    )
    if mode == pl.ModeKeys.TRAIN:
        seen.assign_add(np.float32(len(features)))
    hidden = layers.Dense(4, activation="tanh")(features)
    loss = np.mean(np.square(layers.Dense(1)(hidden) - labels))
    train_op = optimizers.Adam(0.05).minimize(loss) if mode == pl.ModeKeys.TRAIN else None
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture
def losses_of(on_workers, server_job, tmp_path):
    """`losses_of(kind, name, max_steps, alike)`: the losses of a run in the directory of that name.

    Where all runs have equally many replicas (`alike`), each replica gets the same examples in all
    of them; else all replicas of a step together do.
    """

    def losses_of(kind, name, max_steps, alike):
        found = {}

        def work(strategy, index):
            num_replicas = strategy.num_replicas_in_sync if strategy else 1

            def input_fn(input_context):
                shard = input_context.num_input_pipelines, input_context.input_pipeline_id
                data = pl.Dataset.from_tensor_slices((X, Y)).shuffle(240, seed=7).repeat()
                batch = GLOBAL_BATCH // num_replicas
                return data.batch(batch).shard(*shard) if alike else data.shard(*shard).batch(batch)

            config = pl.RunConfig(
                train_distribute=strategy,
                tf_random_seed=1,
                save_checkpoints_steps=STEPS,
            )
            estimator = pl.Estimator(model_fn, tmp_path / name, config)
            losses = found[index] = Losses()
            # It is interrupted: only what has ended begins its input anew.
            estimator.train_and_report(input_fn, hooks=[losses, Interrupts(max_steps)])

        with pytest.raises(RunKilledError):
            KINDS[kind].run(on_workers, server_job, work, str(tmp_path))
        first, *others = [losses.values for losses in found.values()]
        assert all(other == first for other in others)
        return first

    return losses_of


class RunKilledError(RuntimeError):
    """As by a kill, at the same step on all workers."""


class Interrupts(SessionRunHook):
    def __init__(self, step):
        self._step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self._step:
            raise RunKilledError


@pytest.mark.parametrize(("before", "after"), [*itertools.product(KINDS, KINDS)])
def test_training_goes_on(losses_of, tmp_path, before, after):
    """Bit for bit where the number of replicas is equal, else as exactly as sums are."""
    alike = KINDS[before].num_replicas == KINDS[after].num_replicas
    straight = losses_of(after, "straight", 2 * STEPS, alike)
    first = losses_of(before, "model", STEPS, alike)
    resumed = losses_of(after, "model", 2 * STEPS, alike)
    assert len(first) == len(resumed) == STEPS
    if alike:
        assert first + resumed == straight
    else:
        np.testing.assert_allclose(first + resumed, straight, rtol=2e-5)
    saved = pl.checkpoint.load(tmp_path / "model" / f"model.ckpt-{2 * STEPS}")
    assert saved.read("seen") == 2 * STEPS * GLOBAL_BATCH
