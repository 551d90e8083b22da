"""The verbs of a strategy over several workers, in numbers of workers and replicas."""

import numpy as np
import pytest

from paceline.autodiff import GradientTape, Tensor
from paceline.collectives import CollectiveError
from paceline.nn import optimizers
from paceline.strategies import (
    CommunicationOptions,
    PerReplica,
    Variable,
    VariableAggregation,
    VariableStore,
    VariableSynchronization,
    current_store,
    get_replica_context,
    get_variable,
)

SIZES = [(1, 1), (2, 1), (3, 1), (2, 2)]


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]} workers of {size[1]}")
def size(request):
    return request.param


def test_st_03_all_replicas_of_all_workers_count(on_workers, size):
    workers, replicas = size
    found = on_workers(workers, replicas, lambda s, i: (s.num_replicas_in_sync, s.input_context()))
    for index, (in_sync, context) in enumerate(found):
        assert in_sync == workers * replicas
        assert (context.num_input_pipelines, context.input_pipeline_id) == (workers, index)


def test_st_27_replicas_are_numbered_through(on_workers, size):
    workers, replicas = size

    def ids(strategy, index):
        found = strategy.run(lambda: get_replica_context().replica_id_in_sync_group)
        return strategy.experimental_local_results(found)

    assert [i for worker in on_workers(workers, replicas, ids) for i in worker] == [
        *range(workers * replicas)
    ]


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_st_14_reduce_and_all_reduce_take_all_replicas(on_workers, size, op):
    workers, replicas = size
    n = workers * replicas
    total = n * (n - 1) / 2

    def step():
        replica = get_replica_context()
        mine = np.full(3, float(replica.replica_id_in_sync_group))
        return mine, replica.all_reduce(op, mine)

    def both(strategy, index):
        mine, reduced = strategy.run(step)
        outside = strategy.reduce(op, mine)
        return [outside, *strategy.experimental_local_results(reduced)]

    for values in on_workers(workers, replicas, both):
        for value in values:
            np.testing.assert_allclose(value, total if op == "SUM" else total / n)


@pytest.mark.parametrize(
    ("options", "num_exchanges"),
    [(None, 2), (CommunicationOptions(bytes_per_pack=8), 4), (CommunicationOptions(), 2)],
)
def test_st_24_a_structure_travels_at_once_for_each_dtype(on_workers, options, num_exchanges):
    """Three arrays of float32 in one exchange, or in three, and one of whole numbers."""

    def step():
        replica = get_replica_context()
        ones = np.ones(2, np.float32)
        value = {"a": [ones, 2 * ones], "n": replica.replica_id_in_sync_group, "b": 3 * ones}
        return replica.all_reduce("SUM", value, options=options)

    def counted(strategy, index):
        workers = strategy.extended.workers
        before = workers.num_collectives
        return strategy.run(step), workers.num_collectives - before

    for result, num_collectives in on_workers(2, 1, counted):
        assert num_collectives == num_exchanges
        assert [result["a"][0].tolist(), result["a"][1].tolist()] == [[2, 2], [4, 4]]
        assert (result["n"].item(), result["b"].tolist()) == (1, [6, 6])


def test_st_14_st_23_batches_of_reductions_travel_at_once(on_workers):
    def reduced(strategy, index):
        values = [strategy.run(lambda k=k: np.full(k, index + 1.0)) for k in range(1, 4)]
        before = strategy.extended.workers.num_collectives
        batch = strategy.extended.batch_reduce_to("MEAN", [(v, "CPU:0") for v in values])
        whole = strategy.reduce("SUM", {"each": values})
        assert strategy.extended.workers.num_collectives == before + 2
        return batch, whole["each"]

    for batch, whole in on_workers(2, 2, reduced):
        for k in range(3):
            np.testing.assert_array_equal(batch[k], np.full(k + 1, 1.5))
            np.testing.assert_array_equal(whole[k], np.full(k + 1, 6.0))


def test_st_24_gradients_flow_back_over_workers(on_workers):
    """Σ of the squares of the mean over four replicas, once for each: the gradient is 2 mean."""

    def step():
        replica = get_replica_context()
        mine = Tensor(np.float64([replica.replica_id_in_sync_group]), requires_grad=True)
        with GradientTape() as tape:
            tape.watch(mine)
            joined = replica.all_gather(mine, axis=0)
            loss = np.square(replica.all_reduce("MEAN", mine)).sum() + joined[3]
        return tape.gradient(loss, mine)

    found = [
        gradient.item()
        for of_worker in on_workers(2, 2, lambda strategy, index: strategy.run(step))
        for gradient in of_worker
    ]
    assert found == [3.0, 3.0, 3.0, 7.0]


def test_st_24_a_time_of_one_exchange_holds_for_it_only(on_workers):
    def reduced(strategy, index):
        communicator = strategy.extended.workers.communicator
        usual = communicator.timeout_secs
        options = CommunicationOptions(timeout_seconds=1234)
        strategy.run(lambda: get_replica_context().all_reduce("SUM", 1.0, options=options))
        return communicator.timeout_secs == usual, communicator._backend.timeout_secs

    assert on_workers(2, 1, reduced) == [(True, 1234)] * 2


