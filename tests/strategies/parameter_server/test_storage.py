"""Variables on servers, as their trainers see them."""

import contextvars
import threading

import numpy as np
import pytest

from paceline.collectives import CollectiveError
from paceline.collectives.parameter_server import RefusedRequest
from paceline.collectives.parameter_server.requests import Verb
from paceline.collectives.parameter_server.wire import Wire
from paceline.inputs import Dataset
from paceline.nn import optimizers
from paceline.nn.optimizers.rule_optimizer import RuleOptimizer
from paceline.nn.optimizers.rules import SGDRule
from paceline.strategies import (
    FixedShardsPartitioner,
    Variable,
    VariableStore,
    VariableSynchronization,
    get_replica_context,
    get_variable,
)

from .saving import written

RATE = 0.5


class Files:
    """Checkpoints in memory: path to name to array. Stands for what a server is given."""

    def __init__(self):
        self.checkpoints = {}

    def read(self, path, name, start, stop):
        value = self.checkpoints[path][name]
        return value[start:stop].copy() if value.ndim else value.copy()

    def write(self, path, shard_index, slices):
        for name, shape, start, stop, array in slices:
            whole = self.checkpoints.setdefault(path, {}).setdefault(
                name, np.zeros(shape, array.dtype)
            )
            whole[(slice(start, stop),) if shape else ()] = array
        return f"shard {shard_index}"


def on_each(*calls):
    """Run functions at the same time, one thread each; their results."""
    results, errors = [None] * len(calls), []

    def run(index):
        try:
            with VariableStore(seed=0).building():
                results[index] = calls[index]()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, i), daemon=True)
        for i in range(len(calls))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results


def table_step(strategy, rows, num_rows=6):
    """One step that raises some rows of a table."""

    def step():
        table = get_variable("table", (num_rows, 2), initializer=0.0)
        loss = -np.sum(np.take(table, rows, axis=0)) / len(rows)
        optimizers.SGD(RATE).minimize(loss, var_list=[table])(num_examples=len(rows))

    strategy.run(step)


def test_a_table_of_which_rows_are_read_is_never_here_as_a_whole(server_job):
    strategy = server_job(2, 1, partitioner=FixedShardsPartitioner(3)).strategy()
    with VariableStore(seed=0).building():
        with strategy.scope():
            table = get_variable("table", (100_000, 4), initializer=0.0)

        def step():
            loss = np.mean(np.take(table, np.array([[3, 99_999], [3, 50_000]]), axis=0))
            optimizers.SGD(RATE).minimize(loss, var_list=[table])()

        strategy.run(step)
        before = strategy.extended.figures["megabytes"]
        for _ in range(10):
            strategy.run(step)
        spent = strategy.extended.figures["megabytes"] - before
        assert not table.cell.is_here
        assert spent < 0.1  # ten steps; the table has 1.6 MB
        with strategy.scope():
            values = table.numpy()
    np.testing.assert_allclose(
        values[[3, 50_000, 99_999], 0], -11 * RATE / 16 * np.array([2, 1, 1])
    )
    assert np.count_nonzero(values) == 12


@pytest.fixture
def asked_job(server_job):
    """`asked_job(num_servers, **options)`: a job with one trainer, and what that asks."""

    def make(num_servers, **options):
        asked = []

        def noted(index, handle):
            def handle_noted(client, message):
                asked.append((index, Verb(message.verb), len(message.arrays)))
                return handle(client, message)

            return handle_noted

        return server_job(num_servers, 1, around=noted, **options).strategy(), asked

    return make


@pytest.mark.host  # a card asks for the rows of each table at once
def test_rows_of_several_tables_come_in_one_exchange(asked_job):
    strategy, asked = asked_job(2, partitioner=FixedShardsPartitioner(2))
    rows = np.array([[0, 5], [5, 2]])

    def step():
        a, b = (get_variable(name, (6, 2), initializer=x) for name, x in (("a", 1.0), ("b", 2.0)))
        asked.clear()
        found = [np.take(table, rows, axis=0) for table in (a, b, a)]
        assert [one.shape for one in found] == [(2, 2, 2)] * 3
        assert asked == []
        np.testing.assert_array_equal((found[0] + found[1]).numpy(), np.full((2, 2, 2), 3.0))
        np.testing.assert_array_equal(found[2].numpy(), np.ones((2, 2, 2)))
        assert sorted(asked) == [(0, Verb.PULL, 3), (1, Verb.PULL, 3)]

    with VariableStore(seed=0).building():
        strategy.run(step)


def test_rows_at_which_nobody_can_look_any_more_are_not_fetched(asked_job):
    strategy, asked = asked_job(1)
    with strategy.scope():
        a, b = Variable(np.zeros((3, 2))), Variable(np.ones((3, 2)))
        asked.clear()
        np.take(a, np.array([1]), axis=0)
        np.take(b, np.array([1]), axis=0).numpy()
    assert asked == [(0, Verb.PULL, 1)]


