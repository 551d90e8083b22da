"""Steps of training over replicas: what gradients, weights and copies are in the end."""

import copy

import numpy as np
import pytest

from paceline.autodiff import GradientTape, IndexedSlices
from paceline.compat.tf.train import GradientDescentOptimizer
from paceline.nn import optimizers
from paceline.strategies import (
    DEFAULT_STRATEGY,
    OneDeviceStrategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
)

RATE = 0.25


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def parts_of(strategy, array, lengths=None):
    """Consecutive parts of a batch for the replicas."""
    n = strategy.num_replicas_in_sync
    parts = np.split(array, np.cumsum(lengths)[:-1] if lengths else n)
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )


class LinearModel:
    """A scalar w with the loss mean(w · x), whose gradient is the mean of x."""

    def __init__(self, strategy, optimizer=None):
        self.strategy = strategy
        with strategy.scope():
            self.w = Variable(np.zeros((), np.float64))
            self.optimizer = optimizer or optimizers.SGD(RATE)

    def replica_step(self, x):
        loss = np.sum(self.w * x) / max(len(x), 1)
        self.optimizer.minimize(loss, var_list=[self.w])(len(x))

    def step(self, batch, lengths=None):
        self.strategy.run(self.replica_step, (parts_of(self.strategy, batch, lengths),))

    @property
    def copies(self):
        return [value.item() for value in self.w.local_values()]


def test_minimize_follows_the_mean_over_the_global_batch(every_strategy, num_copies):
    model = LinearModel(every_strategy)
    model.step(np.arange(8.0))
    assert model.copies == [-RATE * 3.5] * num_copies


@pytest.mark.parametrize("lengths", [[4, 2], [2, 4], [6, 0], [0, 6], [5, 1]])
def test_unequal_batches_weigh_by_their_examples(lengths, two_replicas):
    model = LinearModel(two_replicas)
    batch = np.array([6.0, 0.0, 12.0, 18.0, 24.0, 30.0])
    model.step(batch, lengths)
    assert model.copies == pytest.approx([-RATE * 15.0] * 2, rel=1e-15)
    assert model.copies[0] == model.copies[1]
    assert [int(c) for c in model.optimizer.iterations.local_values()] == [1, 1]


def test_all_strategies_of_one_replica_do_the_same_to_the_bit(mirrored):
    x = np.random.default_rng(0).normal(size=7)
    results = set()
    for strategy in DEFAULT_STRATEGY, OneDeviceStrategy("CPU:0"), mirrored(1):
        model = LinearModel(strategy)
        for _ in range(10):
            model.step(x)
        results.update(model.copies)
    expected = 0.0
    for _ in range(10):
        expected -= RATE * np.sum(x * (1.0 / 7))
    assert len(results) == 1
    assert results.pop() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("num_replicas", "make_optimizer"),
    [
        (2, lambda: optimizers.SGD(0.01, momentum=0.9, nesterov=True)),
        (4, lambda: optimizers.Adam(0.01)),
    ],
    ids=["2 replicas, momentum", "4 replicas, adam"],
)
def test_st_32_copies_are_bit_equal_after_1000_steps(num_replicas, make_optimizer, mirrored):
    strategy = mirrored(num_replicas)
    rng = np.random.default_rng(0)
    with strategy.scope():
        w = Variable(rng.normal(size=(3, 4)).astype(np.float32))
        b = Variable(np.zeros(4, np.float32))
        v = Variable(rng.normal(size=(4, 1)).astype(np.float32))
        optimizer = make_optimizer()
    x = [rng.normal(size=(5 + i, 3)).astype(np.float32) for i in range(num_replicas)]

    def steps():
        mine = x[replica_id()]
        for _ in range(250):
            outputs = np.tanh(mine @ w + b) @ v
            loss = np.mean(np.square(outputs - mine[:, :1]))
            optimizer.minimize(loss, var_list=[w, b, v])(num_examples=len(mine))
        return loss.item()

    first = strategy.run(steps)
    for _ in range(3):
        last = strategy.run(steps)
    assert sum(last) < sum(first)
    assert int(optimizer.iterations) == 1000
    kept = [slot for variable in (w, b, v) for slot in optimizer.slots(variable)]
    for variable in (w, b, v, *kept):
        assert variable.num_copies == num_replicas
        assert len({copy.tobytes() for copy in variable.local_values()}) == 1


