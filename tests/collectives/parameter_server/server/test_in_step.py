"""Synchronous training: one update a step, with the mean of what all trainers pushed."""

import re
import threading

import numpy as np
import pytest

from paceline.collectives.parameter_server import (
    STOPPING_KEY,
    Done,
    Join,
    Post,
    Pull,
    Status,
    WaitDone,
)
from paceline.collectives.parameter_server.aggregation import Agreement


@pytest.fixture
def make_synchronous(make_job):
    """A synchronous job whose trainers have all come; variable 0 is three zeros."""

    def make(num_trainers, come=None, **options):
        job = make_job(num_trainers, synchronous=True, **options)
        job.come(*(range(num_trainers) if come is None else come))
        job.create(0, np.zeros(3, np.float32))
        return job

    return make


def value_of(job, number=0):
    return job.pull(number)[0].tolist()


def ones(number=1.0):
    return {0: np.full(3, number, np.float32)}


def test_a_step_is_made_when_everybody_has_pushed(make_synchronous):
    job = make_synchronous(3)
    assert job.push(0, ones(1)).waiting_for == ("worker 1", "worker 2")
    assert job.push(2, ones(2)).waiting_for == ("worker 1",)
    assert value_of(job) == [0, 0, 0]
    last = job.push(1, ones(6))
    assert (last.version, last.waiting_for, value_of(job)) == (1, (), [-3, -3, -3])


def test_a_push_that_waits_for_others_is_kept_as_it_was_when_its_trainer_is_answered(
    make_synchronous,
):
    job = make_synchronous(2)
    shared = np.full(3, 2, np.float32)
    assert job.push(0, {0: shared[:]}).waiting_for == ("worker 1",)
    shared.fill(np.nan)  # the trainer's again: its next request lies there
    job.push(1, ones(4))
    assert value_of(job) == [-3, -3, -3]


def test_a_value_that_a_trainer_brings_is_the_servers_own(make_job):
    job = make_job()
    job.come(0)
    shared = np.full(3, 2, np.float32)
    job.create(0, shared[:])
    shared.fill(np.nan)
    assert value_of(job) == [2, 2, 2]


def test_who_waits_is_told_at_once(make_synchronous):
    job = make_synchronous(2)
    replies = []

    def wait():
        replies.append(job.push(0, ones(), pull=(0,), wait_secs=10.0))

    thread = threading.Thread(target=wait)
    thread.start()
    while job.push(1, ones(), pull=(0,)).waiting_for:
        pass  # the other thread's push has not come yet
    thread.join(30)
    assert [(reply.version, reply.waiting_for) for reply in replies] == [(1, ())]


def test_b9_who_has_pushed_before_the_stop_was_announced_hears_of_it_with_the_step(
    make_synchronous,
):
    job = make_synchronous(2)
    early = job.push(1, ones())
    assert (early.waiting_for, early.stop_step) == (("chief",), None)
    job.ask(0, Post(key=STOPPING_KEY, text="1"))
    assert job.push(0, ones()).stop_step == 1
    assert job.ask(1, Pull(ids=(0,), min_version=1)).stop_step == 1


