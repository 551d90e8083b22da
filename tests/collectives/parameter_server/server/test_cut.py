"""HOLD and SNAPSHOT: the snapshots of several servers are one moment."""

import threading

import numpy as np
import pytest

from paceline.collectives.parameter_server import Hold, Join, Position, Snapshot, Status

BOTH = (0, 1)


def one(number):
    return {"gradients": {0: np.ones(1)}, "rule": "add", "number": number, "servers": BOTH}


@pytest.fixture
def make(make_job):
    """A job of a chief and a worker whose variable 0 counts pushes."""

    def make(synchronous=False, **options):
        job = make_job(2, synchronous=synchronous, **options)
        job.come(0, 1)
        job.create(0, np.zeros(1))
        return job

    return make


def saved(job):
    """What a snapshot holds."""
    ((*_, array),) = job.server._variables._snapshot
    return array.item()


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_a_server_that_stands_still_tells_what_it_has(make):
    job = make()
    job.push(1, **one(3))
    held = job.ask(0, Hold())
    assert (held.version, held.positions) == (1, {1: Position(number=3, servers=BOTH)})


def test_a_push_that_another_server_has_goes_on_and_later_ones_wait(make):
    job = make()
    job.push(1, **one(3))
    job.ask(0, Hold())
    waiting = job.ask(0, Snapshot(numbers={1: 4}))
    assert (waiting.is_held, waiting.waiting_for) == (True, ("worker 1",))
    job.push(1, **one(4))
    later = in_thread(lambda: job.push(1, **one(5)))
    assert job.pull(0)[0].item() == 2  # the later one has not been applied
    snapped = job.ask(0, Snapshot(numbers={1: 4}))
    later.join(30)
    assert (snapped.version, snapped.waiting_for, saved(job)) == (2, (), 2)
    assert job.pull(0)[0].item() == 3


def test_a_step_of_all_that_another_server_has_made_is_made_first(make):
    job = make(synchronous=True)
    job.push(0, {0: np.ones(1)}, rule="add")
    job.ask(0, Hold())
    job.push(1, {0: np.ones(1)}, rule="add")
    assert job.ask(0, Status()).version == 0
    snapped = job.ask(0, Snapshot(version=1, numbers={}))
    assert (snapped.version, saved(job)) == (1, 1)


def test_a_step_of_all_is_made_after_a_snapshot_that_does_not_hold_it(make):
    job = make(synchronous=True)
    job.push(0, {0: np.ones(1)}, rule="add")
    job.ask(0, Hold())
    job.push(1, {0: np.ones(1)}, rule="add")
    snapped = job.ask(0, Snapshot(numbers={}))
    assert (snapped.version, saved(job)) == (0, 0)
    assert (job.ask(0, Status()).version, job.pull(0)[0].item()) == (1, 1)


def test_nobody_waits_for_the_push_of_a_trainer_that_is_lost(make):
    job = make()
    job.ask(0, Hold())
    job.lose(1)
    assert job.ask(0, Snapshot(numbers={1: 4})).waiting_for == ()


@pytest.mark.parametrize("fault", ["the holder is lost", "the holder is silent"])
def test_a_server_does_not_stand_still_for_ever(make, fault):
    job = make()
    job.ask(0, Hold())
    if fault == "the holder is lost":
        job.lose(0)
        job.come(0)
    else:
        job.clock.now += 31
    job.push(1, **one(1))
    snapped = job.ask(0, Snapshot(numbers={}))
    assert (snapped.is_held, snapped.notes) == (False, {})


def test_who_has_not_asked_a_server_to_stand_still_gets_no_snapshot(make):
    job = make()
    job.ask(1, Hold())
    assert not job.ask(0, Snapshot(numbers={})).is_held


def test_a_push_that_comes_again_is_not_applied_again(make):
    job = make()
    assert [job.push(1, **one(7)).version for _ in range(2)] == [1, 1]
    assert job.pull(0)[0].item() == 1


def test_who_takes_the_place_of_a_trainer_goes_on_with_its_numbers(make):
    job = make()
    job.push(1, **one(7))
    job.lose(1)
    job.server.joined(job.client(1))
    assert job.ask(1, Join()).number == 7


def test_a_server_without_memory_to_spare_says_so_once(make, monkeypatch, caplog):
    monkeypatch.setattr(
        "paceline.collectives.parameter_server.variables.available_bytes", lambda: 7
    )
    job = make()
    for _ in range(2):
        job.snapshot()
    assert [record.getMessage().split(" and needs")[0] for record in caplog.records] == [
        "ps 0 has 0.0 GB to spare,"
    ]