def test_results_are_the_same_bits_in_every_run(mirrored):
    rng = np.random.default_rng(0)
    strategy = mirrored(4)
    x = rng.normal(size=(4, 6, 8)).astype(np.float32)
    initial = rng.normal(size=(8, 3)).astype(np.float32)

    def train():
        with strategy.scope():
            w = Variable(initial)
            optimizer = optimizers.Adam(0.1)

        def steps():
            mine = x[replica_id()]
            for _ in range(3):
                loss = np.mean(np.square(np.tanh(mine @ w) - 0.5))
                optimizer.minimize(loss, var_list=[w])(num_examples=1 + replica_id())

        strategy.run(steps)
        return w.numpy().tobytes()

    assert len({train() for _ in range(50)}) == 1


def test_mb_14_apply_gradients_sums_over_replicas(every_strategy, num_copies):
    n = every_strategy.num_replicas_in_sync
    with every_strategy.scope():
        w = Variable(np.zeros(2))
        unused = Variable(np.ones(2))
        optimizer = optimizers.SGD(RATE)

    def step():
        with GradientTape() as tape:
            loss = np.sum(w * (1.0 + replica_id()))
        gradients = tape.gradient(loss, [w, unused])
        optimizer.apply_gradients(zip(gradients, [w, unused], strict=True))

    for k in (1, 2):
        every_strategy.run(step)
        expected = [-RATE * k * sum(range(1, n + 1))] * 2
        assert [copy.tolist() for copy in w.local_values()] == [expected] * num_copies
    assert unused.numpy().tolist() == [1.0, 1.0]


def test_gradients_that_are_applied_stay_the_callers(two_replicas):
    with two_replicas.scope():
        w, table = Variable(np.zeros(2)), Variable(np.zeros((3, 1)))
        optimizer = optimizers.SGD(RATE)
    whole, some = np.ones(2), IndexedSlices(np.ones((1, 1)), np.array([1]), (3, 1))
    two_replicas.run(lambda: optimizer.apply_gradients([(whole, w), (some, table)]))
    assert whole.tolist() == [1.0, 1.0]
    assert some.values.tolist() == [[1.0]]
    assert table.numpy().tolist() == [[0.0], [-2 * RATE], [0.0]]


