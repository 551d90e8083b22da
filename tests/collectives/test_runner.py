"""Operations behind the caller's back."""

import threading

import pytest

from paceline.collectives.runner import Runner


@pytest.fixture
def runner():
    runner = Runner("test")
    yield runner
    runner.stop()


def test_tasks_run_in_the_order_in_which_they_were_started(runner):
    seen = []
    handles = [runner.start(lambda i=i: seen.append(i)) for i in range(100)]
    handles[-1].wait()
    assert seen == list(range(100))


def test_tasks_that_are_put_off_run_where_they_are_waited_for_and_in_order(runner):
    seen = []

    def note(i):
        seen.append((i, threading.current_thread()))

    handles = [runner.start(lambda i=i: note(i), at_once=False) for i in range(4)]
    assert not seen
    assert not runner.idle
    handles[2].wait()
    assert seen == [(i, threading.current_thread()) for i in range(3)]
    handles[1].wait()
    handles[3].wait()
    assert [i for i, _ in seen] == [0, 1, 2, 3]
    assert runner.idle


@pytest.mark.parametrize("pattern", [(0, 1, 0), (1, 0, 1), (1, 1, 0, 0, 1, 0)])
def test_both_ways_of_starting_keep_one_order(runner, pattern):
    seen = []
    handles = [
        runner.start(lambda i=i: seen.append(i), at_once=bool(at_once))
        for i, at_once in enumerate(pattern)
    ]
    handles[-1].wait()
    assert seen == list(range(len(pattern)))


def test_a_put_off_task_raises_to_all_who_wait(runner):
    handle = runner.start([].pop, at_once=False)
    for _ in range(2):
        with pytest.raises(IndexError):
            handle.wait()


def test_stopping_runs_what_was_put_off():
    runner, seen = Runner("test"), []
    handle = runner.start(lambda: seen.append(0), at_once=False)
    runner.stop()
    handle.wait()
    assert seen == [0]


def test_no_thread_exists_before_the_first_task(runner):
    before = threading.active_count()
    assert runner.idle
    runner.start(lambda: None).wait()
    assert threading.active_count() == before + 1


def test_a_handle_raises_what_its_task_raised_each_time(runner):
    handle = runner.start([].pop)
    for _ in range(2):
        with pytest.raises(IndexError):
            handle.wait()
    runner.start(lambda: None).wait()


def test_it_is_idle_when_the_last_task_has_ended(runner):
    gate = threading.Event()
    handle = runner.start(gate.wait)
    assert not runner.idle
    gate.set()
    handle.wait()
    assert runner.idle


def test_stopping_lets_the_queue_run_out():
    runner, seen = Runner("test"), []
    for i in range(10):
        runner.start(lambda i=i: seen.append(i))
    runner.stop()
    assert seen == list(range(10))