def test_rows_that_somebody_looks_at_after_a_step_are_those_of_before(server_job):
    strategy, seen = server_job(1, 1).strategy(), []

    def step():
        table = get_variable("table", (6, 2), initializer=1.0)
        seen.append(np.take(table, np.array([3, 4]), axis=0))
        loss = -np.sum(np.take(table, np.array([3]), axis=0))
        optimizers.SGD(RATE).minimize(loss, var_list=[table])()

    with VariableStore(seed=0).building():
        for _ in range(2):
            strategy.run(step)
    np.testing.assert_array_equal(seen[0].numpy(), np.ones((2, 2)))
    np.testing.assert_array_equal(seen[1].numpy(), [[1 + RATE, 1 + RATE], [1, 1]])


def test_rows_that_could_not_be_fetched_are_no_values(server_job):
    def refusing(index, handle):
        def refuse(client, message):
            if message.verb == Verb.PULL:
                raise ValueError("not today")
            return handle(client, message)

        return refuse

    strategy = server_job(1, 1, around=refusing).strategy()
    with strategy.scope():
        found = np.take(Variable(np.zeros((3, 2))), np.array([1]), axis=0)
    for _ in range(2):
        with pytest.raises(RefusedRequest, match="not today"):
            found.numpy()


def test_shape_and_dtype_are_known_without_asking(server_job):
    job = server_job(1, 1)
    strategy = job.strategy()
    with strategy.scope():
        variable = Variable(np.zeros((3, 2), np.float64))
    before = strategy.extended.figures["megabytes"]
    assert (variable.shape, variable.dtype, variable.ndim, variable.size, len(variable)) == (
        (3, 2), np.float64, 2, 6, 3,
    )  # fmt: skip
    assert strategy.extended.figures["megabytes"] == before


def test_what_each_replica_has_for_itself_stays_with_the_worker(server_job):
    strategy = server_job(1, 1).strategy()
    with strategy.scope():
        own = Variable(0.0, synchronization=VariableSynchronization.ON_READ, trainable=False)
        unsaved = Variable(0.0, saved=False)
    assert not own.is_remote
    assert not unsaved.is_remote


def test_assignments_reach_the_others(server_job):
    job = server_job(2, 2)
    chief, other = job.strategy(0), job.strategy(1)
    assigned = threading.Event()

    def on_chief():
        with chief.scope():
            v = get_variable("v", (2,), initializer=1.0)
            v.assign([5.0, 6.0])
            v.assign_add([1.0, 1.0])
            v.assign_sub([0.5, 0.5])
        assigned.set()
        return v.numpy().tolist()

    def on_other():
        assert assigned.wait(30)
        with other.scope():
            return get_variable("v", (2,)).numpy().tolist()

    assert on_each(on_chief, on_other) == [[5.5, 6.5]] * 2


def test_two_increments_at_once_are_both_counted(server_job):
    job = server_job(1, 2)

    def add(strategy):
        def run():
            with strategy.scope():
                v = get_variable("v", (), initializer=0.0)
                for _ in range(50):
                    v.assign_add(1.0)
            return v

        return run

    on_each(*[add(job.strategy(rank)) for rank in (0, 1)])
    late = job.strategy(1)
    with VariableStore().building(), late.scope():
        assert get_variable("v", ()).item() == 100.0


@pytest.mark.parametrize("max_staleness", [None, 0, 2])
def test_st_41_the_step_counter_counts_what_workers_do(server_job, max_staleness):
    """Each worker's steps; in step with each other, the steps that they make together."""
    job = server_job(2, 2, max_staleness)

    def train(strategy):
        def run():
            def step():
                w = get_variable("w", (3,), initializer=0.0)
                optimizers.SGD(RATE).minimize(np.mean(np.square(w - 1.0)))(num_examples=2)

            for _ in range(10):
                strategy.run(step)
            strategy.extended.job.finish()
            with strategy.scope():
                return get_variable("global_step", (), np.int64).item()

        return run

    steps = on_each(*[train(job.strategy(rank)) for rank in (0, 1)])
    assert steps[0] == (10 if max_staleness == 0 else 20)


@pytest.mark.parametrize("overlaps", [False, True])
def test_an_exchange_may_go_on_under_the_next_step(server_job, overlaps):
    """Each step then computes with what the servers had before the last one."""
    strategy = server_job(2, 1, overlaps=overlaps).strategy()
    rate, seen = 0.25, []

    def step():
        w = get_variable("w", (), initializer=1.0)
        seen.append(w.item())
        optimizers.SGD(rate).minimize(w * w / 2)()  # the gradient is w

    with VariableStore().building():
        for _ in range(6):
            strategy.run(step)
        strategy.extended.job.finish()
        with strategy.scope():
            final = get_variable("w", ()).item()
            steps = get_variable("global_step", (), np.int64).item()
    delay = 1 if overlaps else 0
    values = [1.0]
    for index in range(6):
        values.append(values[-1] - rate * values[max(0, index - delay)])
    assert seen == [values[max(0, index - delay)] for index in range(6)]
    assert (final, steps) == (values[-1], 6)


