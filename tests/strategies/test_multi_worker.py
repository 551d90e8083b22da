"""MultiWorkerMirroredStrategy, made as users make it (ST-35 to ST-39, CO-*).

The workers are threads of this process, joined by RING on loopback.
"""

import contextvars
import logging
import threading
from contextlib import suppress

import numpy as np
import pytest

import paceline as pl
from paceline.cluster import (
    ClusterError,
    MPIClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
    local_cluster,
)
from paceline.collectives import CollectiveError, CollectiveTimeoutError, MismatchError
from paceline.nn import optimizers
from paceline.strategies import (
    PerReplica,
    VariableAggregation,
    VariableStore,
    VariableSynchronization,
    get_replica_context,
)
from paceline.strategies.devices.device import default_devices

from ..conformance import strategy as conformance

LIMIT_SECS = 60
SIZES = [(1, 1), (2, 1), (3, 1), (2, 2)]


def resolvers_of(num_workers):
    """A resolver for each worker of a cluster on this machine."""
    return [
        SimpleClusterResolver(config["cluster"], task_type="worker", task_id=i)
        for i, config in enumerate(local_cluster(num_workers))
    ]


@pytest.fixture
def outcomes():
    """`outcomes(num_workers, work)`: what `work(resolver, worker_index)` returns or raises on each.

    A worker that has returned leaves when all have; one that has raised leaves at once.
    """

    def run(num_workers, work):
        found, joined = [None] * num_workers, threading.Barrier(num_workers)

        def as_worker(index, resolver):
            try:
                found[index] = work(resolver, index)
            except Exception as error:
                found[index] = error
            with suppress(threading.BrokenBarrierError):
                joined.wait(LIMIT_SECS)

        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(as_worker, i, resolver), daemon=True
            )
            for i, resolver in enumerate(resolvers_of(num_workers))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECS)
        assert not any(thread.is_alive() for thread in threads)
        return found

    return run


class Joined:
    """A strategy that leaves its workers at the end of a `with` statement."""

    def __init__(self, resolver, num_replicas=1, **options):
        given = {"implementation": "RING", "timeout_seconds": 20, "start_timeout_secs": 20}
        self._strategy = pl.MultiWorkerMirroredStrategy(
            cluster_resolver=resolver,
            communication_options=pl.CommunicationOptions(**{**given, **options}),
            devices=[f"CPU:{i}" for i in range(num_replicas)],
        )

    def __enter__(self):
        return self._strategy

    def __exit__(self, kind, error, trace):
        if self._strategy.extended.num_workers > 1:
            reason = "" if error is None else f"{kind.__name__}: {error}"
            self._strategy.extended.workers.communicator.close(reason)


def on_each(fn, num_replicas=1, **options):
    """Work for `outcomes`: join the others and call `fn(strategy, index)`."""

    def work(resolver, index):
        with Joined(resolver, num_replicas, **options) as strategy:
            return fn(strategy, index)

    return work


def values(found):
    """The outcomes of workers that all have succeeded."""
    for outcome in found:
        if isinstance(outcome, Exception):
            raise outcome
    return found


@pytest.fixture
def alone(monkeypatch):
    """An environment in which no launcher has left a trace."""
    for name in ("TF_CONFIG", "PMI_RANK", "PMI_SIZE", "RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("communication", [None, "AUTO", "ring", "RING"])
def test_st_35_ob_05_alone_without_tf_config_it_works_and_says_so(alone, log_lines, communication):
    strategy = pl.MultiWorkerMirroredStrategy(communication)
    assert isinstance(strategy.cluster_resolver, TFConfigClusterResolver)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.reduce("SUM", strategy.run(lambda: 2.0)) == 2.0
    assert "worker 0 of 1, 1 replicas in all" in log_lines(logging.INFO)[-1]
    assert not log_lines(logging.WARNING)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} workers of {size[1]}")
def test_conformance(outcomes, size):
    """Every check of tests/conformance/strategy.py, on all workers at once."""

    def all_checks(strategy, index):
        for check in conformance.CHECKS:
            with VariableStore().building():  # the workers share a process, but not its variables
                check(lambda: strategy)
        return len(conformance.CHECKS)

    workers, replicas = size
    found = values(outcomes(workers, on_each(all_checks, replicas)))
    assert found == [len(conformance.CHECKS)] * workers


def test_st_35_variables_start_equal_from_different_seeds(outcomes):
    def create(strategy, index):
        with VariableStore(seed=index).building(), strategy.scope():
            return pl.get_variable("w", (4, 3)).local_values()

    found = values(outcomes(2, on_each(create, num_replicas=2)))
    copies = [copy for worker in found for copy in worker]
    assert len(copies) == 4
    assert len({copy.tobytes() for copy in copies}) == 1
    with VariableStore(seed=0).building():
        np.testing.assert_array_equal(copies[0], pl.get_variable("w", (4, 3)).numpy())