def test_st_16_a_mean_over_the_batch_counts_every_example(on_workers):
    def mean(strategy, index):
        return strategy.reduce("MEAN", np.arange(4.0) if index == 0 else np.arange(4.0, 6), axis=0)

    assert on_workers(2, 1, mean) == [2.5, 2.5]


def test_st_18_gather_in_replica_order_with_unequal_lengths(on_workers):
    def gather(strategy, index):
        return strategy.gather(np.full((index + 1, 2), index), axis=0)

    for gathered in on_workers(3, 1, gather):
        assert gathered[:, 0].tolist() == [0, 1, 1, 2, 2, 2]


def test_st_35_variables_begin_with_the_chiefs_values(on_workers, size):
    workers, replicas = size

    def create(strategy, index):
        with VariableStore(seed=index).building(), strategy.scope():
            return get_variable("w", (4, 3)).local_values()

    copies = [copy for worker in on_workers(workers, replicas, create) for copy in worker]
    assert len(copies) == workers * replicas
    for copy in copies[1:]:
        np.testing.assert_array_equal(copy, copies[0])


@pytest.mark.parametrize(
    ("name", "shape"), [("v", (2,)), ("w", (3,))], ids=["another name", "another shape"]
)
def test_a_variable_that_differs_between_workers_is_named(on_workers, name, shape):
    """Ruling 8."""

    def create(strategy, index):
        with VariableStore().building(), strategy.scope():
            get_variable(*(("w", (2,)) if index == 0 else (name, shape)))

    with pytest.raises(CollectiveError, match=r"initial value of variable '[vw]'"):
        on_workers(2, 1, create, timeout_secs=5)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (VariableAggregation.SUM, 0 + 1 + 2 + 3),
        (VariableAggregation.MEAN, 1.5),
        (VariableAggregation.ONLY_FIRST_REPLICA, 0),
    ],
)
def test_ck_07_on_read_variables_are_read_over_all_replicas(on_workers, aggregation, expected):
    def read(strategy, index):
        with VariableStore().building(), strategy.scope():
            variable = Variable(
                0.0, synchronization=VariableSynchronization.ON_READ, aggregation=aggregation
            )

        def step():
            variable.assign(float(get_replica_context().replica_id_in_sync_group))

        strategy.run(step)
        return float(variable.numpy())

    assert on_workers(2, 2, read) == [expected] * 2


def test_mb_03_a_restored_sum_keeps_its_total(on_workers, size):
    def restore(strategy, index):
        with VariableStore().building(), strategy.scope():
            variable = Variable(
                10.0,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
            first = float(variable.numpy())
            variable.assign(7.0)
            return first, float(variable.numpy())

    assert on_workers(*size, restore) == [(10.0, 7.0)] * size[0]


def test_co_16_variables_are_equal_on_all_workers_after_500_steps(on_workers):
    def train(strategy, index):
        rng = np.random.default_rng(index)
        with VariableStore(seed=index).building(), strategy.scope():
            w = get_variable("w", (5, 3))
            optimizer = optimizers.Adam(0.01)

            def step():
                x = rng.normal(size=(4, 5)).astype(np.float32)
                optimizer.minimize(np.mean(np.square(np.tanh(x @ w) - 0.5)))(len(x))

            for _ in range(500):
                strategy.run(step)
            return w.local_values()

    copies = [copy for worker in on_workers(3, 1, train) for copy in worker]
    for copy in copies[1:]:
        np.testing.assert_array_equal(copy, copies[0])


def test_sparse_gradients_are_added_up_over_workers(on_workers):
    def train(strategy, index):
        with VariableStore().building(), strategy.scope():
            table = get_variable("table", (6, 2), initializer=np.zeros((6, 2), np.float32))
            optimizer = optimizers.SGD(1.0)

            def step():
                rows = np.take(table, np.array([index, 5]), axis=0)
                optimizer.minimize(np.sum(rows))()

            strategy.run(step)
            return table.local_values()[0]

    expected = np.zeros((6, 2))
    expected[[0, 1]], expected[5] = -0.5, -1.0
    for table in on_workers(2, 1, train):
        np.testing.assert_array_equal(table, expected)


def test_a_worker_that_fails_ends_the_others_with_its_name(on_workers):
    def work(strategy, index):
        if index == 1:
            raise KeyError("boom")
        strategy.reduce("SUM", 1.0)

    with pytest.raises((KeyError, CollectiveError), match=r"boom"):
        on_workers(2, 1, work)


def test_gradients_of_several_buckets_go_in_one_order_on_all_workers(on_workers):
    """Two replicas per worker fill buckets in an order that depends on the threads."""

    def train(strategy, index):
        with VariableStore(seed=0).building(), strategy.scope():
            weights = [get_variable(f"w{i}", (700, 700)) for i in range(6)]
            optimizer = optimizers.SGD(0.1)

            def step():
                x = np.ones((2, 700), np.float32)
                for w in weights:
                    x = np.tanh(x @ w)
                optimizer.minimize(np.mean(np.square(x)), var_list=weights)(2)

            for _ in range(5):
                strategy.run(step)
            assert current_store().resources
            return [w.local_values()[1] for w in weights]

    first, second = on_workers(2, 2, train)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_from_a_function_are_numbered_through(on_workers):
    """ST-20."""

    def values(strategy, index):
        found = strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
        assert isinstance(found, PerReplica)
        return found.values

    assert on_workers(2, 2, values) == [(0, 1), (2, 3)]
