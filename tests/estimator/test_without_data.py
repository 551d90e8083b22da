"""Ruling 4: a replica without examples takes part in everything, and what it gives weighs nothing.

The oracle is one replica that is given the global batches of the same steps.
"""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import layers, metrics, optimizers
from paceline.strategies import VariableAggregation

from .places import ONE, PLACES, dataset_of

BATCH = 4
WIDTH = 3


def odd_number_of_batches(worker, num_replicas):
    """In the last step of each worker all of its replicas but one have nothing."""
    return [BATCH] * (2 * num_replicas + 1)


def unequal_shards(worker, num_replicas):
    """The first worker's data end two steps before the other's, and with a smaller batch."""
    return [BATCH] * ((1 + 2 * worker) * num_replicas) + [BATCH - 1]


def empty_in_the_first_step(worker, num_replicas):
    """Each worker has a single batch, but the last has one for each replica of two steps."""
    return [BATCH] * (1 + worker * 2 * num_replicas)


ENDS = (odd_number_of_batches, unequal_shards, empty_in_the_first_step)


def batches_of(worker, sizes):
    """A worker's batches (x, y), of these sizes."""
    rng = np.random.default_rng([7, worker])
    for size in sizes:
        x = rng.normal(size=(size, WIDTH))
        yield x, x @ np.array([[1.0], [-2.0], [0.5]]) + 3


# What models do with their inputs before a linear layer. All give one replica with the whole batch
# what they give several with its parts.


def plain(x, training):
    return x


def synchronized(x, training):
    return layers.BatchNormalization(synchronized=True, momentum=0.5, dtype=np.float64)(x, training)


def mean_by_all_reduce(x, training):
    """Less the mean over the global batch, once by sums and once by a gathered array."""
    replica = pl.get_replica_context()
    total, count = replica.all_reduce("SUM", (x.sum(axis=0), float(len(x))))
    rows = replica.all_gather(x, axis=0)
    return x - total / (2 * count) - rows.mean(axis=0) / 2


def mean_by_merge_call(x, training):
    def mean(strategy, arrays):
        return strategy.reduce("MEAN", arrays, axis=0)

    return x - pl.get_replica_context().merge_call(mean, (x,))


def counted_in_variables(x, training):
    """The examples so far, in a variable that all replicas change together, and in a metric."""
    seen = pl.Variable(0.0, name="seen", trainable=False, aggregation=VariableAggregation.SUM)
    largest = pl.Variable(
        0.0, name="mean_size", trainable=False, aggregation=VariableAggregation.MEAN
    )
    total = metrics.Sum(name="total")
    if training:
        seen.assign_add(np.float32(len(x)))
        largest.assign(np.float32(len(x) > 0))
        total.update_state(np.ones(len(x)))
        so_far = pl.Variable(0.0, name="so_far", trainable=False, aggregation=ONLY_FIRST)
        so_far.assign(np.float32(total.result()))
    return x


ONLY_FIRST = VariableAggregation.ONLY_FIRST_REPLICA
BODIES = (plain, synchronized, mean_by_all_reduce, mean_by_merge_call, counted_in_variables)


def model_fn_with(body):
    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (WIDTH, 1), np.float64, initializer=np.full((WIDTH, 1), 0.1))
        b = pl.get_variable("b", (1,), np.float64, initializer=np.zeros(1))
        outputs = body(features, mode == pl.ModeKeys.TRAIN) @ w + b
        loss = np.mean(np.square(outputs - labels))
        if mode == pl.ModeKeys.EVAL:
            mean = metrics.Mean(name="mean")
            mean.update_state(labels)
            error = metrics.RootMeanSquaredError(name="error")
            error.update_state(labels, outputs)
            found = {"mean": mean, "error": error}
            return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops=found)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    return model_fn


class Watch(SessionRunHook):
    """Keeps the losses, and the values of all variables at the end."""

    def __init__(self):
        self.losses = []
        self.values = {}

    def after_run(self, run_context, run_values):
        self.losses.append(run_context.session.loss)

    def end(self, session):
        names = sorted(session.store.variables)
        self.values = dict(zip(names, session.run(names), strict=True))


