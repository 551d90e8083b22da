"""What every strategy does, as checks that any strategy can be put through.

Each check takes a function that makes a strategy, and asserts. Expected values are formulas in a
replica's id and the number of replicas, so that the checks hold for one worker of many as well; all
workers have to run them in the same order.

    for check in CHECKS:
        check(make_strategy)
"""

import numpy as np
import pytest

from paceline.autodiff import Tensor
from paceline.nn import optimizers
from paceline.strategies import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_replica_context,
    get_strategy,
    in_cross_replica_context,
)


def check_scope_makes_the_strategy_current(make_strategy):
    strategy = make_strategy()
    outside = get_strategy()
    with strategy.scope():
        assert get_strategy() is strategy
        assert in_cross_replica_context()
    assert get_strategy() is outside


def check_every_replica_runs_once_with_its_own_id(make_strategy):
    strategy = make_strategy()
    assert _results(strategy, strategy.run(_replica_id)) == _local_ids(strategy)


def check_values_from_a_function_reach_their_replicas(make_strategy):
    strategy = make_strategy()
    values = strategy.experimental_distribute_values_from_function(
        lambda context: {"id": context.replica_id_in_sync_group, "n": context.num_replicas_in_sync}
    )
    seen = strategy.run(lambda v: (v["id"] == _replica_id(), v["n"]), (values,))
    assert all(_results(strategy, seen[0]))
    assert set(_results(strategy, seen[1])) == {strategy.num_replicas_in_sync}


