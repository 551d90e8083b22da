"""Many trainers at once: nothing is lost, nothing is seen half done."""

import threading

import numpy as np
import pytest

from paceline.collectives.parameter_server import (
    Create,
    OptimizerSpec,
    Pull,
    Push,
    PushPlan,
    Update,
    Write,
)

NUM_TRAINERS = 4
NUM_STEPS = 60
NUM_VARIABLES = 3
IDS = tuple(range(NUM_VARIABLES))
SIZE = 20_000


@pytest.fixture
def make_busy(make_job):
    """A job with some variables, too large to be written at one stroke; all zeros."""

    def make(synchronous):
        job = make_job(NUM_TRAINERS, synchronous=synchronous)
        job.come(*range(NUM_TRAINERS))
        for number in IDS:
            job.create(number, np.zeros(SIZE))
        return job

    return make


def at_once(*actions):
    """Run all at once; raises what the first of them raises."""
    errors = []

    def run(action):
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def add_one_to_all(job, rank, step, version, **rest):
    return job.push(
        rank,
        {number: np.ones(SIZE) for number in IDS},
        step,
        "add",
        pulled_version=version,
        note=str(step + 1),
        **rest,
    )


def value_in(array):
    """The one value that all elements have."""
    assert (array == array[0]).all(), "an array was seen half changed"
    return array[0]


def test_no_push_is_lost_and_no_variable_is_seen_half_changed(make_busy):
    job = make_busy(synchronous=False)
    done = threading.Event()

    def train(rank):
        version = 0
        for step in range(NUM_STEPS):
            version = add_one_to_all(job, rank, step, version).version

    def look():
        latest = dict.fromkeys(IDS, 0.0)
        while not done.is_set():
            pulled, arrays = job.ask_with_arrays(0, Pull(ids=IDS))
            for number, array in zip(IDS, arrays, strict=True):
                value = value_in(array)
                assert value >= max(latest[number], pulled.version)
                latest[number] = value

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        at_once(*(lambda rank=rank: train(rank) for rank in range(NUM_TRAINERS)))
    finally:
        done.set()
        looking.join(30)
    assert [value_in(array) for array in job.pull(*IDS)] == [NUM_TRAINERS * NUM_STEPS] * len(IDS)


def test_rows_and_whole_arrays_may_be_pushed_side_by_side(make_busy):
    job = make_busy(synchronous=False)
    rows = np.arange(SIZE)

    def push_rows(rank):
        for step in range(NUM_STEPS):
            job.push(rank, {0: (rows, np.ones(SIZE))}, step, "add", pulled_version=0)

    def push_all(rank):
        for step in range(NUM_STEPS):
            job.push(rank, {0: np.ones(SIZE)}, step, "add", pulled_version=0)

    at_once(*(lambda r=r, f=f: f(r) for r, f in enumerate([push_rows, push_all] * 2)))
    assert value_in(job.pull(0)[0]) == NUM_TRAINERS * NUM_STEPS


def test_a_variable_may_be_pulled_as_a_slot_of_another(make_job):
    """Slots are shards like others; whoever takes two takes them in one order."""
    job = make_job(2)
    job.come(0, 1)
    for number in (0, 1):
        job.create(number, np.zeros(SIZE, np.float32))

    def push(rank, number, slot):
        for step in range(NUM_STEPS):
            update = Update(id=number, slots=(slot,))
            how = OptimizerSpec(rule="sgd", hyper={"momentum": 0.5})
            plan = PushPlan(optimizers=(how,), updates=(update,)).text
            request = Push(
                step=step, number=step + 1, pulled_version=0, plan=plan, rates=((0.1, 1),)
            )
            job.ask(rank, request, np.ones(SIZE, np.float32))

    at_once(lambda: push(0, 0, 1), lambda: push(1, 1, 0))
    for array in job.pull(0, 1):
        value_in(array)


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_snapshot_holds_whole_steps_and_the_notes_that_belong_to_them(make_busy, synchronous):
    job = make_busy(synchronous)
    num_saved = 0
    versions = []

    def train(rank):
        version = 0
        for step in range(NUM_STEPS):
            at = step if synchronous else version
            version = add_one_to_all(job, rank, step, at, wait_secs=10.0).version

    def save():
        nonlocal num_saved
        while not versions or versions[-1] < NUM_STEPS:
            snapped = job.snapshot()
            job.ask(0, Write(path=f"{num_saved}", shard_index=0))
            values = {value_in(array) for *_, array in job.storage.written[-1][2]}
            assert values == {snapped.version}
            notes = [int(note) for note in snapped.notes.values()]
            if synchronous:
                assert set(notes) <= {snapped.version}
            else:
                assert sum(notes) == snapped.version
            versions.append(snapped.version)
            num_saved += 1

    at_once(save, *(lambda rank=rank: train(rank) for rank in range(NUM_TRAINERS)))
    assert versions == sorted(versions)


def test_in_step_everybody_sees_the_same_at_the_same_version(make_busy):
    job = make_busy(synchronous=True)

    def train(rank):
        for step in range(NUM_STEPS):
            pulled, arrays = job.ask_with_arrays(rank, Pull(ids=IDS, min_version=step))
            assert {value_in(array) for array in arrays} == {pulled.version} == {step}
            reply = add_one_to_all(job, rank, step, step, wait_secs=10.0)
            assert (reply.version, reply.waiting_for) == (step + 1, ())

    at_once(*(lambda rank=rank: train(rank) for rank in range(NUM_TRAINERS)))


def test_trainers_that_die_in_any_step_hold_nobody_up(make_busy):
    job = make_busy(synchronous=True)

    def train(rank):
        for step in range(NUM_STEPS):
            if step == 10 * rank and rank:
                job.lose(rank)
                return
            while (
                not (reply := add_one_to_all(job, rank, step, step, wait_secs=10.0)).version > step
            ):
                assert reply.waiting_for

    at_once(*(lambda rank=rank: train(rank) for rank in range(NUM_TRAINERS)))
    assert [value_in(array) for array in job.pull(*IDS)] == [NUM_STEPS] * len(IDS)


def test_of_several_who_create_a_variable_one_is_first(make_job, spec_of):
    job = make_job(NUM_TRAINERS)
    existed = {number: [] for number in range(50)}

    def create(rank):
        for number in existed:
            value = np.full(3, float(rank))
            request = Create(id=number, spec=spec_of(value, f"v{number}"))
            existed[number].append(job.ask(rank, request, value).existed)

    at_once(*(lambda rank=rank: create(rank) for rank in range(NUM_TRAINERS)))
    assert all(sorted(answers) == [False, True, True, True] for answers in existed.values())
