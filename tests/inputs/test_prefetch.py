"""`prefetch`: a thread that works ahead, reports its errors, and never stays behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paceline.inputs import Dataset
from paceline.inputs.elements import ElementIterator
from paceline.inputs.prefetching import PrefetchIterator


def num_threads() -> int:
    return sum(thread.name == "paceline-prefetch" for thread in threading.enumerate())


class Source:
    """Counts what is read from it, and lets a test wait for that."""

    def __init__(self, length: int, *, fails_at: int | None = None) -> None:
        self._length = length
        self._fails_at = fails_at
        self._changed = threading.Condition()
        self.num_read = 0
        self.num_closed = 0

    def __call__(self) -> Iterator[int]:
        try:
            for i in range(self._length):
                if i == self._fails_at:
                    raise OSError("the disk is on fire")
                with self._changed:
                    self.num_read += 1
                    self._changed.notify_all()
                yield i
        finally:
            self.num_closed += 1

    def wait_until_read(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_read >= count, timeout=10)


@pytest.mark.parametrize("depth", [1, 2, 5, None])
def test_prefetch_changes_no_element(depth: int | None) -> None:
    assert [int(e) for e in Dataset.range(20).prefetch(depth)] == list(range(20))


@pytest.mark.parametrize("depth", [1, 3])
def test_prefetch_works_ahead_by_its_depth_and_no_further(depth: int) -> None:
    source = Source(20)
    iterator = iter(Dataset.from_generator(source).prefetch(depth))
    assert source.num_read == 0
    next(iterator)
    source.wait_until_read(1 + depth)
    next(iterator)
    source.wait_until_read(2 + depth)
    assert source.num_read == 2 + depth
    iterator.close()


def test_in_21_an_automatic_depth_grows_when_a_full_buffer_was_emptied() -> None:
    """A burst of consumption, with the source held back, is repeated until it was noticed."""
    gate = threading.Event()
    source = Source(10_000)

    def items() -> Iterator[int]:
        for item in source():
            assert gate.wait(timeout=30)
            yield item

    gate.set()
    iterator = iter(Dataset.from_generator(items).prefetch())
    next(iterator)
    num_given = 1
    while source.num_read <= num_given + 3 and num_given < 5000:
        source.wait_until_read(num_given + 2)
        gate.clear()
        opener = threading.Timer(0.001, gate.set)
        opener.start()
        for _ in range(5):
            next(iterator)
        num_given += 5
        opener.join()
    iterator.close()
    assert num_given < 5000


def test_prefetch_zero_starts_no_thread() -> None:
    iterator = iter(Dataset.range(5).prefetch(0))
    next(iterator)
    assert num_threads() == 0


def test_nothing_is_read_and_no_thread_started_before_the_first_element() -> None:
    source = Source(5)
    iterator = iter(Dataset.from_generator(source).prefetch(2))
    assert (source.num_read, num_threads()) == (0, 0)
    del iterator


def exhaust(iterator: Any) -> None:
    list(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def close_twice(iterator: Any) -> None:
    iterator.close()
    iterator.close()
    assert list(iterator) == []


@pytest.mark.parametrize("end", [exhaust, close_twice])
@pytest.mark.parametrize(
    "chain",
    [
        lambda d: d.prefetch(2),
        lambda d: d.prefetch(2).repeat(2).batch(2).map(lambda x: x).prefetch(2),
        lambda d: Dataset.zip(d.prefetch(1), Dataset.range(9).prefetch(2)),
        lambda d: d.prefetch(1).shuffle(3).cache().skip(1),
    ],
)
def test_no_thread_stays_and_the_source_is_closed(
    chain: Callable[[Dataset], Dataset], end: Callable[[Any], None]
) -> None:
    source = Source(8)
    iterator = iter(chain(Dataset.from_generator(source)))
    next(iterator)
    assert num_threads() > 0
    end(iterator)
    assert num_threads() == 0
    assert source.num_closed > 0


def test_no_thread_stays_when_the_iterator_is_dropped() -> None:
    source = Source(100)
    for _ in Dataset.from_generator(source).prefetch(2).batch(2):
        break
    gc.collect()
    assert num_threads() == 0
    assert source.num_closed == 1


def test_no_thread_stays_when_the_state_is_set() -> None:
    iterator = iter(Dataset.range(100).prefetch(2))
    state = iterator.get_state()
    next(iterator)
    iterator.set_state(state)
    assert num_threads() == 0
    assert int(next(iterator)) == 0
    iterator.close()


def test_an_error_is_raised_where_its_element_is_asked_for_with_the_source_s_traceback() -> None:
    iterator = iter(Dataset.from_generator(Source(9, fails_at=3)).batch(1).prefetch(5))
    assert [e.tolist() for e in (next(iterator), next(iterator), next(iterator))] == [[0], [1], [2]]
    with pytest.raises(OSError, match="the disk is on fire") as caught:
        next(iterator)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise OSError("the disk is on fire")' in text
    assert "While reading element 3 of the dataset's source." in text
    with pytest.raises(StopIteration):
        next(iterator)
    assert num_threads() == 0


@pytest.mark.parametrize("depth", [0, 5])
def test_one_can_go_on_behind_an_error_and_resume_there(depth: int) -> None:
    def refuse_three(value: Any) -> Any:
        if value == 3:
            raise OSError("the disk is on fire")
        return value

    dataset = Dataset.range(9).map(refuse_three).prefetch(depth)
    iterator = iter(dataset)
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="fire"):
        next(iterator)
    resumed = iter(dataset)
    resumed.set_state(iterator.get_state())
    assert [int(e) for e in iterator] == [int(e) for e in resumed] == [4, 5, 6, 7, 8]


def test_the_state_is_that_of_the_elements_seen_and_not_of_those_produced() -> None:
    source = Source(20)
    iterator = iter(Dataset.from_generator(source).prefetch(4))
    assert int(next(iterator)) == 0
    source.wait_until_read(5)
    assert iterator.get_state()["elements"]["position"] == 1
    iterator.close()


def test_a_process_ends_while_an_iterator_prefetches() -> None:
    script = (
        "from paceline.inputs import Dataset\n"
        "iterator = iter(Dataset.range(10**9).prefetch(2))\n"
        "print(int(next(iterator)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


HUNG_SCRIPT = """
import os, signal, threading
from paceline.inputs import Dataset

reached = threading.Barrier(3)

def hang(value):
    reached.wait()
    threading.Event().wait()

def interrupt():
    reached.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
list(Dataset.range(2).map(hang, 2).prefetch(1).batch(1).prefetch(1))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_process_ends_at_ctrl_c_though_its_threads_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUNG_SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_a_map_function_runs_in_the_thread() -> None:
    names = list(Dataset.range(2).map(lambda _: threading.current_thread().name).prefetch(1))
    assert [str(n) for n in names] == ["paceline-prefetch"] * 2


class PositionLost(ElementIterator):
    """Numbers that can say where they stand up to the third only, as a file on a lost mount."""

    def __init__(self) -> None:
        self._position = 0

    def __next__(self) -> int:
        self._position += 1
        return self._position

    def get_state(self) -> Any:
        if self._position > 3:
            raise OSError("Stale file handle")
        return {"position": self._position}

    def set_state(self, state: Any) -> None:
        self._position = state["position"]

    def close(self) -> None:
        """Nothing is open."""


def test_a_source_that_cannot_tell_its_place_is_an_error_and_keeps_nobody_waiting() -> None:
    iterator = PrefetchIterator(PositionLost(), 2, 2)
    assert [next(iterator) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(OSError, match="Stale file handle"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert iterator.get_state() == {"position": 3}
    iterator.close()
