"""Tasks that cannot leave alone, as the ranks of an mpirun: all end, and none before the chief."""

import contextvars
import threading

import pytest

from paceline.nn import optimizers
from paceline.strategies import VariableStore, get_variable

LIMIT_SECS = 30


def in_thread(call):
    """Run a function in a thread with variables of its own."""

    def run():
        with VariableStore(seed=0).building():
            call()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    return thread


def train_until_all_end(strategy, num_steps=1_000_000):
    """Make steps until a trainer says that all are to end."""
    optimizer = optimizers.SGD(1.0)

    def step():
        weight = get_variable("weight", (), initializer=0.0)
        optimizer.minimize(weight + 0.0, var_list=[weight])(num_examples=1)

    strategy.run(step)
    while num_steps > 1 and not strategy.extended.job.is_ending:
        strategy.run(step)
        num_steps -= 1


@pytest.mark.parametrize("max_staleness", [None, 0], ids=["asynchronous", "in step"])
def test_a_trainer_that_leaves_waits_until_the_chief_has_saved_and_ended(server_job, max_staleness):
    job = server_job(2, 2, max_staleness, can_leave_alone=False)
    events = []

    def chief():
        strategy = job.strategy(0)
        train_until_all_end(strategy)
        events.append("the chief saves")
        strategy.extended.job.leave()

    def worker():
        strategy = job.strategy(1)
        train_until_all_end(strategy, num_steps=3)
        strategy.extended.job.leave()
        events.append("the worker ends")

    for thread in (in_thread(chief), in_thread(worker)):
        thread.join(LIMIT_SECS)
        assert not thread.is_alive()
    assert events == ["the chief saves", "the worker ends"]
    for server in job.servers:
        assert server.run() == ""  # nobody is waited for any more


def test_a_trainer_that_can_leave_alone_ends_at_once_and_is_expected_back(server_job):
    job = server_job(1, 2)
    strategy = job.strategy(0)
    with VariableStore(seed=0).building():
        train_until_all_end(strategy, num_steps=2)
        strategy.extended.job.leave()
    assert not strategy.extended.job.is_ending
    assert job.servers[0].unfinished == ["worker 0", "worker 1"]