def check_reduce_combines_over_replicas(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    per_replica = strategy.run(lambda: np.array([1.0, _replica_id()]))
    assert strategy.reduce("SUM", per_replica).tolist() == [n, n * (n - 1) / 2]
    assert strategy.reduce("MEAN", per_replica).tolist() == [1.0, (n - 1) / 2]


def check_reduce_over_an_axis_weighs_by_elements(make_strategy):
    """Replica i has i + 1 elements of the value i."""
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    per_replica = strategy.run(lambda: np.full(_replica_id() + 1, float(_replica_id())))
    total = sum(i * (i + 1) for i in range(n))
    count = n * (n + 1) / 2
    assert strategy.reduce("SUM", per_replica, axis=0) == total
    np.testing.assert_allclose(strategy.reduce("MEAN", per_replica, axis=0), total / count)


def check_gather_joins_in_order_of_replica_ids(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    gathered = strategy.gather(strategy.run(lambda: np.array([_replica_id()] * 2)), axis=0)
    assert gathered.tolist() == [i for i in range(n) for _ in range(2)]


def check_all_reduce_gives_every_replica_the_same(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync

    def step():
        replica = get_replica_context()
        total = replica.all_reduce("SUM", {"id": _replica_id(), "one": [np.ones(3)]})
        mean = replica.all_reduce("MEAN", float(_replica_id()))
        return float(total["id"]), float(total["one"][0].sum()), float(mean)

    ids, ones, means = strategy.run(step)
    assert set(_results(strategy, ids)) == {n * (n - 1) / 2}
    assert set(_results(strategy, ones)) == {3.0 * n}
    assert set(_results(strategy, means)) == {(n - 1) / 2}


def check_all_gather_takes_unequal_lengths(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync

    def step():
        mine = np.full((_replica_id() + 1, 2), _replica_id())
        return tuple(get_replica_context().all_gather(mine, axis=0)[:, 0].tolist())

    gathered = np.array([_results(strategy, value) for value in strategy.run(step)])
    for column in gathered.T:
        assert column.tolist() == [i for i in range(n) for _ in range(i + 1)]


def check_merge_call_runs_once_per_worker_in_cross_replica_context(make_strategy):
    strategy = make_strategy()
    calls = []

    def merge(merging, ids):
        assert merging is strategy
        assert in_cross_replica_context()
        calls.append(_results(strategy, ids))
        return ids

    back = strategy.run(lambda: get_replica_context().merge_call(merge, (_replica_id(),)))
    assert calls == [_local_ids(strategy)]
    assert _results(strategy, back) == _local_ids(strategy)


def check_a_merge_call_gives_tensors_that_each_replica_computes_with(make_strategy):
    """The call computes on the host, and each replica on its own device."""
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync

    def merge(merging, mine):
        total = merging.reduce("SUM", mine)
        return total, total * np.full(2, 0.5), _results(merging, mine)[0]

    def step():
        mine = Tensor(np.full(2, _replica_id() + 1.0))
        found = get_replica_context().merge_call(merge, (mine,))
        return [(mine * (value + np.ones(2))).numpy() for value in found]

    total = n * (n + 1) / 2
    firsts = _local_ids(strategy)[0] + 1
    for column, value in zip(strategy.run(step), [total, total / 2, firsts], strict=True):
        for found, replica_id in zip(_results(strategy, column), _local_ids(strategy), strict=True):
            np.testing.assert_allclose(found, (replica_id + 1) * (value + 1))


def check_what_one_replica_has_given_may_be_given_to_all(make_strategy):
    strategy = make_strategy()
    parts = strategy.run(lambda: Tensor(np.full(2, _replica_id() + 1.0)) * 3)
    first = _results(strategy, parts)[0]

    def step(given, arrays):
        own = Tensor(np.ones(2))
        return (own + given).numpy(), (own + arrays["of it"]).numpy()

    found = strategy.run(step, (first,), {"arrays": {"of it": first.data}})
    for part in found:
        for values in _results(strategy, part):
            np.testing.assert_array_equal(values, 3 * (_local_ids(strategy)[0] + 1) + np.ones(2))


def check_a_variable_is_written_everywhere_from_outside(make_strategy):
    strategy = make_strategy()
    with strategy.scope():
        variable = Variable([1.0, 2.0])
    variable.assign([3.0, 4.0]).assign_add([1.0, 1.0])
    assert variable.numpy().tolist() == [4.0, 5.0]
    read = strategy.run(lambda: float(np.sum(variable).item()))
    assert set(_results(strategy, read)) == {9.0}


def check_assignments_in_replicas_are_aggregated(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    expected = {
        VariableAggregation.SUM: n * (n + 1) / 2,
        VariableAggregation.MEAN: (n + 1) / 2,
        VariableAggregation.ONLY_FIRST_REPLICA: 1.0,
    }
    for aggregation, value in expected.items():
        with strategy.scope():
            variable = Variable(0.0, aggregation=aggregation)
        strategy.run(lambda variable=variable: variable.assign(_replica_id() + 1.0))
        assert variable.item() == value
        read = strategy.run(lambda variable=variable: variable.item())
        assert set(_results(strategy, read)) == {value}


def check_an_on_read_sum_is_kept_by_replicas_and_read_as_a_whole(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        total = Variable(
            0,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
    for _ in range(2):
        strategy.run(lambda: total.assign_add(_replica_id()))
    assert int(total) == n * (n - 1)
    total.assign(int(total))
    assert int(total) == n * (n - 1)


def check_minimize_follows_the_mean_over_all_examples(make_strategy):
    """Replica i has i + 1 examples of the value i; the loss is the mean of w · x."""
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        w = Variable(np.zeros(()))
        optimizer = optimizers.SGD(1.0)

    def step():
        x = np.full(_replica_id() + 1, float(_replica_id()))
        optimizer.minimize(np.mean(w * x), var_list=[w])(num_examples=len(x))

    mean = sum(i * (i + 1) for i in range(n)) / (n * (n + 1) / 2)
    for k in (1, 2):
        strategy.run(step)
        np.testing.assert_allclose(w.numpy(), -k * mean)
    assert len({copy.tobytes() for copy in w.local_values()}) == 1


def check_apply_gradients_sums_over_replicas(make_strategy):
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        w = Variable(np.zeros(2))
        optimizer = optimizers.SGD(1.0)
    strategy.run(lambda: optimizer.apply_gradients([(np.array([1.0, _replica_id()]), w)]))
    assert w.numpy().tolist() == [-n, -n * (n - 1) / 2]


def check_one_replica_has_no_data(make_strategy):
    """The last of several makes all calls with the others, and its values, which are none, weigh
    nothing: in sums, means, joined arrays, variables and gradients."""
    strategy = make_strategy()
    n = strategy.num_replicas_in_sync
    num_with_data = max(n - 1, 1)
    with strategy.scope():
        w = Variable(np.zeros(()))
        optimizer = optimizers.SGD(1.0)
        assigned = {a: Variable(0.0, aggregation=a) for a in _AGGREGATIONS}
        seen = Variable(
            0.0,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )

    def merge(merging, values):
        return [*merging.reduce("MEAN", values), *merging.gather(values, axis=0)]

    def step():
        replica = get_replica_context()
        mine = np.array([_replica_id() + 1.0])
        if n > 1 and _replica_id() == n - 1:
            replica.stand_in()
            mine = np.array([np.nan])
        optimizer.minimize(np.sum(w * mine), var_list=[w])(num_examples=1)
        for variable in assigned.values():
            variable.assign(mine[0])
        seen.assign_add(mine[0])
        exchanged = [replica.all_reduce(op, mine)[0] for op in ("SUM", "MEAN")]
        exchanged += list(replica.all_gather(mine, axis=0))
        return exchanged + replica.merge_call(merge, (mine,))

    total = num_with_data * (num_with_data + 1) / 2
    mean, rows = total / num_with_data, [i + 1.0 for i in range(num_with_data)]
    expected = [total, mean, *rows, mean, *rows]
    for column, value in zip(strategy.run(step), expected, strict=True):
        assert {np.asarray(found).item() for found in _results(strategy, column)} == {value}
    assert [variable.numpy() for variable in assigned.values()] == [total, mean, 1.0]
    assert seen.numpy() == total
    np.testing.assert_allclose(w.numpy(), -mean)


_AGGREGATIONS = (
    VariableAggregation.SUM,
    VariableAggregation.MEAN,
    VariableAggregation.ONLY_FIRST_REPLICA,
)


def check_an_error_in_one_replica_ends_the_run(make_strategy):
    strategy = make_strategy()

    def step():
        if get_replica_context().local_index == 0:
            raise ZeroDivisionError("on purpose")
        get_replica_context().all_reduce("SUM", 1.0)

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        strategy.run(step)
    assert set(_results(strategy, strategy.run(lambda: "goes on"))) == {"goes on"}


CHECKS = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))


def _replica_id():
    return get_replica_context().replica_id_in_sync_group


def _results(strategy, value):
    return strategy.experimental_local_results(value)


def _local_ids(strategy):
    extended = strategy.extended
    first = extended.worker_index * extended.num_local_replicas
    return tuple(range(first, first + extended.num_local_replicas))
