"""What several trainers in step assign and apply becomes what it becomes under other strategies."""

import contextvars
import threading

import numpy as np
import pytest

from paceline.nn import optimizers
from paceline.strategies import VariableAggregation, VariableStore, get_variable

SUM, MEAN = VariableAggregation.SUM, VariableAggregation.MEAN
FIRST = VariableAggregation.ONLY_FIRST_REPLICA


@pytest.fixture
def on_trainers(server_job):
    """`on_trainers(call)`: what `call(strategy, rank)` returns on each of two, at the same time."""

    def run(call):
        job = server_job(1, 2, 0)
        results, errors = [None, None], []

        def work(rank):
            try:
                with VariableStore(seed=0).building():
                    strategy = job.strategy(rank)
                    results[rank] = call(strategy, rank)
                    strategy.extended.job.finish()
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work, rank), daemon=True)
            for rank in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        if errors:
            raise errors[0]
        return results

    return run


@pytest.fixture
def both_kinds(on_trainers, on_workers):
    """The same on two trainers of parameter servers, and on two workers with mirrored variables."""
    return {"parameter servers": on_trainers, "mirrored": lambda call: on_workers(2, 1, call)}


@pytest.mark.parametrize("kind", ["parameter servers", "mirrored"])
@pytest.mark.parametrize(
    ("dtype", "aggregation", "total"),
    [
        (np.int64, SUM, 30),
        (np.float32, SUM, 30),
        (np.int64, FIRST, 10),
        (np.float32, FIRST, 10),
        (np.float32, MEAN, 15),
    ],
)
def test_what_is_added_in_a_step_is_aggregated(both_kinds, kind, dtype, aggregation, total):
    """Worker 0 adds 10, worker 1 adds 20."""

    def count(strategy, rank):
        def step():
            seen = get_variable(
                "seen", (), dtype, initializer=0, trainable=False, aggregation=aggregation
            )
            weight = get_variable("weight", (), initializer=0.0)
            seen.assign_add(4 * (rank + 1))
            seen.assign_sub(-6 * (rank + 1))
            optimizers.SGD(1.0).minimize(weight + 0.0, var_list=[weight])(num_examples=1)
            return seen

        return strategy.run(step).item()

    assert both_kinds[kind](count) == [total, total]


@pytest.mark.parametrize("kind", ["parameter servers", "mirrored"])
def test_gradients_that_are_applied_are_added_up(both_kinds, kind):
    def apply(strategy, rank):
        def step():
            weight = get_variable("weight", (2,), initializer=0.0)
            optimizers.SGD(1.0).apply_gradients([(np.full(2, 1.0 + rank, np.float32), weight)])
            return weight

        return strategy.run(step).numpy().tolist()

    assert both_kinds[kind](apply) == [[-3, -3]] * 2


@pytest.mark.parametrize("kind", ["parameter servers", "mirrored"])
def test_what_is_assigned_outside_of_replicas_is_assigned_once(both_kinds, kind):
    """All workers do it, and say the same."""

    def assign(strategy, rank):
        with strategy.scope():
            total = get_variable("total", (), initializer=1.0, trainable=False, aggregation=SUM)
        total.assign(5.0)
        return total.item()

    assert both_kinds[kind](assign) == [5, 5]