def test_st_35_ob_05_the_log_names_the_worker_and_all_replicas(outcomes, log_lines):
    values(outcomes(2, on_each(lambda strategy, index: None, num_replicas=2)))
    told = "\n".join(log_lines(logging.INFO))
    assert "Workers communicate by RING (as asked for; " in told  # CO-10, and which devices
    for index in range(2):
        assert f"worker {index} of 2, 4 replicas in all" in told


def test_st_36_unequal_device_counts_name_both_workers(outcomes):
    def work(resolver, index):
        with Joined(resolver, num_replicas=index + 1):
            pass

    for error in outcomes(2, work):
        assert isinstance(error, ClusterError)
        assert "worker 0 has 1, worker 1 has 2" in str(error)


def test_st_37_a_worker_that_skips_a_collective_is_named(outcomes):
    def work(strategy, index):
        if index == 0:
            strategy.reduce("SUM", np.ones(3))
        strategy.gather(np.ones(2), axis=0)

    for error in outcomes(2, on_each(work)):
        assert isinstance(error, MismatchError)
        for told in ("worker 0", "worker 1", "'reduce of shape", "'gather of shape"):
            assert told in str(error)


def test_st_37_d_26_a_worker_that_calls_with_another_shape_is_named(outcomes):
    """D-26; G-10's error for shapes that differ, over workers."""
    for error in outcomes(2, on_each(lambda s, index: s.reduce("SUM", np.ones(3 + index)))):
        assert isinstance(error, MismatchError)
        for told in ("worker 0", "worker 1", "of shape (3)", "of shape (4)"):
            assert told in str(error)


def test_st_37_equally_many_elements_of_another_shape_are_no_match(outcomes):
    """D-26."""

    def reduce(strategy, index):
        strategy.reduce("SUM", np.ones((3, 2) if index else (2, 3)))

    for error in outcomes(2, on_each(reduce)):
        assert isinstance(error, MismatchError)
        for told in ("shape (2, 3)", "shape (3, 2)"):
            assert told in str(error)


def test_two_strategies_of_one_process_share_its_address(outcomes):
    """For instance one to train and one to evaluate."""

    def work(resolver, index):
        with Joined(resolver) as first:
            second = pl.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
            return [s.reduce("SUM", float(index + 1)) for s in (first, second, first)]

    assert outcomes(2, work) == [[3.0, 3.0, 3.0]] * 2


def test_a_further_strategy_joins_anew_where_the_first_was_lost(outcomes):
    """For instance when the one that was lost has been started again."""

    def work(resolver, index):
        with Joined(resolver) as first:
            lengths = 3 + index
            with pytest.raises(MismatchError):
                first.extended.workers.communicator.all_reduce(np.ones(lengths), "x")
            with Joined(resolver) as second:
                return second.reduce("SUM", float(index + 1))

    assert outcomes(2, work) == [3.0, 3.0]


def test_what_a_further_strategy_asks_for_in_vain_is_said(outcomes, caplog):
    def work(resolver, index):
        with Joined(resolver, links=("tcp", "grpc")) as first:
            assert first.reduce("SUM", 1.0) == 2.0
            for options in ({}, {"links": ["grpc"], "token": "t" * 16, "timeout_seconds": 7}):
                options = pl.CommunicationOptions(**options)
                second = pl.MultiWorkerMirroredStrategy(
                    cluster_resolver=resolver, communication_options=options
                )
                assert second.reduce("SUM", 1.0) == 2.0

    assert outcomes(2, work) == [None, None]
    lines = [r.getMessage() for r in caplog.records if "has no effect" in r.getMessage()]
    assert len(lines) == 2  # one of each worker
    assert lines[0].startswith("CommunicationOptions(links=..., token=...) of a further strategy")


def test_st_37_a_worker_that_has_left_is_named(outcomes):
    def work(strategy, index):
        if index == 0:
            strategy.reduce("SUM", 1.0)

    first, second = outcomes(2, on_each(work))
    assert second is None
    assert isinstance(first, CollectiveError)
    assert "worker 1" in str(first)


def test_st_37_a_replica_that_raises_ends_the_other_workers_with_its_reason(outcomes):
    """ST-13 over workers."""

    def step():
        replica = get_replica_context()
        if replica.replica_id_in_sync_group == 3:
            raise ZeroDivisionError("on purpose")
        return replica.all_reduce("SUM", 1.0)

    first, second = outcomes(2, on_each(lambda s, index: s.run(step), num_replicas=2))
    assert isinstance(second, ZeroDivisionError)
    assert isinstance(first, CollectiveError)
    assert "worker 1" in str(first)
    assert "on purpose" in str(first)


