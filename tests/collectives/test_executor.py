"""Operations behind the caller's back."""

import threading

import pytest

from paceline.collectives.executor import Executor, Task


class Note(Task):
    """Notes its number and the thread that it runs in; waits for a gate first, if there is one."""

    def __init__(self, number, seen, gate=None):
        super().__init__()
        self._number, self._seen, self._gate = number, seen, gate

    def work(self):
        if self._gate is not None:
            self._gate.wait(20)
        self._seen.append((self._number, threading.current_thread()))


class Failing(Task):
    def work(self):
        [].pop()


@pytest.fixture
def executor():
    executor = Executor("test")
    yield executor
    executor.stop()


def start(executor, at_once, seen, **how):
    """Start as many tasks as there are flags."""
    tasks = [Note(number, seen, **how) for number in range(len(at_once))]
    for task, flag in zip(tasks, at_once, strict=True):
        executor.start(task, at_once=bool(flag))
    return tasks


def numbers(seen):
    return [number for number, _ in seen]


def test_tasks_run_in_the_order_in_which_they_were_started(executor):
    seen = []
    start(executor, [1] * 100, seen)[-1].wait()
    assert numbers(seen) == list(range(100))


def test_tasks_that_are_put_off_run_where_they_are_waited_for_and_in_order(executor):
    seen = []
    tasks = start(executor, [0] * 4, seen)
    assert not seen
    assert not executor.is_idle
    tasks[2].wait()
    assert seen == [(i, threading.current_thread()) for i in range(3)]
    tasks[1].wait()
    tasks[3].wait()
    assert numbers(seen) == [0, 1, 2, 3]
    assert executor.is_idle


@pytest.mark.parametrize("pattern", [(0, 1, 0), (1, 0, 1), (1, 1, 0, 0, 1, 0)])
def test_both_ways_of_starting_keep_one_order(executor, pattern):
    seen = []
    start(executor, pattern, seen)
    executor.finish()
    assert numbers(seen) == list(range(len(pattern)))
    assert executor.is_idle


def test_who_waits_for_one_task_does_not_wait_for_later_ones(executor):
    seen, gate = [], threading.Event()
    first, second = Note(1, seen), Note(2, seen, gate)
    executor.start(first)
    executor.start(second)
    first.wait()
    assert numbers(seen) == [1]
    gate.set()
    second.wait()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_task_raises_to_all_who_wait(executor, at_once):
    task = Failing()
    executor.start(task, at_once=at_once)
    for _ in range(2):
        with pytest.raises(IndexError):
            task.wait()


def test_no_thread_exists_before_the_first_task(executor):
    before = threading.active_count()
    assert executor.is_idle
    start(executor, [1], [])[0].wait()
    assert threading.active_count() == before + 1


def test_it_is_idle_when_the_last_task_has_ended(executor):
    gate = threading.Event()
    task = start(executor, [1], [], gate=gate)[0]
    assert not executor.is_idle
    gate.set()
    task.wait()
    assert executor.is_idle


@pytest.mark.parametrize("at_once", [False, True])
def test_stopping_lets_the_queue_run_out(at_once):
    executor, seen = Executor("test"), []
    start(executor, [at_once] * 10, seen)
    executor.stop()
    assert numbers(seen) == list(range(10))


def test_what_is_started_after_stopping_runs_where_it_is_waited_for(executor):
    seen = []
    start(executor, [1], seen)[0].wait()
    executor.stop()
    start(executor, [1], seen)[0].wait()
    assert seen[1] == (0, threading.current_thread())
