"""`Strategy.run`: ST-12, ST-13, ST-28, ST-29, and the threads behind it."""

import contextvars
import gc
import signal
import threading
import time
import traceback
from collections import namedtuple
from weakref import ref

import numpy as np
import pytest

from paceline.strategies import (
    DistributedValues,
    PerReplica,
    RunOptions,
    get_replica_context,
    has_strategy,
)
from paceline.strategies.replicas import threads as replica_threads


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def by_replica(strategy, function):
    """A `PerReplica` of `function(i)`; the bare value where there is one replica."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: function(context.replica_id_in_sync_group)
    )


def test_st_12_a_constant_goes_to_every_replica(two_replicas):
    result = two_replicas.run(lambda x: x * 2.0, args=(3.0,))
    assert isinstance(result, PerReplica)
    assert result.values == (6.0, 6.0)


def test_st_12_every_replica_gets_its_part_at_any_depth(every_strategy):
    own = by_replica(every_strategy, lambda i: 10 * i)
    Point = namedtuple("Point", "x y")

    def step(a, *, b):
        return {"sum": a["in"][0] + b.x, "y": (b.y, [a["in"][1]])}

    result = every_strategy.run(step, ({"in": [own, "text"]},), {"b": Point(own, 5)})
    locals_of = every_strategy.experimental_local_results
    n = every_strategy.num_replicas_in_sync
    assert locals_of(result["sum"]) == tuple(20 * i for i in range(n))
    assert locals_of(result["y"][0]) == (5,) * n
    assert locals_of(result["y"][1][0]) == ("text",) * n


def test_st_12_a_single_replica_returns_the_bare_value(mirrored):
    value = object()
    assert mirrored(1).run(lambda: value) is value


def test_st_12_nothing_returned_is_nothing(every_strategy):
    assert every_strategy.run(lambda: None) is None


def test_st_12_replicas_are_numbered_in_order(every_strategy):
    ids = every_strategy.experimental_local_results(every_strategy.run(replica_id))
    assert ids == tuple(range(every_strategy.num_replicas_in_sync))


def test_st_12_different_structures_are_refused_with_the_place(two_replicas):
    with pytest.raises(ValueError, match=r"differ at \['loss'\]"):
        two_replicas.run(lambda: {"loss": 1 if replica_id() else (1, 2)})


def test_st_12_values_for_another_number_of_replicas_are_refused(every_strategy):
    values = PerReplica(range(3))
    with pytest.raises(ValueError, match="values of 3 replicas"):
        every_strategy.run(lambda x: x, ({"batch": [values]},))


def test_st_12_the_first_replica_runs_in_the_callers_thread(several_replicas):
    def step():
        get_replica_context().all_reduce("SUM", 0)  # all are there at the same time
        return threading.current_thread()

    threads = several_replicas.run(step)
    assert threads[0] is threading.current_thread()
    assert len(set(threads)) == several_replicas.num_replicas_in_sync


@pytest.mark.host
def test_replica_threads_are_named_after_their_replica(two_replicas):
    names = two_replicas.run(lambda: threading.current_thread().name)
    assert names[1] == "replica 1 on /job:localhost/replica:0/task:0/device:CPU:1"


def test_replicas_see_the_callers_context_variables(several_replicas):
    variable = contextvars.ContextVar("variable")
    for value in range(3):
        variable.set(value)
        assert set(several_replicas.run(variable.get)) == {value}


def test_numpys_error_state_holds_in_every_replica(several_replicas):
    with np.errstate(divide="ignore"):
        several_replicas.run(lambda: np.divide(np.ones(1), np.zeros(1)))


def test_a_context_variable_set_in_a_thread_is_forgotten_by_the_next_run(two_replicas):
    variable = contextvars.ContextVar("variable", default="unset")

    def step():
        before = variable.get()
        if replica_id():
            variable.set("set")
        return before

    assert [two_replicas.run(step)[1] for _ in range(3)] == ["unset"] * 3


class FailureError(Exception):
    pass


def fail_here():
    raise FailureError("on purpose")


@pytest.mark.parametrize("culprit", [0, 1])
def test_st_13_an_error_carries_the_replicas_number_and_its_traceback(culprit, two_replicas):
    def step():
        if replica_id() == culprit:
            fail_here()

    with pytest.raises(FailureError, match="on purpose") as caught:
        two_replicas.run(step)
    assert caught.value.__notes__ == [f"Raised in replica {culprit} of 2 (0-based)."]
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail_here"


@pytest.mark.parametrize(
    "wait",
    [
        lambda replica: replica.all_reduce("SUM", 1.0),
        lambda replica: replica.all_gather(np.ones(1), axis=0),
        lambda replica: replica.merge_call(lambda strategy: None),
    ],
    ids=["all_reduce", "all_gather", "merge_call"],
)
@pytest.mark.parametrize("culprit", [0, 3])
def test_st_13_an_error_releases_the_others_at_once(wait, culprit, mirrored):
    released = []

    def step():
        if replica_id() == culprit:
            fail_here()
        try:
            wait(get_replica_context())
        except RuntimeError as error:
            released.append(str(error))
            raise

    started = time.monotonic()
    with pytest.raises(FailureError):
        mirrored(4).run(step)
    assert time.monotonic() - started < 10
    assert len(released) == 3
    assert all(f"replica {culprit} failed with FailureError('on purpose')" in r for r in released)


def test_st_13_the_first_error_is_reported_where_several_fail(two_replicas):
    def step():
        if replica_id() == 0:
            fail_here()
        try:
            get_replica_context().all_reduce("SUM", 1.0)
        except RuntimeError as error:
            raise KeyError("an echo of the first") from error

    with pytest.raises(FailureError):
        two_replicas.run(step)


def test_st_13_an_error_keeps_nothing_alive(two_replicas):
    class Big:
        pass

    alive = []

    def step():
        big = Big()
        alive.append(ref(big))
        if replica_id():
            fail_here()
        get_replica_context().all_reduce("SUM", 1.0)

    before = set(threading.enumerate())
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(FailureError) as caught:
            two_replicas.run(step)
        del caught
        for thread in set(threading.enumerate()) - before:
            thread.join()  # without the GIL what a thread has made goes with it
        assert [big() for big in alive] == [None, None]
    finally:
        gc.enable()


def test_st_13_the_next_run_works(two_replicas):
    with pytest.raises(FailureError):
        two_replicas.run(fail_here)
    assert not has_strategy()
    assert two_replicas.run(lambda: get_replica_context().all_reduce("SUM", 1))[1] == 2


def test_an_interrupt_of_the_caller_releases_the_others(two_replicas):
    """Ctrl-C arrives in the main thread, which is the first replica's."""

    def step():
        if replica_id() == 0:
            raise KeyboardInterrupt
        get_replica_context().all_reduce("SUM", 1.0)

    with pytest.raises(KeyboardInterrupt):
        two_replicas.run(step)