def train(place, on_workers, server_job, body, batches, directory):
    """What the watch of each worker has seen; `batches(index)` are those of a worker."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(model_fn_with(body), directory, config)
        watch = Watch()
        estimator.train_and_report(lambda: dataset_of(batches(index)), hooks=[watch])
        return watch

    return place.run(on_workers, server_job, work, directory)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_training_is_that_of_one_replica_with_the_global_batches(
    place, body, end, on_workers, server_job, tmp_path
):
    own = [list(batches_of(w, end(w, place.num_replicas))) for w in range(place.num_workers)]
    globally = place.global_batches(own)
    (one,) = train(ONE, on_workers, server_job, body, lambda _: globally, tmp_path / "one")
    several = train(place, on_workers, server_job, body, own.__getitem__, tmp_path / "several")
    for watch in several:
        np.testing.assert_allclose(watch.losses, one.losses, rtol=1e-9)
        for name, expected in one.values.items():
            np.testing.assert_allclose(watch.values[name], expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_moving_means_are_those_of_the_examples(place, end, on_workers, server_job, tmp_path):
    """Each replica moves its own from batch to batch; replicas that share them, in common."""

    def own_statistics(x, training):
        return layers.BatchNormalization(momentum=0.5, dtype=np.float64)(x, training)

    n = place.num_replicas
    own = [list(batches_of(w, end(w, n))) for w in range(place.num_workers)]
    watches = train(place, on_workers, server_job, own_statistics, own.__getitem__, tmp_path)
    shares = place in (PLACES["central storage x 2"], PLACES["servers, 2 replicas"])
    copies = []
    for batches in own:
        here = [np.zeros(WIDTH)] * n
        for start in range(0, len(batches), n):
            moved = [
                0.5 * old + 0.5 * x.mean(axis=0)
                for old, (x, _) in zip(here, batches[start : start + n], strict=False)
            ]
            here = [np.mean(moved, axis=0)] * n if shares else moved + here[len(moved) :]
        copies += here
    for watch in watches:
        found = watch.values["batch_normalization/moving_mean"]
        np.testing.assert_allclose(found, np.mean(copies, axis=0), rtol=1e-9)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("place", [p for p in PLACES if "servers" not in p])
def test_evaluation_is_that_of_one_replica(place, body, end, on_workers, server_job, tmp_path):
    place = PLACES[place]
    own = [list(batches_of(w, end(w, place.num_replicas))) for w in range(place.num_workers)]
    globally = place.global_batches(own)
    seen = []

    class Count(SessionRunHook):
        def __init__(self, index):
            self.index = index

        def after_run(self, run_context, run_values):
            seen.append(self.index)

    def evaluated(batches, hooks):
        def work(strategy, index):
            config = pl.RunConfig(eval_distribute=strategy)
            estimator = pl.Estimator(model_fn_with(body), tmp_path, config)
            return estimator.evaluate(lambda: dataset_of(batches(index)), hooks=hooks(index))

        return work

    (expected,) = ONE.run(
        on_workers, server_job, evaluated(lambda _: globally, lambda index: []), tmp_path
    )
    found = place.run(
        on_workers, server_job, evaluated(own.__getitem__, lambda index: [Count(index)]), tmp_path
    )
    for results in found:
        assert results == pytest.approx(expected, rel=1e-6)
    num_steps = [-(-len(batches) // place.num_replicas) for batches in own]
    assert [seen.count(index) for index in range(place.num_workers)] == num_steps


def test_a_step_that_is_not_made_changes_nothing(on_workers, tmp_path):
    """The first worker has a batch for the step that the second does not make any more."""

    class StopsAfter(SessionRunHook):
        def __init__(self, num_steps):
            self.num_steps = num_steps

        def after_run(self, run_context, run_values):
            if run_context.session.global_step == self.num_steps:
                run_context.request_stop()

    own = [list(batches_of(worker, [BATCH] * 5)) for worker in range(2)]

    def moved(x, training):
        mean = pl.Variable(np.zeros(WIDTH), name="mean", trainable=False, aggregation=ON_MEAN)
        mean.assign(0.5 * mean.numpy() + 0.5 * x.mean(axis=0))
        return layers.BatchNormalization(momentum=0.5, dtype=np.float64)(x, training)

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        watch = Watch()
        estimator = pl.Estimator(model_fn_with(moved), tmp_path, config)
        hooks = [watch, StopsAfter(2 if index == 1 else 4)]
        estimator.train_and_report(lambda: dataset_of(own[index]), hooks=hooks)
        return watch.values

    expected = np.zeros(WIDTH)
    for step in range(2):
        expected = 0.5 * expected + 0.5 * np.mean([b[step][0].mean(axis=0) for b in own], axis=0)
    for values in on_workers(2, 1, work):
        for name in ("mean", "batch_normalization/moving_mean"):
            np.testing.assert_allclose(values[name], expected, rtol=1e-9, err_msg=name)


ON_MEAN = VariableAggregation.MEAN


def test_what_is_assigned_in_a_merge_call_is_of_the_steps_that_were_made(on_workers, tmp_path):
    """Workers whose data have ended cannot know so before they have run the model."""
    own = [list(batches_of(worker, [BATCH] * (2 + worker))) for worker in range(2)]

    def merged(x, training):
        largest = pl.Variable(0.0, name="seen", trainable=False, aggregation=ON_MEAN)

        def add(strategy, sizes):
            largest.assign_add(np.float32(strategy.reduce("SUM", sizes)))

        pl.get_replica_context().merge_call(add, (float(len(x)),))
        return x

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        watch = Watch()
        estimator = pl.Estimator(model_fn_with(merged), tmp_path, config)
        estimator.train_and_report(lambda: dataset_of(own[index]), hooks=[watch])
        return watch.values["seen"]

    assert on_workers(2, 1, work) == [5 * BATCH] * 2


def test_the_model_runs_once_for_each_step_where_all_know_the_last_one(on_workers, tmp_path):
    calls = [0, 0]

    def work(strategy, index):
        def counted(x, training):
            calls[index] += 1
            return x

        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(model_fn_with(counted), tmp_path, config)
        batches = list(batches_of(index, [BATCH]))
        estimator.train_and_report(lambda: dataset_of(batches).repeat(), steps=3)

    on_workers(2, 1, work)
    assert calls == [3, 3]


@pytest.mark.parametrize("sizes", [[1, 0, 1], [0, 2, 3], [2, 0, 0]])
@pytest.mark.parametrize("place", ["mirrored x 2", "2 workers"])
def test_a_batch_of_no_examples_is_neither_a_step_nor_the_end(
    place, sizes, on_workers, server_job, tmp_path
):
    """A filter may leave nothing over of a batch."""
    place = PLACES[place]
    empty = [size for size in sizes for _ in range(place.num_replicas)]
    own = [list(batches_of(worker, empty)) for worker in range(place.num_workers)]
    num_steps = sum(size > 0 for size in sizes)
    for watch in train(place, on_workers, server_job, plain, own.__getitem__, tmp_path):
        assert len(watch.losses) == watch.values["global_step"] == num_steps