def test_rows_of_a_table_are_trained_as_the_whole_table_would_be(every_strategy):
    n = every_strategy.num_replicas_in_sync
    ids = np.array([[0, 2, 2], [1, 2, 0], [4, 4, 4], [0, 1, 2]])[:n]

    def trained(read):
        with every_strategy.scope():
            table = Variable(np.arange(10.0).reshape(5, 2))
            optimizer = optimizers.SGD(RATE)

        def step():
            loss = np.mean(np.square(read(table, ids[replica_id()])))
            optimizer.minimize(loss, var_list=[table])(num_examples=3)

        for _ in range(3):
            every_strategy.run(step)
        return table.local_values()

    by_rows = trained(lambda table, rows: np.take(table, rows, axis=0))
    whole = trained(lambda table, rows: np.eye(5)[rows] @ table)
    for one, other in zip(by_rows, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert len({copy.tobytes() for copy in by_rows}) == 1


def test_a_step_that_failed_does_not_harm_the_next(two_replicas):
    model = LinearModel(two_replicas)

    def failing(x):
        if replica_id() == 1:
            raise ZeroDivisionError
        model.replica_step(x)

    model.step(np.ones(4))
    with pytest.raises(ZeroDivisionError):
        two_replicas.run(failing, (np.ones(2),))
    assert model.copies == [-RATE] * 2
    model.step(np.ones(4))
    assert model.copies == [-2 * RATE] * 2


def test_many_steps_in_one_run_wait_for_each_other(mirrored, threads_alternate):
    strategy = mirrored(4)
    model = LinearModel(strategy)

    def steps():
        for k in range(100):
            model.replica_step(np.full(2, float(4 * k + replica_id())))

    strategy.run(steps)
    assert model.copies == [-RATE * sum(4 * k + 1.5 for k in range(100))] * 4


def test_a_variable_shared_by_all_replicas_is_trained_once(two_replicas, log_lines):
    shared = Variable(np.zeros(()), name="shared")
    with two_replicas.scope():
        own = Variable(np.zeros(()))
        optimizer = optimizers.SGD(RATE, momentum=0.5)

    def step():
        loss = shared * (1.0 + replica_id()) + own * 2.0
        optimizer.minimize(loss, var_list=[shared, own])()

    two_replicas.run(step)
    assert shared.numpy() == -RATE * 1.5
    assert [copy.item() for copy in own.local_values()] == [-RATE * 2.0] * 2
    assert any("'shared' was created outside the scope" in line for line in log_lines())


def test_mirrored_variables_are_not_trained_outside_run(two_replicas):
    """The only replica there is the default strategy's: one copy would go ahead of the others."""
    with two_replicas.scope():
        w = Variable(1.0, name="w")
        optimizer = optimizers.SGD(RATE)
    with pytest.raises(
        RuntimeError, match=r"'w.* used by 1 replica.*make training steps in its run"
    ):
        optimizer.minimize(w * 2.0, var_list=[w])()
    assert [copy.item() for copy in w.local_values()] == [1.0, 1.0]


def test_several_optimizers_make_one_step(every_strategy, num_copies):
    """As generator and discriminator do: each changes variables of its own."""
    n = every_strategy.num_replicas_in_sync
    with every_strategy.scope():
        a, b = Variable(np.array(1.0)), Variable(np.array(1.0))
        first, second = optimizers.SGD(RATE), optimizers.SGD(2 * RATE)

    def step():
        scale = 1.0 + replica_id()
        op = optimizers.group(
            first.minimize(a * scale, var_list=[a]), second.minimize(b * scale, var_list=[b])
        )
        op(num_examples=1)

    every_strategy.run(step)
    mean = np.mean([1.0 + i for i in range(n)])
    assert [copy.item() for copy in a.local_values()] == [1 - RATE * mean] * num_copies
    assert [copy.item() for copy in b.local_values()] == [1 - 2 * RATE * mean] * num_copies


def test_one_optimizer_twice_in_one_step_is_refused(two_replicas):
    with two_replicas.scope():
        w = Variable(0.0)
        optimizer = optimizers.SGD(RATE)

    def step():
        ops = [optimizer.minimize(w * 2.0, var_list=[w]) for _ in range(2)]
        optimizers.group(*ops)(num_examples=1)

    with pytest.raises(RuntimeError, match="one optimizer changes the same variables twice"):
        two_replicas.run(step)


def test_grouped_updates_all_follow_the_values_before_the_step(every_strategy):
    """The second loss was computed from the variables that the first update changes."""
    with every_strategy.scope():
        a, b = Variable(np.array(3.0)), Variable(np.array(5.0))
        first, second = optimizers.SGD(1.0), optimizers.SGD(1.0)

    def step():
        loss = a * b
        optimizers.group(
            first.minimize(loss, var_list=[a]), second.minimize(loss * 1.0, var_list=[b])
        )()

    every_strategy.run(step)
    assert (a.numpy(), b.numpy()) == (3.0 - 5.0, 5.0 - 3.0)


def test_one_optimizer_with_two_lists_of_variables(mirrored, threads_alternate):
    """In a custom loop all replicas share the optimizer object, and may be at different lists."""
    strategy = mirrored(4)
    with strategy.scope():
        a, b = Variable(np.zeros(2)), Variable(np.zeros(3))
        optimizer = optimizers.SGD(1.0)

    def steps():
        for _ in range(100):
            optimizer.apply_gradients([(np.ones(2), a)])
            optimizer.apply_gradients([(np.ones(3), b)])

    strategy.run(steps)
    assert [copy.tolist() for copy in a.local_values()] == [[-400.0] * 2] * 4
    assert [copy.tolist() for copy in b.local_values()] == [[-400.0] * 3] * 4


def test_a_copy_of_an_optimizer_begins_with_nothing():
    used = optimizers.SGD(RATE, momentum=0.5)
    for _ in range(2):
        used = copy.deepcopy(used)
        with VariableStore().building():
            w = Variable(np.zeros(()), name="w")
            used.apply_gradients([(np.ones(()), w)])
            assert w.numpy() == -RATE
            assert used.iterations.numpy() == 1


def test_gradients_of_nobody_with_examples_are_no_update(every_strategy):
    def step():
        get_replica_context().stand_in()
        optimizer.apply_gradients([(np.ones(2), w)])

    with every_strategy.scope():
        w, optimizer = Variable(np.zeros(2), name="w"), optimizers.SGD(RATE)
        every_strategy.run(step)
    assert {tuple(copy.tolist()) for copy in w.local_values()} == {(0.0, 0.0)}
    assert {int(count) for count in optimizer.iterations.local_values()} == {0}


def test_mb_16_minimize_increases_the_step_that_it_is_given(every_strategy):
    """`GradientDescentOptimizer.minimize(loss, global_step)` of TensorFlow 1.x, by its own name."""
    with VariableStore().building(), every_strategy.scope():
        step, w = get_or_create_global_step(), Variable(4.0)
        optimizer = GradientDescentOptimizer(0.25)
        for _ in range(3):
            every_strategy.run(lambda: optimizer.minimize(np.square(w), global_step=step)())
        assert int(step) == 3
        assert float(w) == 0.5