@pytest.mark.parametrize("to", ["the waiting thread", "another thread"])
def test_an_interrupt_while_waiting_for_the_others_is_heard(to, two_replicas):
    """Ctrl-C may reach any thread; its handler runs in the main one, at once or when it wakes."""

    def step():
        if replica_id() == 0:
            return
        if to == "the waiting thread":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        two_replicas.run(step)
    assert two_replicas.run(replica_id).values == (0, 1)


def test_a_replica_may_run_nothing_on_its_strategy(two_replicas):
    with pytest.raises(RuntimeError, match="run was called inside a replica"):
        two_replicas.run(lambda: two_replicas.run(lambda: 1))


def test_a_merge_function_may_run_replicas(two_replicas):
    def merge(strategy):
        return strategy.run(replica_id)

    result = two_replicas.run(lambda: get_replica_context().merge_call(merge))
    assert result.values == (0, 1)


def test_two_threads_may_run_the_same_strategy_at_once(two_replicas):
    both_are_in = threading.Barrier(4)

    def step(name):
        both_are_in.wait(timeout=30)
        return get_replica_context().all_reduce("SUM", {name: 1, "id": replica_id()})

    def user(name):
        results[name] = two_replicas.run(step, (name,))

    results = {}
    users = [threading.Thread(target=user, args=(name,)) for name in "ab"]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join()
    for name in "ab":
        assert results[name][name].values == (2, 2)
        assert results[name]["id"].values == (1, 1)


def test_threads_are_used_again_and_end_when_there_is_nothing_to_do(two_replicas):
    threads = {two_replicas.run(threading.current_thread)[1] for _ in range(5)}
    assert len(threads) < 5
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert not set(replica_threads._idle) & threads


def test_a_thread_that_was_left_behind_by_a_fork_is_not_waited_for(two_replicas):
    """A child process inherits the list of idle threads, but not the threads."""
    ended = two_replicas.run(threading.current_thread)[1]
    ended.join(timeout=30)
    replica_threads._idle.append(ended)
    assert two_replicas.run(lambda: 1).values == (1, 1)


def test_a_step_keeps_nothing_alive(two_replicas):
    class Big:
        pass

    big = Big()
    alive = ref(big)
    two_replicas.run(lambda x: None, (big,))
    del big
    assert alive() is None


def test_st_28_distributed_values_are_a_printable_sequence():
    values = PerReplica(["a", 2.0])
    assert isinstance(values, DistributedValues)
    assert (values[0], values[1], len(values), list(values)) == ("a", 2.0, 2, ["a", 2.0])
    assert repr(values) == "PerReplica:{\n  0: 'a',\n  1: 2.0\n}"


def test_st_28_what_run_returns_may_be_given_to_run(every_strategy):
    first = every_strategy.run(lambda: {"id": [replica_id()]})
    second = every_strategy.run(lambda x: x["id"][0] == replica_id(), (first,))
    assert all(every_strategy.experimental_local_results(second))


def test_st_29_options_are_accepted_and_unknown_ones_refused(every_strategy):
    options = RunOptions(experimental_enable_dynamic_batch_size=False)
    assert every_strategy.run(lambda: None, options=options) is None
    with pytest.raises(TypeError, match="dynamic_batch"):
        RunOptions(dynamic_batch=False)
