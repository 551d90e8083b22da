"""What replicas and workers must do alike: the order of gradients, what is left out, the rules."""

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import IndexedSlices
from paceline.nn import optimizers
from paceline.strategies import (
    CrossDeviceOps,
    MirroredStrategy,
    Variable,
    VariableStore,
    get_replica_context,
)
from paceline.strategies.gradients.agreement import DisagreementError, digest, is_common
from paceline.strategies.replicas.rendezvous import ReplicaAbortedError

SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
"""Workers, and replicas of each."""


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]} workers of {size[1]}")
def everywhere(request, on_workers):
    """`everywhere(fn)`: what `fn(strategy, worker)` returned on each worker."""
    workers, replicas = request.param
    return lambda fn: on_workers(workers, replicas, fn)


def trained(strategy, store, optimizer, loss_in, steps):
    """The trainable values after steps whose loss `loss_in(replica_id, step)` computes."""

    def step(index):
        with store.building():
            loss = loss_in(get_replica_context().replica_id_in_sync_group, index)
            optimizer().minimize(loss)()

    for index in range(steps):
        strategy.run(step, (index,))
    with strategy.scope():
        return {v.name: v.numpy() for v in store.trainable_variables()}


def two_heads(uses_first):
    """A loss of two heads with gradients -1 and -1 or -3, of which each replica uses one."""
    heads = [pl.get_variable(name, (1,), np.float64, 0.0) for name in ("a", "b")]
    gradients = (-1.0, -3.0)
    chosen = 0 if uses_first else 1
    return np.sum(heads[chosen] * gradients[chosen])


def test_gradients_meet_by_variable_whatever_each_worker_saw_first(everywhere):
    """Worker 0 sees head a first, worker 1 head b: their buckets hold the same all the same."""

    def run(strategy, _):
        store = VariableStore(averages_replicas=True)
        n = strategy.num_replicas_in_sync
        found = trained(
            strategy,
            store,
            lambda: optimizers.SGD(1.0),
            lambda replica, step: two_heads((replica + step) % 2 == 0),
            steps=2,
        )
        even = sum((replica + step) % 2 == 0 for replica in range(n) for step in range(2)) / n
        return found, {"a": [even], "b": [3 * (2 - even)]}

    for found, expected in everywhere(run):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-15)


@pytest.mark.parametrize("reads_rows", [0, 1, -1])
def test_rows_and_whole_gradients_of_one_variable_add_up(everywhere, reads_rows):
    """In each step some replicas read rows of a table and the others all of it."""

    def run(strategy, _):
        store = VariableStore(averages_replicas=True)
        n = strategy.num_replicas_in_sync

        def loss(replica, step):
            table = pl.get_variable("table", (3, 1), np.float64, 0.0)
            if (replica + step) % n == reads_rows % n:
                return np.sum(np.take(table, np.array([2, 2]), axis=0))
            return np.sum(table)

        return trained(strategy, store, lambda: optimizers.SGD(1.0), loss, steps=n)["table"], n

    for found, n in everywhere(run):
        whole = (n - 1) / n * n
        np.testing.assert_allclose(found.ravel(), [-whole, -whole, -whole - 2], rtol=1e-12)


RULES = {
    "Ftrl": lambda: optimizers.Ftrl(0.5),
    "AdamW": lambda: optimizers.AdamW(0.5, weight_decay=0.5),
    "Adam": lambda: optimizers.Adam(0.5),
    "SGD": lambda: optimizers.SGD(0.5, momentum=0.9),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_variable_without_a_gradient_on_any_replica_keeps_its_value(everywhere, rule):
    def run(strategy, _):
        store = VariableStore(averages_replicas=True)

        def loss(replica, step):
            pl.get_variable("unused", (2,), initializer=1.0)
            table = pl.get_variable("unused table", (2, 1), initializer=1.0)
            used = pl.get_variable("used", (2,), initializer=1.0)
            np.take(table, np.array([0]), axis=0)
            return np.sum(np.square(used))

        return trained(strategy, store, RULES[rule], loss, steps=2)

    for found in everywhere(run):
        assert found["unused"].tolist() == [1.0, 1.0]
        assert found["unused table"].ravel().tolist() == [1.0, 1.0]
        assert (found["used"] != 1.0).all()


@pytest.mark.parametrize("rule", RULES)
def test_a_variable_that_only_one_replica_uses_changes_as_by_the_mean(everywhere, rule):
    def run(strategy, _):
        n = strategy.num_replicas_in_sync

        def loss(replica, step):
            variable = pl.get_variable("v", (2,), np.float64, 1.0)
            other = pl.get_variable("other", (), np.float64, 1.0)
            part = np.sum(np.square(variable)) if replica == n - 1 else np.float64(0.0)
            return part + np.square(other)

        def loss_of_one(replica, step):
            variable = pl.get_variable("v", (2,), np.float64, 1.0)
            return np.sum(np.square(variable)) / n

        found = trained(strategy, VariableStore(), RULES[rule], loss, steps=3)["v"]
        alone = VariableStore()
        return found, trained(pl.get_strategy(), alone, RULES[rule], loss_of_one, 3)["v"]

    for found, expected in everywhere(run):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("in_replica", [True, False])
def test_a_variable_that_is_given_twice_has_the_sum_of_its_gradients(in_replica):
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        v, w = Variable(np.zeros(2)), Variable(np.zeros((3, 1)))
        optimizer = optimizers.SGD(1.0)

    def apply():
        rows = IndexedSlices(np.ones((1, 1)), np.array([1]), (3, 1))
        pairs = [(np.ones(2), v), (rows, w), (None, v), (np.full(2, 10.0), v), (np.ones((3, 1)), w)]
        optimizer.apply_gradients(pairs)

    with strategy.scope():
        strategy.run(apply) if in_replica else apply()
    times = n if in_replica else 1
    assert v.numpy().tolist() == [-11.0 * times] * 2
    assert w.numpy().ravel().tolist() == [-1.0 * times, -2.0 * times, -1.0 * times]


def test_a_reduction_may_return_a_new_array():
    class Mine(CrossDeviceOps):
        def reduce(self, arrays, destination, out=None):
            return sum(destination.bring(array) for array in arrays)

    strategy = MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Mine())
    with strategy.scope():
        w, optimizer = Variable(np.zeros(1)), optimizers.SGD(1.0)

    def step():
        index = get_replica_context().replica_id_in_sync_group
        optimizer.apply_gradients([(np.array([10.0**index]), w)])

    strategy.run(step)
    assert w.numpy().tolist() == [-11.0]


