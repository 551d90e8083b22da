"""A server behaves as a model of it of fifty lines does, whatever trainers do in whatever order."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from paceline.collectives.parameter_server import Done, Join, Status, WaitDone

NUM_TRAINERS = 3
ABSENCE_SECS = 10.0
RANKS = st.integers(0, NUM_TRAINERS - 1)
WEIGHTS = st.sampled_from([0.0, 1.0, 2.0])
GRADIENTS = st.integers(-8, 8)


class Expected:
    """What is known of a trainer."""

    def __init__(self):
        self.state = "absent"  # then "connected", "joined", "gone", "done"
        self.is_connected = False
        self.is_resting = False
        self.from_version = None
        self.gone_at = None
        self.note = None


class ServerMachine(RuleBasedStateMachine):
    """Trainers that come, join, push, die, return and finish.

    One variable, whose rule is to add: its value is a sum that anybody can check.
    """

    make_job = None  # given by the test
    synchronous = False

    @initialize(
        num_enough=st.none() | st.integers(1, NUM_TRAINERS), num_here=st.integers(0, NUM_TRAINERS)
    )
    def start(self, num_enough, num_here):
        self.num_enough = num_enough if self.synchronous else None
        self.job = type(self).make_job(
            NUM_TRAINERS,
            synchronous=self.synchronous,
            replicas_to_aggregate=self.num_enough,
            absence_secs=ABSENCE_SECS,
            start_timeout_secs=100.0,
        )
        self.began = self.job.clock.now
        self.trainers = [Expected() for _ in range(NUM_TRAINERS)]
        self.job.create(0, np.zeros(2))
        self.value, self.version, self.pending, self.last_steps = 0.0, 0, {}, {}
        self.num_notes = 0
        for rank in range(num_here):
            self.connect(rank)
            self.join(rank, None)

    def pick(self, index, suits):
        """The rank of one of the trainers that suit, or None."""
        ranks = [rank for rank, trainer in enumerate(self.trainers) if suits(trainer)]
        return ranks[index % len(ranks)] if ranks else None

    @rule(index=RANKS)
    def connect(self, index):
        rank = self.pick(index, lambda trainer: not trainer.is_connected)
        if rank is None:
            return
        trainer = self.trainers[rank]
        self.job.server.joined(self.job.client(rank))
        trainer.is_connected = True
        if trainer.state != "done":
            trainer.state = "connected"

    @rule(index=RANKS, ahead=st.none() | st.integers(0, 2))
    def join(self, index, ahead):
        rank = self.pick(index, lambda trainer: trainer.is_connected)
        if rank is None:
            return
        trainer = self.trainers[rank]
        from_version = None if ahead is None else self.version + ahead
        joined = self.job.ask(rank, Join(from_version=from_version))
        if trainer.state != "joined" or from_version is None:
            self.pending.pop(rank, None)
            self.last_steps.pop(rank, None)
        trainer.state, trainer.from_version, trainer.is_resting = "joined", from_version, False
        assert (joined.version, joined.note) == (self.version, trainer.note)
        self.settle()

    @rule(index=RANKS, gradient=GRADIENTS, weight=WEIGHTS)
    def push(self, index, gradient, weight):
        self._push(index, gradient, weight, self.version)

    @rule(index=RANKS, gradient=GRADIENTS, weight=WEIGHTS)
    def push_who_is_missing(self, index, gradient, weight):
        rank = self.pick(
            index, lambda t: t.state == "joined" and self.trainers.index(t) not in self.pending
        )
        if rank is not None:
            joined = [r for r, t in enumerate(self.trainers) if t.state == "joined"]
            self._push(joined.index(rank), gradient, weight, self.version)

    @precondition(lambda self: self.version > 0)
    @rule(index=RANKS, gradient=GRADIENTS)
    def push_late(self, index, gradient):
        self._push(index, gradient, 1.0, self.version - 1)

    def _push(self, index, gradient, weight, step):
        rank = self.pick(index, lambda trainer: trainer.state == "joined")
        if rank is None:
            return
        trainer = self.trainers[rank]
        self.num_notes += 1
        note = str(self.num_notes)
        reply = self.job.push(
            rank, {0: np.full(2, float(gradient))}, step, "add", weight=weight, note=note
        )
        if not self.synchronous:
            self.apply([(rank, weight, gradient, note)])
            assert (reply.dropped, reply.version) == (False, self.version)
        elif step < self.version:
            is_dropped = self.last_steps.get(rank, -1) < step
            assert (reply.dropped, reply.version) == (is_dropped, self.version)
        else:
            self.pending.setdefault(rank, (rank, weight, gradient, note))
            if trainer.from_version is None or trainer.from_version > step:
                trainer.from_version = step
            missing = self.settle()
            assert reply.waiting_for == tuple(self.job.names[rank] for rank in missing)
            assert reply.version == self.version

    @rule(rank=RANKS, in_order=st.booleans())
    def disconnect(self, rank, in_order):
        trainer = self.trainers[rank]
        if not trainer.is_connected:
            return
        trainer.is_connected = False
        trainer.gone_at = self.job.clock.now
        trainer.from_version = None
        if trainer.state != "done":
            trainer.state = "gone"
        if in_order:
            self.job.server.left(self.job.client(rank))
        else:
            self.job.lose(rank)
        self.settle()

    @rule(rank=RANKS)
    def wait_for_the_others(self, rank):
        trainer = self.trainers[rank]
        if trainer.is_connected:
            waiting_for = self.job.ask(rank, WaitDone()).waiting_for
            names = [n for n, t in zip(self.job.names, self.trainers, strict=True) if t != trainer]
            others = [other for other in self.trainers if other != trainer]
            expected = [n for n, t in zip(names, others, strict=True) if self.is_expected(t)]
            assert list(waiting_for) == expected
            trainer.is_resting = True
            if trainer.state == "joined":
                trainer.state = "connected"
            self.settle()

    @rule(rank=RANKS)
    def finish(self, rank):
        if self.trainers[rank].is_connected:
            self.trainers[rank].state = "done"
            self.job.ask(rank, Done())
            self.settle()

    @precondition(lambda self: self.job.clock.now < self.began + 300)
    @rule(secs=st.sampled_from([5.0, 6.0, 90.0]))
    def let_time_pass(self, secs):
        self.job.clock.now += secs
        # It is noticed by whoever waits, or comes next.
        self.job.server.joined(self.job.client(0))
        self.job.server.left(self.job.client(0))
        if not self.trainers[0].is_connected and self.trainers[0].state != "done":
            self.trainers[0].state, self.trainers[0].gone_at = "gone", self.job.clock.now
        self.settle()

    @invariant()
    def values_are_as_expected(self):
        if not hasattr(self, "job"):
            return
        assert self.job.pull(0)[0].tolist() == pytest.approx([self.value] * 2)
        status = self.job.ask(0, Status())
        assert status.version == self.version
        for expected, found in zip(self.trainers, status.trainers, strict=True):
            state = {"connected": "here", "joined": "here"}.get(expected.state, expected.state)
            assert found.state == state

    @invariant()
    def the_server_serves_whom_it_should(self):
        if not hasattr(self, "job"):
            return
        found = [trainer.is_expected for trainer in self.job.ask(0, Status()).trainers]
        assert found == [self.is_expected(trainer) for trainer in self.trainers]

    def is_expected(self, trainer):
        now = self.job.clock.now
        if trainer.state == "gone":
            return now - trainer.gone_at < ABSENCE_SECS
        if trainer.state == "absent":
            return now - self.began < 100
        return trainer.state != "done"

    def settle(self):
        """Make the step if nobody is missing. Returns the ranks of those who are."""
        missing = [
            rank
            for rank, trainer in enumerate(self.trainers)
            if rank not in self.pending and self.is_required(trainer)
        ]
        if self.num_enough is not None and len(self.pending) >= self.num_enough:
            missing = []
        if not self.pending or missing:
            return missing
        self.apply([self.pending[rank] for rank in sorted(self.pending)])
        self.pending = {}
        return []

    def is_required(self, trainer):
        if trainer.is_resting:
            return False
        if self.version == 0 and trainer.from_version is None:
            is_late = self.job.clock.now - self.began >= 100
            return trainer.state in ("connected", "joined") or (
                trainer.state == "absent" and not is_late
            )
        first = trainer.from_version
        return trainer.state == "joined" and first is not None and first <= self.version

    def apply(self, pushes):
        whole = sum(weight for _, weight, *_ in pushes)
        if not self.synchronous:
            whole = min(whole, 1)  # what has a weight counts in full
        for rank, weight, gradient, note in pushes:
            share = weight / whole if self.synchronous and whole else float(weight > 0)
            self.value += share * gradient
            self.trainers[rank].note = note
            self.last_steps[rank] = self.version
        self.version += 1


def run(make_job, is_synchronous):
    class Machine(ServerMachine):
        synchronous = is_synchronous

    Machine.make_job = staticmethod(make_job)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def test_an_asynchronous_server_is_as_its_model(make_job):
    run(make_job, False)


def test_a_synchronous_server_is_as_its_model(make_job):
    run(make_job, True)
