"""CREATE, PULL and PUSH: what becomes of variables."""

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices
from paceline.collectives.parameter_server import (
    Create,
    Join,
    OptimizerSpec,
    Pull,
    Push,
    PushPlan,
    ShardSpec,
    Update,
)
from paceline.nn.optimizers import server_rules
from paceline.nn.optimizers.rules import RULES

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]
SHAPES = [(), (1,), (7,), (0,), (0, 3), (3, 0), (4, 3), (2, 3, 4)]


@pytest.fixture
def job(make_job):
    job = make_job()
    job.come(0)
    return job


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_variable_comes_back_as_it_was_created(job, dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    assert not job.create(3, value.copy()).existed
    (pulled,) = job.pull(3)
    assert pulled.dtype == value.dtype
    np.testing.assert_array_equal(pulled, value, strict=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_a_variable_may_be_filled_with_a_number(job, dtype, fill):
    spec = ShardSpec(name="v", whole_shape=(10, 2), dtype=dtype, start=3, stop=8)
    job.ask(0, Create(id=0, spec=spec, fill=fill))
    np.testing.assert_array_equal(job.pull(0)[0], np.full((5, 2), fill, dtype), strict=True)


def test_a_variable_may_be_read_from_a_checkpoint_with_the_version_it_had(job):
    job.storage.checkpoints["model.ckpt-70"] = {
        "w": np.arange(20.0).reshape(10, 2),
        "b": np.float32(3),
    }
    rows = ShardSpec(name="w", whole_shape=(10, 2), dtype="float64", start=3, stop=5)
    scalar = ShardSpec(name="b", whole_shape=(), dtype="float32", start=0, stop=1)
    for number, spec in enumerate([rows, scalar]):
        job.ask(0, Create(id=number, spec=spec, checkpoint="model.ckpt-70", version=70))
    assert [value.tolist() for value in job.pull(0, 1)] == [[[6, 7], [8, 9]], 3]
    assert job.ask(0, Join()).version == 70


def test_a_version_is_taken_over_only_until_the_first_update(job):
    job.create(0, np.zeros(2), version=5)
    job.push(0, {0: np.ones(2)}, step=5)
    job.create(1, np.zeros(2), version=90)
    assert job.ask(0, Join()).version == 6


def test_who_creates_a_variable_second_finds_it_as_it_is(make_job):
    job = make_job(2)
    job.come(0, 1)
    assert not job.create(0, np.array([1.0, 2.0]), rank=0).existed
    assert job.create(0, np.array([8.0, 9.0]), rank=1).existed
    assert job.pull(0)[0].tolist() == [1, 2]


def test_rows_are_pulled_in_the_order_asked_for_beside_whole_variables(job):
    table = np.arange(12.0).reshape(6, 2)
    job.create(0, table.copy())
    job.create(1, np.arange(3.0))
    request = Pull(ids=(1, 0), rows=(False, True))
    _, (vector, rows) = job.ask_with_arrays(0, request, np.array([5, 0, 5, 2]))
    np.testing.assert_array_equal(vector, [0, 1, 2])
    np.testing.assert_array_equal(rows, table[[5, 0, 5, 2]])


@pytest.mark.parametrize("name", server_rules())
@pytest.mark.parametrize("num_shards", [1, 3])
def test_the_optimizer_runs_on_servers_as_it_does_at_home(make_job, update_rules, name, num_shards):
    """Bit for bit, however the variable is split, over dense and sparse steps."""
    hyper = {"momentum": 0.9} if name in ("sgd", "rmsprop") else {}
    rng = np.random.default_rng(1)
    values = [rng.normal(size=(9, 4)).astype(np.float32)]
    values += [
        np.full((9, 4), start, np.float32) for start in RULES[name](**hyper).slots().values()
    ]
    bounds = np.linspace(0, 9, num_shards + 1).astype(int).tolist()
    jobs = [make_job() for _ in range(num_shards)]
    for job, start, stop in zip(jobs, bounds[:-1], bounds[1:], strict=True):
        job.come(0)
        for number, value in enumerate(values):
            spec = ShardSpec(
                name=f"{number}", whole_shape=(9, 4), dtype="float32", start=start, stop=stop
            )
            job.ask(0, Create(id=number, spec=spec), value[start:stop].copy())
    slots = tuple(range(1, len(values)))
    for step in range(6):
        how, rate = OptimizerSpec(rule=name, hyper=hyper), (0.1, step + 1)
        is_sparse = step % 2 == 1
        rows = rng.integers(0, 9, 12 if is_sparse else 9)
        gradient = rng.normal(size=(len(rows), 4)).astype(np.float32)
        for job, start, stop in zip(jobs, bounds[:-1], bounds[1:], strict=True):
            here = (rows >= start) & (rows < stop)
            arrays = [rows[here] - start, gradient[here]] if is_sparse else [gradient[start:stop]]
            update = Update(id=0, slots=slots, rows=is_sparse)
            push = Push(
                step=step,
                number=next(job.num_pushes),
                pulled_version=step,
                plan=PushPlan(optimizers=(how,), updates=(update,)).text,
                rates=(rate,),
            )
            job.ask(0, push, *arrays)
        _update(update_rules[name](hyper), values, rate, rows if is_sparse else None, gradient)
    for number, value in enumerate(values):
        found = np.concatenate([job.pull(number)[0] for job in jobs])
        np.testing.assert_array_equal(found, value)


def _update(update, values, rate, rows, gradient):
    """What `Optimizer.update` does."""
    if rows is None:
        picked = [value.reshape(-1) for value in values]
    else:
        unique = IndexedSlices(gradient, rows, values[0].shape).unique()
        rows, gradient = unique.indices, unique.values
        picked = [value[rows].reshape(-1) for value in values]
    value, *slots = picked
    update(value, gradient.reshape(-1), slots, *rate)
    if rows is not None:
        for whole, part in zip(values, picked, strict=True):
            whole[rows] = part.reshape(len(rows), -1)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32", "float16", "float32", "float64"])
@pytest.mark.parametrize(("rule", "expected"), [("add", [3, 4, 5]), ("assign", [2, 2, 2])])
def test_what_is_no_gradient_is_added_or_assigned(job, rule, expected, dtype):
    job.create(0, np.array([1, 2, 3], dtype))
    job.push(0, {0: np.full(3, 2, dtype)}, rule=rule)
    np.testing.assert_array_equal(job.pull(0)[0], np.array(expected, dtype), strict=True)


def test_rows_that_occur_twice_are_added_twice(job):
    job.create(0, np.zeros((3, 2), np.int64))
    job.push(0, {0: (np.array([2, 0, 2]), np.array([[1, 2], [3, 4], [5, 6]]))}, rule="add")
    assert job.pull(0)[0].tolist() == [[3, 4], [0, 0], [6, 8]]


def test_a_gradient_may_be_narrower_than_its_variable(job):
    job.create(0, np.ones(2, np.float32))
    job.push(0, {0: np.array([0.5, 0.25], np.float16)})
    np.testing.assert_array_equal(job.pull(0)[0], np.array([0.5, 0.75], np.float32), strict=True)


def test_a_push_brings_the_values_that_come_of_it(job):
    job.create(0, np.ones(2))
    job.create(1, np.ones(()))
    updates = (Update(id=0), Update(id=1))
    plan = PushPlan(optimizers=(OptimizerSpec(rule="add"),), updates=updates, pull=(1, 0))
    push = Push(number=1, step=0, pulled_version=0, plan=plan.text, rates=((0.0, 1),))
    pushed, (scalar, vector) = job.ask_with_arrays(0, push, np.ones(2), np.full((), 4.0))
    assert (pushed.version, scalar.tolist(), vector.tolist()) == (1, 5, [2, 2])


def test_a_push_of_weight_zero_changes_nothing(job):
    job.create(0, np.ones(2))
    job.push(0, {0: np.ones(2)}, weight=0.0)
    assert job.pull(0)[0].tolist() == [1, 1]


@pytest.mark.parametrize("size", [1, 10, 100_000])
def test_what_was_pulled_stays_as_it_was(job, size):
    job.create(0, np.zeros(size))
    (before,) = job.pull(0)
    job.push(0, {0: np.ones(size)}, rule="add")
    (after,) = job.pull(0)
    assert (before == 0).all()
    assert (after == 1).all()


def test_a_variable_that_is_large_is_neither_copied_nor_open_to_be_written(job):
    job.create(0, np.zeros(100_000))
    with pytest.raises(ValueError, match="read-only"):
        job.pull(0)[0][0] = 7


def test_nothing_is_copied_while_nobody_looks(job):
    job.create(0, np.zeros(100_000))
    for step in range(3):
        (value,) = job.pull(0)
        address = value.ctypes.data
        part_of_it = value[1:].reshape(-1)  # keeps it alive as well
        del value
        job.push(0, {0: np.ones(100_000)}, rule="add", step=step)
        assert (part_of_it == step).all()
        assert job.pull(0)[0].ctypes.data != address, "it must have moved to a copy"
        del part_of_it
    address = job.pull(0)[0].ctypes.data
    job.push(0, {0: np.ones(100_000)}, rule="add", step=3)
    assert job.pull(0)[0].ctypes.data == address