def test_a_trainer_may_wait_on_with_a_pull(make_synchronous):
    job = make_synchronous(2)
    job.push(0, ones())
    waiting, none = job.ask_with_arrays(0, Pull(ids=(0,), min_version=1))
    assert (waiting.version, waiting.waiting_for, len(none)) == (0, ("worker 1",), 0)
    job.push(1, ones())
    pulled, (value,) = job.ask_with_arrays(0, Pull(ids=(0,), min_version=1))
    assert (pulled.version, pulled.waiting_for, value.tolist()) == (1, (), [-1, -1, -1])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 4), (0, 2, 5)], ids=str)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_mean_depends_on_weights_and_not_on_who_comes_first(
    make_synchronous, order, weights, is_sparse
):
    """Bit for bit, and right to rounding."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(3, 5, 4)).astype(np.float32)
    rows = [np.array([4, 1, 1, 0, 2]), np.array([1, 4, 3, 3, 3]), np.arange(5)]
    found, expected = [], np.zeros((5, 4))
    for rank, weight in enumerate(weights):
        np.add.at(expected, rows[rank] if is_sparse else np.arange(5), weight * gradients[rank])
    for ranks in (order, (0, 1, 2)):
        job = make_synchronous(3)
        job.create(1, np.zeros((5, 4), np.float32))
        for rank in ranks:
            gradient = (rows[rank], gradients[rank]) if is_sparse else gradients[rank]
            job.push(rank, {1: gradient}, weight=float(weights[rank]))
        found.append(job.pull(1)[0])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], -expected / sum(weights), rtol=1e-5, atol=1e-6)


def test_a_single_trainer_is_followed_bit_for_bit(make_synchronous):
    gradient = np.array([0.1, 1e-8, 3e30], np.float32)
    job = make_synchronous(1)
    job.push(0, {0: gradient}, weight=7.0, learning_rate=0.3)
    np.testing.assert_array_equal(job.pull(0)[0], 0 - np.float32(0.3) * gradient)


def test_rows_of_one_and_all_of_another_have_a_mean_too(make_synchronous):
    job = make_synchronous(2)
    job.push(1, {0: (np.array([2, 2]), np.ones(2, np.float32))})
    job.push(0, ones())
    assert value_of(job) == [-0.5, -0.5, -1.5]


def test_who_has_nothing_for_a_variable_counts_as_zero(make_synchronous):
    job = make_synchronous(2)
    job.push(0, ones(4))
    job.push(1, {})
    assert value_of(job) == [-2, -2, -2]


def test_a_counter_that_all_increase_is_increased_once(make_synchronous):
    job = make_synchronous(3)
    job.create(1, np.array(41))
    for rank in range(3):
        job.push(rank, {1: np.array(1)}, rule="add")
    assert value_of(job, 1) == 42


def test_what_is_assigned_is_the_mean_of_those_who_assign(make_synchronous):
    job = make_synchronous(3)
    job.push(0, ones(4), rule="assign", weight=3.0)
    job.push(1, {}, weight=9.0)
    job.push(2, ones(8), rule="assign", weight=1.0)
    assert value_of(job) == [5, 5, 5]


def test_a_step_in_which_nobody_has_anything_to_say_changes_nothing(make_synchronous):
    job = make_synchronous(2)
    job.push(0, ones(), weight=0.0)
    assert job.push(1, ones(), weight=0.0).version == 1
    assert value_of(job) == [0, 0, 0]


MOMENTUM = {"rule": "sgd", "hyper": {"momentum": 0.5}, "slots": (1,), "learning_rate": 0.5}


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        ({"rule": "adagrad", "hyper": {}}, "rule adagrad and sgd"),
        (
            {"hyper": {"momentum": 0.25}},
            "hyper-parameters {'momentum': 0.25} and {'momentum': 0.5}",
        ),
        ({"learning_rate": 0.25}, "learning rate 0.25 and 0.5"),
        ({"update_number": 3}, "update number 3 and 1"),
        ({"aggregation": "sum"}, "aggregation sum and mean"),
        ({"slots": (2,)}, "slots ['v2'] and ['v1']"),
    ],
    ids=str,
)
def test_trainers_who_disagree_are_named(make_synchronous, difference, text):
    job = make_synchronous(3)
    for number in (1, 2, 3):
        job.create(number, np.zeros(3, np.float32))
    job.push(0, ones(), **MOMENTUM)
    job.push(1, {3: np.ones(3, np.float32)}, **MOMENTUM | {"slots": (2,)})
    with pytest.raises(ValueError, match=re.escape(text)) as refusal:
        job.push(2, ones(), **MOMENTUM | difference)
    assert "worker 2 and chief must change 'v0'" in str(refusal.value)
    assert job.push(2, ones(), **MOMENTUM).version == 1


@pytest.mark.parametrize(
    ("aggregation", "dtype", "expected"),
    [
        ("mean", np.float32, 10 * (1 * 1 + 2 * 2 + 5 * 3) / 8),  # weights 1, 2 and 5
        ("mean", np.int64, 10),  # a counter that all increase
        ("sum", np.float32, 60),
        ("sum", np.int64, 60),
        ("first", np.float32, 10),
        ("first", np.int64, 10),
    ],
)
@pytest.mark.parametrize("rule", ["add", "assign"])
def test_what_several_push_is_aggregated_as_they_say(
    make_synchronous, aggregation, dtype, expected, rule
):
    job = make_synchronous(3)
    job.create(1, np.zeros((), dtype))
    for rank, weight in ((2, 5.0), (0, 1.0), (1, 2.0)):
        given = {1: np.array(10 * (rank + 1), dtype)}
        job.push(rank, given, rule=rule, aggregation=aggregation, weight=weight)
    assert value_of(job, 1) == expected


@pytest.mark.parametrize("values", [(7.0, 7.0), (0.0, -0.0), (np.nan, np.nan)])
def test_what_all_must_give_alike_is_taken_once(make_synchronous, values):
    job = make_synchronous(2)
    job.create(1, np.ones((), np.float32))
    for rank, value in enumerate(values):
        given = {1: np.array(value, np.float32)}
        job.push(rank, given, rule="assign", aggregation="equal", weight=1.0 + rank)
    np.testing.assert_array_equal(job.pull(1)[0], values[0])


def test_what_all_must_give_alike_and_do_not_is_refused(make_synchronous):
    job = make_synchronous(2)
    job.create(1, np.ones((), np.float32))
    job.push(0, {1: np.array(1, np.float32)}, rule="add", aggregation="equal")
    with pytest.raises(ValueError, match=r"'v1' .* two values \(its aggregation is NONE\)"):
        job.push(1, {1: np.array(2, np.float32)}, rule="add", aggregation="equal")


class Whole(dict):
    """Terms that are compared as a whole, or not at all."""

    def items(self):
        raise AssertionError("compared one by one")


def test_a_push_like_the_first_is_compared_as_a_whole():
    """N trainers with V variables cost N comparisons under the lock, and not N² · V."""
    how = ("sgd", (), 0.1, 1, "mean")
    terms = {f"shard {number}": (how, (), None) for number in range(100)}
    agreement = Agreement()
    agreement.join("chief", terms)
    for rank in range(64):
        agreement.join(f"worker {rank}", Whole(terms))


def test_who_pushes_for_other_variables_is_compared_with_all_before(make_synchronous):
    job = make_synchronous(4)
    job.create(1, np.zeros(3, np.float32))
    job.push(0, ones())
    job.push(1, {1: np.ones(3, np.float32)}, learning_rate=0.5)
    with pytest.raises(ValueError, match="worker 2 and worker 1 must change 'v1'"):
        job.push(2, {1: np.ones(3, np.float32)}, learning_rate=0.25)


def test_whoever_starts_anew_need_not_agree_with_what_it_gave_up(make_synchronous):
    job = make_synchronous(2)
    job.push(0, ones(), learning_rate=0.5)
    job.lose(0)
    job.come(0)
    job.ask(0, Join(from_version=0))
    job.push(0, ones(), learning_rate=0.25)
    assert job.push(1, ones(), learning_rate=0.25).version == 1
    assert value_of(job) == [-0.25] * 3


def test_a_push_ahead_of_the_server_is_refused(make_synchronous):
    job = make_synchronous(2)
    with pytest.raises(ValueError, match="step must be at most 0, the version of ps 0; chief push"):
        job.push(0, ones(), step=1, pulled_version=0)


def test_asking_again_counts_once(make_synchronous):
    """As a trainer does whose reply was lost."""
    job = make_synchronous(2)
    for _ in range(2):
        job.push(0, ones())
    job.push(1, ones())
    again = job.push(0, ones())
    assert (again.dropped, again.version, value_of(job)) == (False, 1, [-1, -1, -1])


def test_the_first_step_waits_for_all_who_may_come(make_synchronous):
    job = make_synchronous(3, come=[0], start_timeout_secs=60.0)
    assert job.push(0, ones()).waiting_for == ("worker 1", "worker 2")
    job.server.joined(job.client(1))  # is there, and has said nothing so far
    job.clock.now += 61
    assert job.push(0, ones()).waiting_for == ("worker 1",)
    job.ask(1, Join())
    assert job.push(1, ones()).version == 1


def test_a_server_that_replaces_another_waits_less_long_for_the_rest(make_synchronous):
    job = make_synchronous(3, come=[], start_timeout_secs=600.0, absence_secs=10.0)
    job.come(0, 1, returning=True)
    job.push(0, ones())
    assert job.push(1, ones()).waiting_for == ("worker 2",)
    job.clock.now += 11
    assert job.push(1, ones()).version == 1


@pytest.mark.parametrize("end", ["lost", "left", "done"])
def test_who_is_gone_is_not_waited_for(make_synchronous, end):
    job = make_synchronous(2)
    job.push(0, ones())
    {
        "lost": lambda: job.lose(1),
        "left": lambda: job.server.left(job.client(1)),
        "done": lambda: job.ask(1, Done()),
    }[end]()
    assert job.ask(0, Join(from_version=1)).version == 1
    assert job.push(0, ones(), step=1).version == 2
    assert value_of(job) == [-2, -2, -2]


@pytest.mark.parametrize("num_steps", [0, 2])
def test_who_waits_for_the_others_to_finish_is_not_waited_for(make_synchronous, num_steps):
    job = make_synchronous(2)
    for step in range(num_steps):
        job.push(0, ones(), step=step)
        job.push(1, ones(), step=step)
    assert job.ask(0, WaitDone()).waiting_for == ("worker 1",)
    assert job.push(1, ones(), step=num_steps).version == num_steps + 1
    job.ask(0, Join(from_version=num_steps + 1))
    assert job.push(1, ones(), step=num_steps + 1).waiting_for == ("chief",)


def test_what_the_dead_had_pushed_counts(make_synchronous):
    job = make_synchronous(2)
    job.push(1, ones(3), note="read up to 7")
    job.lose(1)
    job.push(0, ones(1))
    assert value_of(job) == [-2, -2, -2]
    job.server.joined(job.client(1))
    assert job.ask(1, Join()).note == "read up to 7"


def test_who_returns_starts_anew(make_synchronous):
    """What it had pushed and was not applied is forgotten, with its note: nothing counts twice."""
    job = make_synchronous(2)
    job.push(0, ones(), note="0")
    job.push(1, ones(), note="0")
    job.push(1, ones(100), step=1, note="1")
    job.lose(1)
    job.server.joined(job.client(1))
    joined = job.ask(1, Join())
    assert (joined.version, joined.note, joined.num_shards, joined.is_ready) == (1, "0", 1, True)
    job.push(0, ones(1), step=1)
    assert value_of(job) == [-2, -2, -2]


def test_who_returns_while_its_push_is_applied_is_told_of_it(make_synchronous):
    begins, may_end = threading.Event(), threading.Event()

    def slow(value, *_):
        if len(value):
            begins.set()
            assert may_end.wait(30)

    job = make_synchronous(2, rules={"slow": lambda hyper: slow})
    job.push(1, ones(), rule="slow", note="new")
    step = threading.Thread(target=lambda: job.push(0, ones(), rule="slow"))
    step.start()
    assert begins.wait(30)
    notes = []
    join = threading.Thread(target=lambda: notes.append(job.ask(1, Join()).note))
    join.start()
    join.join(0.05)
    assert notes == []
    may_end.set()
    for thread in (step, join):
        thread.join(30)
    assert notes == ["new"]


def test_a_late_comer_contributes_from_the_step_that_it_names(make_synchronous):
    job = make_synchronous(2, come=[0], start_timeout_secs=0.0)
    job.push(0, ones())
    job.come(1)
    assert job.push(0, ones(), step=1).version == 2, "it has not said from when on it takes part"
    job.ask(1, Join(from_version=3))
    assert job.push(0, ones(), step=2).version == 3
    assert job.push(0, ones(), step=3).waiting_for == ("worker 1",)
    assert job.push(1, ones(3), step=3).version == 4
    assert value_of(job) == [-5, -5, -5]


def test_backup_workers_come_too_late_and_are_told(make_synchronous):
    job = make_synchronous(3, replicas_to_aggregate=2)
    job.push(2, ones(1))
    job.push(0, ones(3))
    late = job.push(1, ones(100))
    assert (late.dropped, late.version, late.staleness, value_of(job)) == (True, 1, 1, [-2, -2, -2])
    assert job.push(1, ones(), step=1).waiting_for == ("chief", "worker 2")


def test_fewer_trainers_than_are_enough_are_enough_if_there_are_no_more(make_synchronous):
    job = make_synchronous(3, replicas_to_aggregate=2)
    job.push(0, ones())
    job.ask(1, Done())
    job.lose(2)
    assert job.ask(0, Status()).version == 1


RETURN_SECS = 3.0


def test_a_step_waits_some_seconds_for_a_trainer_that_has_lost_its_connection(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    for rank in range(2):
        job.push(rank, ones())
    job.lose(1)
    assert job.push(0, ones(), step=1).waiting_for == ("worker 1",)
    job.server.joined(job.client(1))
    job.ask(1, Join(returning=True))
    assert job.ask(0, Pull(ids=(0,), min_version=2)).waiting_for == ("worker 1",)
    job.ask(1, Join(returning=True, from_version=1))
    assert job.push(1, ones(3), step=1).version == 2
    assert value_of(job) == [-3, -3, -3]  # the means 1 and 2


def test_a_step_waits_for_a_trainer_that_is_back_before_it_was_seen_to_be_gone(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    for rank in range(2):
        job.push(rank, ones())
    job.server.joined(job.client(1))
    job.ask(1, Join(returning=True))
    assert job.push(0, ones(), step=1).waiting_for == ("worker 1",)
    job.lose(1)  # its first connection
    job.ask(1, Join(returning=True, from_version=1))
    assert job.push(1, ones(3), step=1).version == 2


def test_a_step_waits_for_a_trainer_that_is_lost_again_before_it_has_said_what_is_next(
    make_synchronous,
):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    for rank in range(2):
        job.push(rank, ones())
    job.lose(1)
    job.come(1, returning=True)
    job.lose(1)
    assert job.push(0, ones(), step=1).waiting_for == ("worker 1",)
    job.clock.now += RETURN_SECS
    assert job.ask(0, Pull(ids=(0,), min_version=2)).version == 2


def test_the_first_step_waits_for_a_trainer_that_has_lost_its_connection(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    job.lose(1)
    assert job.push(0, ones()).waiting_for == ("worker 1",)
    job.come(1, returning=True)
    assert job.push(1, ones(3)).version == 1
    assert value_of(job) == [-2, -2, -2]


def test_a_step_waits_no_longer_for_a_trainer_that_does_not_come_back(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    for rank in range(2):
        job.push(rank, ones())
    job.lose(1)
    job.push(0, ones(), step=1)
    job.clock.now += RETURN_SECS
    pulled, (value,) = job.ask_with_arrays(0, Pull(ids=(0,), min_version=2))
    assert (pulled.version, value.tolist()) == (2, [-2, -2, -2])


def test_a_step_does_not_wait_for_a_trainer_that_has_left(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    for rank in range(2):
        job.push(rank, ones())
    job.server.left(job.client(1))
    assert job.push(0, ones(), step=1).version == 2


def test_what_was_pushed_before_the_connection_was_lost_is_not_forgotten(make_synchronous):
    job = make_synchronous(2, return_secs=RETURN_SECS)
    job.push(1, ones(3), number=5)
    job.lose(1)
    job.server.joined(job.client(1))
    job.ask(1, Join(returning=True))
    assert job.push(1, ones(3), number=5).waiting_for == ("chief",)
    assert job.push(0, ones(1)).version == 1
    assert value_of(job) == [-2, -2, -2]