def test_co_12_a_worker_that_does_not_come_in_time_is_named(outcomes):
    timed_out = threading.Event()

    def work(strategy, index):
        if index == 1:
            assert timed_out.wait(LIMIT_SECS)
            return
        try:
            strategy.reduce("SUM", 1.0)
        finally:
            timed_out.set()

    first, second = outcomes(2, on_each(work, timeout_seconds=1))
    assert second is None
    assert isinstance(first, CollectiveTimeoutError)
    for told in ("'reduce of shape ()'", "timed out after ", "worker 1"):
        assert told in str(first)


def test_co_15_a_worker_that_never_starts_is_named():
    """D-01."""
    resolver, *_ = resolvers_of(2)
    with pytest.raises(CollectiveError, match="waiting for worker 1") as error:
        Joined(resolver, start_timeout_secs=0.5)
    assert resolver.cluster_spec().as_dict()["worker"][1] in str(error.value)


@pytest.mark.parametrize("first", ["the strategy", "the data"])
def test_st_38_the_strategy_may_come_before_or_after_arrays_and_variables(outcomes, first):
    """With a resolver: TensorFlow wants the strategy first, and finds no accelerators then."""

    def work(resolver, index):
        joined = Joined(resolver, num_replicas=2) if first == "the strategy" else None
        array = pl.PerReplica([np.full(3, 2.0 * index), np.full(3, 2.0 * index + 1)])
        dataset = pl.Dataset.range(8).batch(4)
        outside = pl.Variable([10.0])
        with joined or Joined(resolver, num_replicas=2) as strategy:
            sums = [strategy.reduce("SUM", b, axis=0) for b in iter_of(strategy, dataset)]
            return strategy.reduce("SUM", array).tolist(), sums, float(outside.numpy()[0])

    for found in values(outcomes(2, work)):
        assert found == ([6.0] * 3, [6, 22], 10.0)


def iter_of(strategy, dataset):
    return strategy.experimental_distribute_dataset(dataset)


@pytest.mark.parametrize(
    ("said", "visible", "expected"),
    [
        (None, 0, ["CPU:0"]),
        (None, 2, ["GPU:0", "GPU:1"]),
        ({}, 2, ["GPU:0", "GPU:1"]),
        ({"GPU": 0}, 2, ["CPU:0"]),
        ({"GPU": 1}, 2, ["GPU:0"]),
        ({"gpu": 2}, 1, ["GPU:0", "GPU:1"]),
        ({"TPU": 8}, 1, ["GPU:0"]),
    ],
)
def test_cl_13_what_the_resolver_says_of_accelerators_decides_the_devices(
    said, visible, expected, monkeypatch
):
    monkeypatch.setattr("paceline.strategies.devices.gpu.count", lambda: visible)
    assert [f"{d.kind}:{d.index}" for d in default_devices(said)] == expected


@pytest.mark.parametrize(("num_gpus", "num_replicas"), [(0, 1), (1, 1), (3, 3)])
@pytest.mark.host
def test_cl_13_st_38_the_strategy_asks_the_resolver(alone, num_gpus, num_replicas):
    told = {"GPU": num_gpus}
    resolver = SimpleClusterResolver({}, task_type="worker", task_id=0, num_accelerators=told)
    strategy = pl.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    assert strategy.num_replicas_in_sync == num_replicas


def test_st_04_the_resolver_is_the_one_given(outcomes):
    def work(resolver, index):
        with Joined(resolver) as strategy:
            assert strategy.cluster_resolver is resolver
            return strategy.extended.worker_index

    assert values(outcomes(2, work)) == [0, 1]


def test_cl_04_a_cluster_with_parameter_servers_is_refused():
    cluster = {"chief": ["a:1"], "ps": ["b:1"]}
    resolver = SimpleClusterResolver(cluster, task_type="chief", task_id=0)
    with pytest.raises(ClusterError, match=r"parameter servers \(ps\).*leave them out"):
        pl.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


@pytest.mark.parametrize("spelling", ["RING", "ring", "Ring", pl.CommunicationImplementation.RING])
def test_co_07_strings_and_enum_name_the_implementation(outcomes, spelling):
    def work(resolver, index):
        strategy = pl.MultiWorkerMirroredStrategy(spelling, resolver)
        total = strategy.reduce("SUM", np.float32(index + 1))
        strategy.extended.workers.communicator.close()
        return float(total)

    assert values(outcomes(2, work)) == [3.0, 3.0]