def rank_dependent(what):
    """A step in which the last replica of all does something else; what the error says of it."""

    def is_last():
        replica = get_replica_context()
        return replica.replica_id_in_sync_group == replica.num_replicas_in_sync - 1

    def loss():
        found = [pl.get_variable(n, (2,), np.float64, 1.0) for n in ("v", "w")]
        return np.sum(np.square(found[0])) + np.sum(np.square(found[1]))

    def by(usual, other):
        return lambda: (other if is_last() else usual)().minimize(loss())()

    steps = {
        "learning rate": by(lambda: optimizers.SGD(0.1), lambda: optimizers.SGD(0.5)),
        "schedule": by(
            lambda: optimizers.SGD(0.1), lambda: optimizers.SGD(lambda step: 0.1 + 0.1 * step)
        ),
        "hyper-parameter": by(lambda: optimizers.Adam(0.1), lambda: optimizers.Adam(0.1, 0.8)),
        "clipping": by(
            lambda: optimizers.Adam(0.1, clipnorm=1.0), lambda: optimizers.Adam(0.1, clipnorm=2.0)
        ),
    }
    words = {
        "learning rate": ["'learning_rate': 0.5", "'learning_rate': 0.1"],
        "schedule": ["'learning_rate': 0.2", "'learning_rate': 0.1"],
        "hyper-parameter": ["'beta_1': 0.8", "'beta_1': 0.9"],
        "clipping": ["'clipnorm': 2.0", "'clipnorm': 1.0"],
    }
    return steps[what], words[what]


@pytest.mark.parametrize("what", ["learning rate", "schedule", "hyper-parameter", "clipping"])
@pytest.mark.parametrize("size", [(1, 2), (2, 1), (3, 1)])
def test_who_makes_another_step_is_named_before_any_copy_changes(what, size, on_workers):
    step, words = rank_dependent(what)
    workers, replicas = size

    def run(strategy, _):
        store = VariableStore(averages_replicas=True)

        def one():
            with store.building():
                step()

        def two_steps():
            strategy.run(one)
            strategy.run(one)

        with pytest.raises((DisagreementError, ReplicaAbortedError)) as caught:
            two_steps()
        with strategy.scope():
            return str(caught.value), [v.numpy() for v in store.trainable_variables()]

    found = on_workers(workers, replicas, run)
    who = f"replica {replicas - 1}" if replicas > 1 else f"worker {workers - 1}"
    ours = found[-1][0]
    assert who in ours
    assert all(word in ours for word in words)
    if replicas == 1:
        assert {text for text, _ in found} == {ours}
    first = found[0][1]
    for _, values in found:
        for value, other in zip(values, first, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("size", [(1, 2), (2, 1), (3, 1)])
def test_copies_that_have_come_to_differ_are_named_in_the_next_thousandth_step(size, on_workers):
    """In the first step, say, when one worker has read other weights than the others."""
    workers, replicas = size

    def run(strategy, index):
        store = VariableStore(averages_replicas=True)

        def step():
            with store.building():
                same = pl.get_variable("same", (2,), np.float64, 1.0)
                other = pl.get_variable("other", (2,), np.float64, 1.0)
                replica = get_replica_context()
                if replica.replica_id_in_sync_group == replica.num_replicas_in_sync - 1:
                    index = replica.local_index
                    other.leaf(index).data = other.device_of(index).put(np.full(2, 3.0))
                optimizers.SGD(0.1).minimize(np.sum(same * other))()

        with pytest.raises((DisagreementError, ReplicaAbortedError)) as caught:
            strategy.run(step)
        return str(caught.value)

    text = on_workers(workers, replicas, run)[-1]
    assert "a value of 'other' with checksum" in text
    assert "'same' with" not in text


@pytest.mark.parametrize("num_workers", [1, 2, 3, 7, 1000])
def test_sums_of_digests_show_whether_all_had_the_same_lines(num_workers):
    def total(all_lines):
        return np.sum([digest(lines) for lines in all_lines], axis=0).tolist()

    same = [["update 3 by SGD", "of v"]] * num_workers
    assert is_common(total(same))
    assert is_common(total([*same, []]))
    for other in (["update 3 by SGD"], ["of v", "update 3 by SGD"], ["update 4 by SGD", "of v"]):
        assert not is_common(total([*same, other]))
        assert not is_common(total([other, *same, []]))
