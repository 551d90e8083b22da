"""What a strategy of several workers does, in whatever world this process is.

Under plain pytest it is alone. `test_under_mpiexec.py` runs this file as N ranks of an MPI job, and
as N processes joined by RING: then all of them run each test, in the same order.
"""

import logging
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline.nn import metrics, optimizers
from paceline.strategies import (
    Variable,
    VariableAggregation,
    VariableStore,
    VariableSynchronization,
    get_replica_context,
)

from ..conformance import strategy as conformance


@pytest.fixture(scope="module", params=[1, 2], ids="{} replicas".format)
def strategy(request):
    """The strategy of all workers; it leaves when its tests are done."""
    made = pl.MultiWorkerMirroredStrategy(devices=[f"CPU:{i}" for i in range(request.param)])
    made.extended.workers.add_up_numbers([0.0], "first")  # from here on it starts no thread
    yield made
    if made.extended.num_workers > 1:
        made.extended.workers.communicator.close()


@pytest.fixture(autouse=True)
def idle_threads_end():
    """Replica threads end by themselves soon after the last run: wait for it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=30)


@pytest.fixture
def workers(strategy):
    return strategy.extended.workers


@pytest.fixture
def directory(workers):
    """A directory that all workers share.

    Not pytest's, whose processes tidy up behind each other's backs.
    """
    made = tempfile.mkdtemp() if workers.rank == 0 else ""
    yield Path(workers.text_from_chief(made, "directory"))
    workers.number_from_chief(0, "the directory is not needed any more")
    if made:
        shutil.rmtree(made)


@pytest.fixture
def examples():
    """47 examples of a linear function: unequal shards for every number of workers above one."""
    x = np.random.default_rng(0).normal(size=(47, 3))
    return x, x @ np.array([[1.0], [-2.0], [0.5]])


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(strategy, check):
    check(lambda: strategy)


def test_the_resolver_says_who_is_in_the_world(strategy, workers):
    spec = strategy.cluster_resolver.cluster_spec()
    assert len(spec.training_tasks()) in (workers.size, 0)
    assert strategy.cluster_resolver.task_id == workers.rank


def test_st_03_all_replicas_of_all_workers_count(strategy, workers):
    local = len(strategy.experimental_local_results(strategy.run(lambda: 0)))
    assert workers.add_up_numbers([local], "replicas") == [strategy.num_replicas_in_sync]


def test_in_06_in_07_input_context_divides_the_data_among_workers(strategy, workers):
    def dataset_fn(context):
        assert context.num_input_pipelines == workers.size
        assert context.input_pipeline_id == workers.rank
        shard = context.num_input_pipelines, context.input_pipeline_id
        return pl.Dataset.range(23).shard(*shard).batch(2)

    here = []
    for batch in strategy.distribute_datasets_from_function(dataset_fn):
        here += [x for part in strategy.experimental_local_results(batch) for x in part.tolist()]
    assert here == [*range(workers.rank, 23, workers.size)]


def test_in_09_in_10_global_batches_are_split_over_all_replicas(strategy):
    n = strategy.num_replicas_in_sync
    distributed = strategy.experimental_distribute_dataset(pl.Dataset.range(3 * n + 1).batch(n + 1))
    seen = [strategy.gather(batch, axis=0).tolist() for batch in distributed]
    assert [x for batch in seen for x in batch] == [*range(3 * n + 1)]
    assert len(seen[0]) == n + 1


def test_in_16_a_replica_for_which_nothing_is_left_counts_as_nothing(strategy):
    n = strategy.num_replicas_in_sync
    (batch,) = strategy.experimental_distribute_dataset(pl.Dataset.range(1).batch(n))
    assert strategy.reduce("SUM", batch, axis=0) == 0
    assert strategy.gather(batch, axis=0).tolist() == [0]


def test_mb_20_a_metric_counts_the_examples_of_all_workers(strategy):
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        accuracy = metrics.BinaryAccuracy()

    def step():
        """Replica i has i + 1 examples, of which one is right."""
        count = get_replica_context().replica_id_in_sync_group + 1
        accuracy.update_state(np.ones(count), np.eye(1, count)[0])

    strategy.run(step)
    assert accuracy.result() == pytest.approx(2 / (n + 1), rel=1e-12)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (VariableAggregation.SUM, lambda n: n * (n - 1) / 2),
        (VariableAggregation.MEAN, lambda n: (n - 1) / 2),
        (VariableAggregation.ONLY_FIRST_REPLICA, lambda n: 0.0),
    ],
)
def test_ck_07_on_read_variables_are_saved_over_all_replicas(strategy, aggregation, expected):
    store = VariableStore()
    with store.building(), strategy.scope():
        variable = Variable(
            0.0,
            name="ids",
            synchronization=VariableSynchronization.ON_READ,
            aggregation=aggregation,
        )
        strategy.run(lambda: variable.assign(float(get_replica_context().replica_id_in_sync_group)))
        assert store.saved_values()["ids"] == expected(strategy.num_replicas_in_sync)


def test_st_35_variables_begin_with_the_chiefs_values(strategy, workers):
    with VariableStore(seed=workers.rank).building(), strategy.scope():
        w = pl.get_variable("w", (4, 3))
    with VariableStore(seed=0).building():
        expected = pl.get_variable("w", (4, 3)).numpy()
    for copy in strategy.experimental_local_results(w):
        np.testing.assert_array_equal(copy, expected)


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), np.float64, initializer=0.0)
    outputs = features @ w
    loss = np.mean(np.square(outputs - labels))
    if mode == pl.ModeKeys.EVAL:
        mean = metrics.Mean(name="mean")
        mean.update_state(labels)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": mean})
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def test_es_15_train_and_evaluate_gives_what_numpy_does(
    strategy, workers, directory, examples, caplog
):
    """Ruling 4: shards are unequal, every example counts once. Ruling 7: every worker knows."""
    caplog.set_level(logging.INFO, logger="paceline")
    n, x, y = strategy.num_replicas_in_sync, *examples

    def input_fn(input_context):
        shard = input_context.num_input_pipelines, input_context.input_pipeline_id
        return pl.Dataset.from_tensor_slices((x, y)).shard(*shard).batch(5)

    config = pl.RunConfig(
        train_distribute=strategy, eval_distribute=strategy, save_checkpoints_steps=2
    )
    estimator = pl.Estimator(model_fn, directory, config)
    result = pl.train_and_evaluate(
        estimator, pl.TrainSpec(input_fn), pl.EvalSpec(input_fn, steps=None, throttle_secs=0)
    )
    w, steps = by_hand(examples, workers.size, n // workers.size)
    assert result.global_step == result.metrics["global_step"] == steps
    assert result.ended == "the input ended"
    np.testing.assert_allclose(estimator.get_variable_value("w"), w, rtol=1e-12)
    assert result.metrics["loss"] == pytest.approx(np.mean((x @ w - y) ** 2), rel=1e-6)
    assert result.metrics["mean"] == pytest.approx(np.mean(y), rel=1e-6)
    saved = [record for record in caplog.records if "Saving checkpoints for" in record.getMessage()]
    assert bool(saved) == (workers.rank == 0)


def by_hand(examples, num_workers, num_replicas):
    """Gradient descent on the mean over what all replicas have in each step."""
    x, y = examples
    w, steps, share = np.zeros((3, 1)), 0, 5 * num_replicas
    shards = [np.arange(i, len(x), num_workers) for i in range(num_workers)]
    while any(len(shard) for shard in shards):
        now = np.concatenate([shard[:share] for shard in shards])
        w -= 0.1 * 2 * x[now].T @ (x[now] @ w - y[now]) / len(now)
        shards = [shard[share:] for shard in shards]
        steps += 1
    return w, steps


def test_es_16_estimator_train_goes_on_from_the_chiefs_checkpoint(strategy, directory, examples):
    config = pl.RunConfig(train_distribute=strategy)
    estimator = pl.Estimator(model_fn, directory, config)

    def input_fn(input_context):
        return pl.Dataset.from_tensor_slices(examples).repeat().batch(2)

    assert [estimator.train_and_report(input_fn, steps=3).global_step for _ in range(2)] == [3, 6]
