"""Small variables that a plan changes alike are changed by one call; nobody sees which."""

import threading

import numpy as np
import pytest

from paceline.collectives.parameter_server import OptimizerSpec, Push, PushPlan, Update, Write

SHAPES = ((3,), (2, 2), (), (0,), (1000,), (5,), (40_000,), (1, 7))
ALL = range(len(SHAPES))
NUM_SLOTS = {"sgd": 0, "adam": 2, "adagrad": 1, "add": 0}
SLOTS_START = 1000


def dtype_of(number):
    return np.float64 if number == 5 else np.float32


def values(seed, numbers=ALL):
    """Something for each variable."""
    rng = np.random.default_rng(seed)
    everything = [rng.normal(size=shape).astype(dtype_of(n)) for n, shape in enumerate(SHAPES)]
    return {number: np.asarray(everything[number]) for number in numbers}


def slots_of(number, rule):
    return tuple(SLOTS_START + 2 * number + slot for slot in range(NUM_SLOTS[rule]))


def push(job, gradients, rule="sgd", update_number=1, rank=0, step=0):
    """Change variables, by one push."""
    updates = [Update(id=number, slots=slots_of(number, rule)) for number in gradients]
    plan = PushPlan(optimizers=(OptimizerSpec(rule=rule),), updates=tuple(updates))
    request = Push(
        step=step,
        number=next(job.num_pushes),
        pulled_version=step,
        plan=plan.text,
        rates=((0.5, update_number),),
    )
    return job.ask(rank, request, *gradients.values())


@pytest.fixture
def make_model(make_job):
    """A job with all variables, and slots for a rule."""

    def make(rule="sgd", num_trainers=1, **options):
        job = make_job(num_trainers, **options)
        job.come(*range(num_trainers))
        for number, value in values(seed=0).items():
            job.create(number, value)
            for slot in slots_of(number, rule):
                job.create(slot, np.full_like(value, 0.1))
        return job

    return make


def everything(job):
    return [value.tobytes() for value in job.pull(*ALL)]


@pytest.mark.parametrize("rule", NUM_SLOTS)
@pytest.mark.parametrize(
    "turns",
    [
        [ALL] * 3,
        [ALL, (4, 2), ALL],
        [(1, 0), ALL, ALL, (1, 0)],
        [ALL, ALL[::-1], ALL],
        [(0, 1), (1, 2), (0, 2), (0, 1)],
    ],
    ids=["all", "all, some", "some, all", "in any order", "overlapping"],
)
def test_what_is_pushed_together_becomes_what_it_becomes_alone_to_the_bit(make_model, rule, turns):
    together, alone = make_model(rule), make_model(rule)
    for update_number, numbers in enumerate(turns, 1):
        gradients = values(update_number, numbers)
        push(together, gradients, rule, update_number)
        for number, gradient in gradients.items():
            push(alone, {number: gradient}, rule, update_number)
    assert everything(together) == everything(alone)


def test_in_step_each_may_push_what_it_likes(make_model):
    job, start = make_model(num_trainers=2, synchronous=True), values(seed=0)
    for step in range(2):
        for rank, numbers in enumerate([(0, 1, 2), (2, 1, 4)]):
            push(job, values(step, numbers), rank=rank, step=step)
    sums = [values(0)[n].astype(np.float64) + values(1)[n] for n in range(5)]
    shares = [0.5, 1.0, 1.0, 0.0, 0.5]  # of the two trainers that push it
    for number, found in enumerate(job.pull(*range(5))):
        expected = start[number] - 0.5 * shares[number] * sums[number]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_snapshot_has_what_was_there_before_the_next_push(make_model):
    job = make_model()
    push(job, values(seed=1))
    before = everything(job)
    job.snapshot()
    push(job, values(seed=2))
    job.ask(0, Write(path="ckpt", shard_index=0))
    ((_, _, slices),) = job.storage.written
    assert [value.tobytes() for *_, value in slices] == before
    assert everything(job) != before


def test_threads_that_push_the_same_in_other_orders_lose_nothing_and_wait_for_nobody(make_model):
    job, numbers, num_pushes = make_model(num_trainers=4), (0, 1, 2, 4, 7), 50
    ones = {number: np.ones_like(value) for number, value in values(0, numbers).items()}
    orders = [numbers, numbers[::-1], numbers[1:], numbers]

    def push_often(rank):
        for _ in range(num_pushes):
            push(job, {number: ones[number] for number in orders[rank]}, "add", rank=rank)

    threads = [threading.Thread(target=push_often, args=(r,), daemon=True) for r in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for number, found in zip(numbers, job.pull(*numbers), strict=True):
        num_times = num_pushes * sum(number in order for order in orders)
        np.testing.assert_allclose(found, values(0)[number] + num_times, rtol=1e-5)
