"""Trainers come late, leave, die, return and finish; a server serves until nobody is left."""

import threading
import time

import numpy as np
import pytest

from paceline.collectives import CollectiveError, CollectiveTimeoutError
from paceline.collectives.parameter_server import (
    Done,
    Join,
    Post,
    Read,
    Status,
    Wait,
    WaitDone,
    Write,
)


class Run:
    """`run()` of a job's server in a thread."""

    def __init__(self, job):
        self.outcome = None
        self._job = job
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.outcome = self._job.server.run()
        except Exception as error:
            self.outcome = error

    @property
    def goes_on(self):
        """It must not have ended: whoever is still expected is known without waiting."""
        return self._thread.is_alive()

    def end(self, *ranks):
        """What `run` returned or raised, when these have hung up."""
        for rank in ranks:
            self._job.server.left(self._job.client(rank))
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.outcome


def expected(job):
    """Whom the server still waits for, the chief aside."""
    return tuple(
        trainer.name for trainer in job.ask(0, Status()).trainers[1:] if trainer.is_expected
    )


def test_a_server_ends_when_every_trainer_is_done(make_job):
    job = make_job(2)
    run = Run(job)
    job.come(0, 1)
    job.ask(0, Post(key="outcome", text="step 100"))
    job.ask(1, Done())
    assert run.goes_on
    job.ask(0, Done())
    assert run.end(0, 1) == "step 100"


def test_without_an_outcome_it_ends_all_the_same(make_job):
    job = make_job(1)
    job.come(0)
    job.ask(0, Done())
    assert Run(job).end(0) == ""


def test_another_training_does_not_go_on_with_what_an_ended_job_has_left(make_job):
    job = make_job(1)
    job.come(0)
    job.ask(0, Done())
    job.server.left(job.client(0))
    job.server.run()
    with pytest.raises(ValueError, match=r"ps 0 is ending, .* needs servers"):
        job.come(0)
    job.come(0, returning=True)  # the same process, whose connection was lost: it may read the end


def test_a_job_that_a_trainer_gave_up_ends_with_its_reason_unless_there_is_an_outcome(make_job):
    job = make_job(1)
    job.come(0)
    job.ask(0, Post(key="failure", text="ps 1 never came back"))
    job.ask(0, Done())
    job.server.left(job.client(0))
    with pytest.raises(CollectiveError, match="ps 0 has ended: ps 1 never came back"):
        job.server.run()
    job.ask(0, Post(key="outcome", text="step 100"))
    assert job.server.run() == "step 100"


@pytest.mark.parametrize("end", ["lost", "left"])
def test_who_is_gone_may_return_for_a_while(make_job, end):
    job = make_job(2, absence_secs=30.0)
    job.come(0, 1)
    run = Run(job)
    job.ask(0, Done())
    {"lost": lambda: job.lose(1), "left": lambda: job.server.left(job.client(1))}[end]()
    job.clock.now += 29
    assert expected(job) == ("worker 1",)
    job.come(1)
    job.clock.now += 1000
    assert expected(job) == ("worker 1",)
    assert run.goes_on
    job.lose(1)
    job.clock.now += 31
    assert expected(job) == ()
    assert run.end(0) == ""


def test_who_is_done_has_time_to_read_the_outcome(make_job):
    job = make_job(2)
    job.come(0, 1)
    run = Run(job)
    job.ask(1, Done())
    job.ask(0, Done())
    job.server.left(job.client(0))
    assert run.goes_on
    job.ask(1, Read(key="outcome"))
    assert run.end(1) == ""


def test_who_was_done_and_joins_again_is_expected_again(make_job):
    job = make_job(2)
    job.come(0, 1)
    job.ask(1, Done())
    assert expected(job) == ()
    job.ask(1, Join())
    assert expected(job) == ("worker 1",)


def test_losing_the_connection_after_done_is_no_loss(make_job):
    job = make_job(2, absence_secs=30.0)
    job.come(0, 1)
    job.ask(1, Done())
    job.lose(1)
    assert expected(job) == ()


def test_one_of_several_connections_may_close(make_job):
    job = make_job(2, absence_secs=0.0)
    job.come(0, 1)
    job.server.joined(job.client(1))
    job.server.left(job.client(1))
    assert expected(job) == ("worker 1",)
    job.lose(1)
    assert expected(job) == ()


def test_if_nobody_ever_comes_all_are_named(make_job):
    job = make_job(3, start_timeout_secs=600.0)
    run = Run(job)
    job.clock.now += 601
    error = run.end()
    assert isinstance(error, CollectiveTimeoutError)
    assert str(error).startswith(
        "ps 0 waited 600 s for trainers, none came: chief, worker 1, worker 2; are they started"
    )


def test_who_never_came_is_given_up_after_the_time_that_a_start_may_take(make_job):
    job = make_job(2, start_timeout_secs=600.0, absence_secs=5.0)
    job.come(0)
    job.clock.now += 599
    assert expected(job) == ("worker 1",)
    job.clock.now += 2
    assert expected(job) == ()


def test_a_server_that_replaces_another_gives_the_absent_up_sooner(make_job):
    job = make_job(2, start_timeout_secs=600.0, absence_secs=5.0)
    job.come(0, returning=True)
    job.clock.now += 6
    assert expected(job) == ()


