"""The examples of the Strategy page (S1) that concern one machine, with paceline's names."""

import numpy as np
import pytest

import paceline as pl


@pytest.fixture
def strategy():
    """S1 writes ["GPU:0", "GPU:1"]: where there are none, logical CPUs stand in for them."""
    return pl.MirroredStrategy(["GPU:0", "GPU:1"])


def test_a_custom_training_loop(strategy):
    dist_dataset = strategy.experimental_distribute_dataset(pl.Dataset.range(4).batch(2))
    with strategy.scope():

        def distribute_train_epoch(dataset):
            def replica_fn(inputs):
                return np.sum(inputs)

            total_result = 0
            for x in dataset:
                per_replica_result = strategy.run(replica_fn, args=(x,))
                total_result += strategy.reduce(pl.ReduceOp.SUM, per_replica_result, axis=None)
            return total_result

        for _ in range(3):
            assert distribute_train_epoch(dist_dataset) == 6


def test_experimental_distribute_dataset(strategy):
    dataset = pl.Dataset.range(4).batch(2)
    dist_dataset = strategy.experimental_distribute_dataset(dataset)
    result = []
    for x in dist_dataset:
        result.append(strategy.run(lambda x: x * 2, args=(x,)))
    assert str(result) == (
        "[PerReplica:{\n  0: array([0]),\n  1: array([2])\n}, "
        "PerReplica:{\n  0: array([4]),\n  1: array([6])\n}]"
    )


@pytest.mark.parametrize(
    ("value_fn", "expected"),
    [
        (lambda ctx: np.float32(1.0), (1.0, 1.0)),
        (lambda ctx: np.array([3.0, 2.0, 1.0])[ctx.replica_id_in_sync_group], (3.0, 2.0)),
        (lambda ctx: ctx.num_replicas_in_sync, (2, 2)),
    ],
    ids=["constant", "by replica id", "by number of replicas"],
)
def test_experimental_distribute_values_from_function(value_fn, expected, strategy):
    distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
    assert strategy.experimental_local_results(distributed_values) == expected


def test_values_placed_on_devices(strategy):
    worker_devices = strategy.extended.worker_devices
    multiple_values = []
    for i in range(strategy.num_replicas_in_sync):
        device = pl.strategies.Device.parse(worker_devices[i])
        multiple_values.append(device.put(np.float32(1.0)))
    distributed_values = strategy.experimental_distribute_values_from_function(
        lambda ctx: multiple_values[ctx.replica_id_in_sync_group]
    )
    assert strategy.experimental_local_results(distributed_values) == (1.0, 1.0)


def test_gather(strategy):
    distributed_values = strategy.experimental_distribute_values_from_function(
        lambda _: pl.Tensor(np.array([[1], [2]]))
    )
    gathered = strategy.gather(distributed_values, axis=0)
    assert gathered.numpy().tolist() == [[1], [2], [1], [2]]


@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 2, 3)), (1, (1, 8, 3)), (2, (1, 2, 12))])
def test_gather_over_four_replicas(axis, shape):
    strategy = pl.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2", "GPU:3"])
    single = np.reshape(np.arange(6), (1, 2, 3))
    distributed_values = strategy.experimental_distribute_values_from_function(lambda _: single)
    gathered = strategy.gather(distributed_values, axis=axis)
    assert gathered.shape == shape
    assert gathered.reshape(-1).tolist() == np.concatenate([single] * 4, axis).reshape(-1).tolist()


def test_reduce(strategy):
    def step_fn():
        return pl.get_replica_context().replica_id_in_sync_group

    per_replica_result = strategy.run(step_fn)
    total = strategy.reduce("SUM", per_replica_result, axis=None)
    assert total == 1
    assert type(total) is int


def test_reduce_with_and_without_an_axis(strategy):
    per_replica_result = strategy.experimental_distribute_values_from_function(
        lambda ctx: np.arange(4) + 4 * ctx.replica_id_in_sync_group
    )
    assert strategy.reduce("sum", per_replica_result, axis=None).tolist() == [4, 6, 8, 10]
    assert strategy.reduce("sum", per_replica_result, axis=0) == 28


def test_run_with_a_constant(strategy):
    result = strategy.run(lambda x: x * 2.0, args=(pl.Tensor(np.float32(3.0)),))
    assert [part.item() for part in result] == [6.0, 6.0]
    assert [part.dtype for part in result] == [np.float32] * 2


def test_run_with_distributed_values(strategy):
    def run():
        def value_fn(value_context):
            return value_context.num_replicas_in_sync

        distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
        return strategy.run(lambda x: x * 2, args=(distributed_values,))

    assert run().values == (4, 4)


def test_run_with_all_reduce(strategy):
    def run():
        distributed_values = strategy.experimental_distribute_values_from_function(
            lambda ctx: np.array(ctx.replica_id_in_sync_group)
        )

        def replica_fn(x):
            return pl.get_replica_context().all_reduce("sum", x)

        return strategy.run(replica_fn, args=(distributed_values,))

    assert [part.item() for part in run()] == [1, 1]


def test_scope(strategy, plain_printing):
    with strategy.scope():
        mirrored_variable = pl.Variable(1.0)
    assert repr(mirrored_variable).startswith("MirroredVariable:{\n  0: <Variable 'Variable")
    assert "numpy=1.0>" in repr(mirrored_variable)
    regular_variable = pl.Variable(1.0)
    assert repr(regular_variable).startswith("<Variable 'Variable")


def test_a_variable_created_in_run_is_placed_by_the_strategy(strategy):
    variables = strategy.run(lambda: [pl.Variable(1.0)])[0]
    assert variables[0] is variables[1]
    assert variables[0].num_copies == 2
