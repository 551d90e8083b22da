"""Pushes to several servers: whole or not at all in a checkpoint, and once on each server."""

import contextvars
import threading

import pytest

from paceline.collectives import CollectiveError
from paceline.collectives.parameter_server.requests import Verb
from paceline.nn import optimizers
from paceline.strategies import VariableStore, get_variable

from .saving import written

LIMIT_SECS = 30
IN_BOTH_WAYS = pytest.mark.parametrize("max_staleness", [None, 0], ids=["asynchronous", "in step"])


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
        thread.join(LIMIT_SECS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
    return results


class Files:
    """What servers write, by name. Stands for what a server is given."""

    def __init__(self):
        self.saved = {}

    def read(self, path, name, start, stop):
        return self.saved[name].copy()

    def write(self, path, shard_index, slices):
        self.saved |= {name: array.copy() for name, *_, array in slices}
        return ""


class Counting:
    """Adds to a variable on each of two servers, step by step."""

    def __init__(self, strategy):
        self._strategy = strategy
        self._optimizer = optimizers.SGD(1.0)
        with strategy.scope():
            self._variables = [get_variable(name, (), initializer=0.0) for name in ("a", "b")]

    def add(self, amount):
        def step():
            loss = -amount * sum(self._variables)
            self._optimizer.minimize(loss, var_list=self._variables)(num_examples=1)

        self._strategy.run(step)

    @property
    def values(self):
        return [variable.item() for variable in self._variables]


def test_a_checkpoint_holds_a_push_on_all_servers_or_on_none(server_job):
    """A push is applied on one server, and comes to the other only when the chief saves."""
    first_has_it, is_saving = threading.Event(), threading.Event()

    def around(index, handle):
        def handle_at_a_time_of_the_tests(client, message):
            is_push = (client.rank, message.verb) == (1, Verb.PUSH)
            if is_push and index == 1:
                assert is_saving.wait(LIMIT_SECS)
            reply = handle(client, message)
            if is_push and index == 0:
                first_has_it.set()
            if message.verb == Verb.HOLD and index == 1:
                is_saving.set()
            return reply

        return handle_at_a_time_of_the_tests

    files = Files()
    job = server_job(2, 2, storage=files, around=around)

    def chief():
        strategy = job.strategy(0)
        Counting(strategy).add(0.0)  # creates all that there is
        assert first_has_it.wait(LIMIT_SECS)
        written(strategy, "c")

    def worker():
        Counting(job.strategy(1)).add(1.0)

    on_each(chief, worker)
    assert {name: array.item() for name, array in files.saved.items() if name in "ab"} == {
        "a": 1,
        "b": 1,
    }


def test_checkpoints_hold_whole_pushes_while_trainers_push_as_they_can(server_job):
    files, num_steps, num_trainers = Files(), 60, 3
    job = server_job(2, num_trainers, storage=files)
    are_done = threading.Semaphore(0)

    def chief():
        strategy = job.strategy(0)
        Counting(strategy).add(0.0)
        num_done = 0
        while num_done < num_trainers - 1:
            num_done += are_done.acquire(blocking=False)
            written(strategy, "c")
            assert files.saved["a"] == files.saved["b"]
        assert files.saved["a"] == num_steps * (num_trainers - 1)

    def train(rank):
        counting = Counting(job.strategy(rank))
        for _ in range(num_steps):
            counting.add(1.0)
        are_done.release()

    on_each(chief, *(lambda rank=rank: train(rank) for rank in range(1, num_trainers)))


@IN_BOTH_WAYS
@pytest.mark.parametrize("moment", ["before it is applied", "before it is answered"])
def test_a_push_counts_once_where_its_connection_is_lost(server_job, max_staleness, moment):
    """Of the second push one server loses the connection."""
    num_pushes = 0

    def around(index, handle):
        def handle_or_break(client, message):
            nonlocal num_pushes
            is_push = index == 1 and message.verb == Verb.PUSH
            num_pushes += is_push
            is_fault = is_push and num_pushes == 2
            if is_fault and moment == "before it is applied":
                raise CollectiveError("cut by the test")
            reply = handle(client, message)
            if is_fault:
                raise CollectiveError("cut by the test")
            return reply

        return handle_or_break

    strategy = server_job(2, 1, max_staleness, around=around).strategy()
    with VariableStore(seed=0).building():
        counting = Counting(strategy)
        for _ in range(4):
            counting.add(1.0)
        assert counting.values == [4, 4]
    assert num_pushes == 5
    assert strategy.extended.figures["dropped_steps"] == 0


def test_the_others_go_on_with_a_push_whose_reply_was_lost(server_job):
    """In step, and it counts on both servers."""
    has_failed = threading.Event()

    def around(index, handle):
        def handle_or_break(client, message):
            if (index, message.verb, client.rank) == (1, Verb.PUSH, 1) and not has_failed.is_set():
                has_failed.set()
                handle(client, message)
                raise CollectiveError("cut by the test")
            return handle(client, message)

        return handle_or_break

    job = server_job(2, 2, 0, around=around, return_secs=LIMIT_SECS)  # whoever is busy meanwhile

    def train(rank):
        strategy = job.strategy(rank)
        counting = Counting(strategy)
        for _ in range(3):
            counting.add(1.0 + rank)
        assert strategy.extended.figures["dropped_steps"] == 0
        return counting.values

    assert on_each(lambda: train(0), lambda: train(1)) == [[4.5, 4.5]] * 2  # 3 times 1.5