def test_where_a_server_that_was_lost_may_still_write_nobody_reads(server_job, monkeypatch):
    """It was stopped in the middle of a push, and goes on when its trainer has connected anew."""
    given, num_pushes = [], 0

    def noted(wire, shape, dtype):
        given.append(np.empty(shape, dtype))
        return given[-1]

    monkeypatch.setattr(Wire, "empty", noted)  # as if both had all of this memory

    def around(index, handle):
        def handle_or_break(client, message):
            nonlocal num_pushes
            num_pushes += message.verb == Verb.PUSH
            if message.verb == Verb.PUSH and num_pushes == 3:
                raise CollectiveError("cut by the test")
            return handle(client, message)

        return handle_or_break

    strategy, seen = server_job(1, 1, around=around).strategy(), []

    def step():
        w = get_variable("w", (2,), initializer=1.0)
        seen.append(w.numpy().tolist())
        optimizers.SGD(0.5).minimize((w * w).sum() / 2)()  # the gradient is w

    with VariableStore().building():
        for number in range(6):
            strategy.run(step)
            if number == 2:  # the push of this step was lost, and came again
                for array in given:
                    array.fill(77)
    assert seen == [[0.5**number] * 2 for number in range(6)]
    assert len(given) > 1
    assert num_pushes == 7


def test_two_changes_of_one_variable_in_a_step_are_refused(server_job):
    strategy = server_job(1, 1).strategy()

    def step():
        w = get_variable("w", (2,), initializer=1.0)
        loss = np.sum(w)
        w.assign([2.0, 2.0])
        optimizers.SGD(RATE).minimize(loss, var_list=[w])()

    with VariableStore().building(), pytest.raises(RuntimeError, match="'w' is changed twice"):
        strategy.run(step)


def restarted_in_the_midst(job, server, save_first, steps=6):
    """The values of a table after steps between which a server dies."""
    files = job.options["storage"]
    strategy = job.strategy()
    saved = []
    strategy.extended.job.tell_newest_checkpoint(lambda: saved[-1] if saved else None)
    with VariableStore(seed=0).building():
        for step in range(steps):
            if step == 3 and save_first:
                reports = written(strategy, "c3")
                assert list(reports) == ["shard 1", "shard 2"]
                saved.append("c3")
            if step == 4:
                job.restart(server)
            table_step(strategy, np.arange(6))
        with strategy.scope():
            return get_variable("table", (6, 2)).numpy(), files


@pytest.mark.parametrize("max_staleness", [None, 0])
def test_a_server_that_was_restarted_goes_on_from_the_last_checkpoint(
    server_job, log_lines, max_staleness
):
    """Saved after 3 steps; the fourth is forgotten by the one server, the fifth is lost on it."""
    job = server_job(2, 1, max_staleness, storage=Files(), partitioner=FixedShardsPartitioner(2))
    values, files = restarted_in_the_midst(job, server=1, save_first=True)
    step = RATE / 6
    np.testing.assert_allclose(files.checkpoints["c3"]["table"], np.full((6, 2), 3 * step))
    np.testing.assert_allclose(values[:3], np.full((3, 2), 6 * step))
    assert values[3:].max() <= 5 * step + 1e-6
    assert values[3:].min() >= 4 * step - 1e-6
    text = "\n".join(log_lines())
    assert "ps 1 (localhost:2001) is lost" in text
    assert "ps 1 (localhost:2001) goes on from c3" in text
    assert "ps 1 (localhost:2001) is back" in text


def test_without_a_checkpoint_what_a_server_held_is_lost_for_good(server_job):
    job = server_job(2, 1, storage=Files(), partitioner=FixedShardsPartitioner(2))
    with pytest.raises(CollectiveError, match=r"ps 1 .* its variables are lost: no checkpoint was"):
        restarted_in_the_midst(job, server=1, save_first=False)


class Mine(SGDRule):
    name = "mine"


def test_rules_of_ones_own_are_not_known_to_servers(server_job):
    strategy = server_job(1, 1).strategy()

    def step():
        w = get_variable("w", (3,), initializer=0.0)
        RuleOptimizer(Mine(), RATE, "mine").minimize(np.mean(w))()

    with VariableStore().building(), pytest.raises(Exception, match="mine"):
        strategy.run(step)


@pytest.mark.parametrize(
    ("max_staleness", "num_in_sync", "ids"), [(0, 6, (2, 3)), (None, 2, (0, 1)), (2, 2, (0, 1))]
)
def test_workers_in_step_are_replicas_in_sync(server_job, max_staleness, num_in_sync, ids):
    strategy = server_job(1, 3, max_staleness).strategy(rank=1, num_replicas=2)
    found = strategy.run(lambda: get_replica_context().replica_id_in_sync_group)
    assert strategy.num_replicas_in_sync == num_in_sync
    assert strategy.input_context().num_replicas_in_sync == num_in_sync
    assert strategy.experimental_local_results(found) == ids


@pytest.mark.parametrize(("max_staleness", "mine"), [(0, [2, 3]), (None, [0, 1, 2, 3])])
def test_workers_in_step_divide_global_batches(server_job, max_staleness, mine):
    strategy = server_job(1, 2, max_staleness).strategy(rank=1)
    (batch,) = strategy.experimental_distribute_dataset(Dataset.range(4).batch(4))
    assert batch.tolist() == mine