def test_the_chief_is_told_as_soon_as_the_last_is_done(make_job):
    job = make_job(2)
    job.come(0, 1)
    replies = []
    waiting = threading.Thread(target=lambda: replies.append(job.ask(0, WaitDone(wait_secs=10.0))))
    waiting.start()
    job.ask(1, Done())
    waiting.join(30)
    assert [reply.waiting_for for reply in replies] == [()]


def test_status_tells_who_is_where(make_job):
    job = make_job(4)
    job.come(0, 1, 2)
    job.ask(1, Done())
    job.lose(2)
    status = job.ask(0, Status())
    states = {trainer.name: trainer.state for trainer in status.trainers}
    assert states == {"chief": "here", "worker 1": "done", "worker 2": "gone", "worker 3": "absent"}


def test_staleness_is_what_others_did_between_pull_and_push(make_job):
    job = make_job(3)
    job.come(0, 1, 2)
    job.create(0, np.zeros(1))

    def push(rank, pulled_version):
        return job.push(rank, {0: np.ones(1)}, pulled_version=pulled_version).staleness

    assert [push(0, 0), push(1, 0), push(2, 0)] == [0, 1, 2]
    assert push(0, 0) == 2, "its own push is not counted"
    assert push(1, 4) == 0
    job.lose(0)
    job.come(0)
    assert push(0, 4) == 1, "those of its former life are others'"


def test_bounded_staleness_waits_for_the_slowest(make_job):
    job = make_job(3)
    job.come(0, 1, 2)
    job.ask(1, Wait(clock=3, staleness=0))
    far = job.ask(0, Wait(clock=5, staleness=2))
    assert (far.ok, far.slowest, far.clock) == (False, "worker 2", 0)
    job.ask(2, Wait(clock=2, staleness=5))
    assert job.ask(0, Wait(clock=5, staleness=3)).ok
    assert not job.ask(0, Wait(clock=5, staleness=2)).ok
    job.ask(2, Done())
    assert job.ask(0, Wait(clock=5, staleness=2)).ok
    assert not job.ask(0, Wait(clock=6, staleness=2)).ok
    job.lose(1)
    assert job.ask(0, Wait(clock=6, staleness=0)).ok


def test_a_late_comer_starts_beside_the_slowest(make_job):
    job = make_job(3)
    job.come(0, 1)
    job.ask(0, Wait(clock=40, staleness=1))
    job.ask(1, Wait(clock=41, staleness=1))
    job.server.joined(job.client(2))
    assert job.ask(2, Join()).clock == 40
    assert job.ask(1, Wait(clock=41, staleness=1)).ok
    job.lose(0)
    job.server.joined(job.client(0))
    assert job.ask(0, Join()).clock == 40
    assert job.ask(0, Join(from_version=0)).clock == 40


def test_the_board_is_read_when_something_is_posted(make_job):
    job = make_job(2)
    job.come(0, 1)
    assert job.ask(1, Read(key="k")).text is None
    found = []
    waiting = threading.Thread(target=lambda: found.append(job.ask(1, Read(key="k", wait_secs=10))))
    waiting.start()
    job.ask(0, Post(key="k", text="hello"))
    waiting.join(30)
    assert [reply.text for reply in found] == ["hello"]
    job.ask(0, Post(key="k", text=None))
    assert job.ask(1, Read(key="k")).text is None


def test_a_snapshot_is_written_as_it_was_taken(make_job):
    job = make_job(2)
    job.come(0, 1)
    job.create(5, np.zeros((2, 2)))
    job.create(2, np.array(7))
    job.push(0, {5: np.ones((2, 2))}, rule="add", note="chief's input")
    snapped = job.snapshot()
    assert (snapped.version, snapped.notes) == (1, {0: "chief's input"})
    job.push(1, {5: np.ones((2, 2))}, rule="add", note="worker's input")
    written = job.ask(0, Write(path="model.ckpt-1", shard_index=3))
    assert written.record == "model.ckpt-1: part 3"
    ((path, index, slices),) = job.storage.written
    assert (path, index) == ("model.ckpt-1", 3)
    assert [(name, shape, start, stop) for name, shape, start, stop, _ in slices] == [
        ("v2", (), 0, 1),
        ("v5", (2, 2), 0, 2),
    ]
    assert [array.tolist() for *_, array in slices] == [7, [[1, 1], [1, 1]]]
    with pytest.raises(ValueError, match="no snapshot to write"):
        job.ask(0, Write(path="model.ckpt-1", shard_index=3))


def test_a_later_snapshot_takes_the_place_of_an_earlier(make_job):
    job = make_job(1)
    job.come(0)
    job.create(0, np.zeros(1))
    job.snapshot()
    job.push(0, {0: np.ones(1)}, rule="add")
    job.snapshot()
    job.ask(0, Write(path="p", shard_index=0))
    assert job.storage.written[0][2][0][-1].tolist() == [1]


def test_a_server_that_is_asked_to_end_waits_only_for_trainers_that_are_here(make_job):
    """One of them may be saving; who has left, or never came, is not waited for."""
    job = make_job(3, absence_secs=1000.0, clock=time.monotonic)
    job.come(0, 1)
    job.server.left(job.client(1))
    ended = []
    thread = threading.Thread(target=lambda: ended.append(job.server.run(lambda: True)))
    thread.start()
    assert job.ask(0, Status()).trainers[0].is_expected
    assert not ended
    job.server.left(job.client(0))
    thread.join(30)
    assert ended == [""]


def test_a_server_that_is_asked_to_end_before_anybody_came_ends(make_job):
    assert make_job(2).server.run(lambda: True) == ""