@pytest.mark.parametrize("wrong", ["GLOO", "", 7])
def test_co_07_another_value_lists_the_known_ones(wrong):
    with pytest.raises(ValueError, match="AUTO, RING, NCCL, MPI") as error:
        pl.MultiWorkerMirroredStrategy(wrong)
    assert repr(wrong) in str(error.value)


def test_an_evaluator_beside_the_workers_does_not_wait_for_them():
    """Ruling 2: it is no part of the training cluster, listed or not."""
    for cluster in ({"worker": ["a:1", "b:1"]}, {"worker": ["a:1"], "evaluator": ["c:1"]}):
        resolver = SimpleClusterResolver(cluster, task_type="evaluator", task_id=0)
        strategy = pl.MultiWorkerMirroredStrategy("RING", resolver)
        assert strategy.num_replicas_in_sync == 1


def test_the_chief_is_worker_0_of_all(outcomes):
    """Ruling 2: where the cluster lists a chief, it is the one who writes."""
    (host,) = local_cluster(1)[0]["cluster"]["worker"]
    cluster = {"chief": [host], "worker": [local_cluster(1)[0]["cluster"]["worker"][0]]}

    def work(_, index):
        task = [("chief", 0), ("worker", 0)][index]
        with Joined(SimpleClusterResolver(cluster, "", *task)) as strategy:
            context = strategy.input_context()
            return strategy.extended.worker_index, context.input_pipeline_id

    assert values(outcomes(2, work)) == [(0, 0), (1, 1)]


def test_co_17_sparse_gradients_equal_the_dense_reference(outcomes):
    """Rows that several workers and replicas touch, and rows that one touches twice."""
    rows = [[0, 0], [0, 3], [3, 5], [1, 0]]

    def train(strategy, index):
        with VariableStore().building(), strategy.scope():
            table = pl.get_variable("table", (6, 2), np.float64, initializer=0.0)
            optimizer = optimizers.SGD(1.0)

            def step():
                mine = rows[get_replica_context().replica_id_in_sync_group]
                optimizer.minimize(np.sum(np.take(table, np.array(mine), axis=0)))()

            strategy.run(step)
        return table.local_values()

    expected = np.zeros((6, 2))
    for row in np.concatenate(rows):
        expected[row] -= 1 / 4
    for worker in values(outcomes(2, on_each(train, num_replicas=2))):
        for copy in worker:
            np.testing.assert_array_equal(copy, expected)


@pytest.mark.parametrize("replicas", [1, 2])
def test_mb_02_an_on_read_variable_is_counted_by_each_replica_for_itself(outcomes, replicas):
    """However often each does: nothing travels before it is read."""

    def work(strategy, index):
        with VariableStore().building(), strategy.scope():
            count = pl.Variable(
                0.0,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
        for _ in range(index + 1):
            own = strategy.run(lambda: float(count.assign_add(1.0).value().numpy()))
        return strategy.experimental_local_results(own), float(count.numpy())

    found = values(outcomes(2, on_each(work, replicas)))
    assert found == [((1.0,) * replicas, 3.0 * replicas), ((2.0,) * replicas, 3.0 * replicas)]


@pytest.mark.parametrize("axis", [0, 1])
def test_co_13_gather_along_each_axis_equals_numpy(outcomes, axis):
    def part(replica_id):
        shape = [2, 3]
        shape[axis] = replica_id  # that of the first replica is empty
        return np.full(shape, float(replica_id))

    def work(strategy, index):
        mine = PerReplica([part(2 * index), part(2 * index + 1)])
        return strategy.gather(mine, axis=axis)

    for gathered in values(outcomes(2, on_each(work, num_replicas=2))):
        np.testing.assert_array_equal(gathered, np.concatenate([part(i) for i in range(4)], axis))


def test_a_first_task_without_an_address_is_named_with_what_to_do(alone):
    """Mpirun tells nobody's address, and the others come together at the first one's under RING."""
    environ = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    resolver = MPIClusterResolver(environ=environ)
    with pytest.raises(ClusterError, match=r"address of worker 0, .*set TF_CONFIG"):
        pl.MultiWorkerMirroredStrategy("RING", resolver)


@pytest.mark.host
def test_st_09_variables_of_its_scope_live_on_the_host(alone):
    strategy = pl.MultiWorkerMirroredStrategy(devices=["CPU:0"])
    with strategy.scope():
        variable = pl.Variable([1.0, 2.0])
    assert variable.device == variable.value().device
    assert variable.device.endswith("device:CPU:0")
    assert type(variable.numpy()) is np.ndarray
