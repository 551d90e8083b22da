"""A learning rate that was assigned while a run trained is that of the run that goes on."""

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Checkpoint, load
from paceline.estimator import SessionRunHook
from paceline.estimator.saving import CheckpointShards
from paceline.nn import optimizers
from paceline.strategies import VariableStore

from ..threads import in_threads

# One batch: a run that has ended in order begins its input anew.
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32)


class Assigns(SessionRunHook):
    """Assigns a rate behind the third step, through the optimizer of this thread's last call."""

    def __init__(self, made, rate):
        self.made, self.rate, self.num_left = made, rate, 3

    def after_run(self, run_context, run_values):
        self.num_left -= 1
        if not self.num_left:
            self.made[-1].learning_rate = self.rate


def train(strategy, model_dir, last_step, rate=None, make=optimizers.SGD):
    """The rate that a run ends with; one that is given is assigned on the way."""
    made = []

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (3, 1), initializer=0.0)
        loss = np.mean(np.square(features @ w - labels))
        made.append(make(0.05))
        return pl.EstimatorSpec(mode, loss=loss, train_op=made[-1].minimize(loss))

    config = pl.RunConfig(model_dir=str(model_dir), train_distribute=strategy)
    estimator = pl.Estimator(model_fn, config=config)
    hooks = [] if rate is None else [Assigns(made, rate)]
    estimator.train_and_report(dataset, hooks, None, last_step, ())
    found = float(made[-1].learning_rate)
    if strategy is not None:
        strategy.extended.job.share_result("")
    return found


def dataset():
    return pl.Dataset.from_tensor_slices((X, Y)).batch(4).repeat()


def on_servers(server_job, model_dir, call):
    job = server_job(2, 2, 0, storage=CheckpointShards(3, str(model_dir)))
    return in_threads(2, lambda rank: call(job.strategy(rank), rank))


def scaled_adam(rate):
    return optimizers.LossScaleOptimizer(optimizers.Adam(rate), dynamic=False, initial_scale=8.0)


PLACES = ["one replica", "two replicas", "two workers", "servers in step"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [optimizers.SGD, scaled_adam])
def test_a_run_goes_on_with_the_rate_that_was_assigned(
    on_workers, server_job, tmp_path, place, make
):
    def trained(model_dir, *told):
        def call(strategy, _=0):
            return train(strategy, model_dir, *told, make=make)

        if place == "one replica":
            return [call(None)]
        if place == "two replicas":
            return [call(pl.MirroredStrategy(["CPU:0", "CPU:1"]))]
        if place == "two workers":
            return on_workers(2, 1, call)
        return on_servers(server_job, model_dir, call)

    trained(tmp_path / "straight", 8, 0.001)
    trained(tmp_path / "cut", 5, 0.001)
    for rate in trained(tmp_path / "cut", 8):
        assert rate == pytest.approx(0.001)
    values = [load(tmp_path / name / "model.ckpt-8").arrays() for name in ("cut", "straight")]
    assert values[0].keys() == values[1].keys()
    for name, value in values[0].items():
        np.testing.assert_array_equal(value, values[1][name], err_msg=name)


def test_a_schedule_that_was_assigned_goes_on_too(tmp_path):
    decay = optimizers.schedules.ExponentialDecay(0.05, 10, 0.5)
    before = train(None, tmp_path, 5, decay)
    after = train(None, tmp_path, 6)
    assert (before, after) == pytest.approx((0.05 * 0.5**0.5, 0.05 * 0.5**0.6))


def test_a_function_that_was_assigned_is_missed_with_a_warning(tmp_path, caplog):
    train(None, tmp_path, 5, lambda step: 0.001)
    assert "No checkpoint has the learning rate that was assigned" in caplog.text
    assert train(None, tmp_path, 6) == pytest.approx(0.05)


def test_a_run_without_an_assigned_rate_says_nothing_of_rates(tmp_path):
    train(None, tmp_path, 5)
    assert "optimizers" not in load(tmp_path / "model.ckpt-5").state


@pytest.mark.parametrize("rate", [0.001, optimizers.schedules.LinearWarmup(0.1, 10)])
def test_a_checkpoint_of_a_loop_of_ones_own_has_it(tmp_path, rate):
    with VariableStore().building():
        optimizer = optimizers.SGD(0.05)
        assert int(optimizer.iterations) == 0
        saved = Checkpoint(optimizer=optimizer)
        optimizer.learning_rate = rate
        expected = float(optimizer.learning_rate)
        saved.save(tmp_path, 1)
        optimizer.learning_rate = lambda step: 0.7
        saved.restore(tmp_path)
        assert float(optimizer.learning_rate) == pytest.approx(expected)


class AssignsBeforeThird(SessionRunHook):
    """Assigns a rate before the third step; may ask to stop behind the second."""

    def __init__(self, made, stops):
        self.made, self.stops, self.num_told, self.num_made = made, stops, 0, 0

    def before_run(self, run_context):
        self.num_told += 1
        if self.num_told == 3:
            self.made[-1].learning_rate = 0.001

    def after_run(self, run_context, run_values):
        self.num_made += 1
        if self.stops and self.num_made == 2:
            run_context.request_stop()


def test_a_rate_assigned_for_a_step_that_one_worker_does_not_make_ends_the_run_in_order(
    on_workers, tmp_path
):
    def run(strategy, index):
        made = []

        def model_fn(features, labels, mode):
            w = pl.get_variable("w", (3, 1), initializer=0.0)
            made.append(optimizers.SGD(0.05))
            loss = np.mean(np.square(features @ w - labels))
            return pl.EstimatorSpec(mode, loss=loss, train_op=made[-1].minimize(loss))

        config = pl.RunConfig(model_dir=str(tmp_path), train_distribute=strategy)
        hooks = [AssignsBeforeThird(made, stops=index == 1)]
        end = pl.Estimator(model_fn, config=config).train_and_report(dataset, hooks)
        return end.global_step, end.reason

    assert on_workers(2, 1, run) == [(2, "a hook asked to stop on worker 1")] * 2
