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
