"""What is refused, in words that say what to do; and that a refused request changes nothing."""

import json
import math
import random
import re
from copy import copy
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from paceline.collectives.parameter_server import (
    Client,
    Create,
    Done,
    Hold,
    Join,
    Message,
    OptimizerSpec,
    ParameterServer,
    Post,
    Pull,
    Pulled,
    Push,
    Pushed,
    PushPlan,
    Read,
    ShardSpec,
    Snapshot,
    Status,
    Update,
    Wait,
    WaitDone,
    Write,
)
from paceline.collectives.parameter_server.requests import Request, Verb
from paceline.collectives.parameter_server.server import MAX_KEYS


@pytest.fixture
def job(make_job):
    """Holds 0: float32 (3, 2); 1: the same; 2: int64 (3,); 3: a float32 scalar."""
    job = make_job(2)
    job.come(0)
    job.create(0, np.zeros((3, 2), np.float32))
    job.create(1, np.zeros((3, 2), np.float32))
    job.create(2, np.zeros(3, np.int64))
    job.create(3, np.zeros((), np.float32))
    return job


def push(*updates, rule="sgd", hyper=None, pull=(), **rest):
    optimizers = (OptimizerSpec(rule=rule, hyper=hyper or {}),)
    plan = PushPlan(optimizers=optimizers, updates=updates, pull=pull)
    rest = {"step": 0, "number": 1, "pulled_version": 0, "rates": ((1.0, 1),), **rest}
    return Push(plan=plan.text, **rest)


def spec(**changes):
    return ShardSpec(
        **{"name": "v0", "whole_shape": (3, 2), "dtype": "float32", "start": 0, "stop": 3} | changes
    )


GRADIENT = np.ones((3, 2), np.float32)
ROWS = np.array([0, 2])
PUSH = push(Update(id=0))

REFUSED = {
    "another shard of that number": (
        Create(id=0, spec=spec(dtype="float64"), fill=0.0),
        [],
        "id 0 is 'v0' float32 (3, 2) on ps 0, not 'v0' float64 (3, 2); all trainers must create",
    ),
    "other rows of that number": (
        Create(id=0, spec=spec(whole_shape=(9, 2), start=3, stop=6), fill=0.0),
        [],
        "not 'v0' rows 3 to 6 float32 (9, 2)",
    ),
    "no value": (Create(id=9, spec=spec()), [], "must have one source: fill, checkpoint"),
    "two values": (Create(id=9, spec=spec(), fill=0.0), [GRADIENT], "one source"),
    "a value of another shape": (
        Create(id=9, spec=spec()),
        [GRADIENT[:2]],
        "the value of 'v0' float32 (3, 2) must be float32 (3, 2), it is float32 (2, 2)",
    ),
    "a value of another dtype": (Create(id=9, spec=spec()), [GRADIENT * 1.0j], "complex64"),
    "a fill that is not of the type": (
        Create(id=9, spec=spec(dtype="uint8"), fill=300.0),
        [],
        "fill of 'v0' uint8 (3, 2) must be a number of that type, it is 300.0",
    ),
    "half a counter": (Create(id=9, spec=spec(dtype="int64"), fill=0.5), [], "it is 0.5"),
    "more than there is memory": (
        Create(id=9, spec=spec(whole_shape=(1 << 45,), stop=1 << 45), fill=0.0),
        [],
        "needs 140737.5 GB on ps 0, which has",
    ),
    "no such checkpoint": (
        Create(id=9, spec=spec(), checkpoint="x"),
        [],
        "checkpoint 'x' has no 'v0'",
    ),
    "pull of nothing known": (
        Pull(ids=(7,)),
        [],
        "ps 0 holds no variable with id 7, only 4 others; CREATE it first, also if this server was",
    ),
    "row numbers without a flag": (
        Pull(ids=(0,)),
        [ROWS],
        "there are 1 flags and 1 arrays",
    ),
    "a flag without row numbers": (Pull(ids=(0,), rows=(True,)), [], "1 flags and 0 arrays"),
    "rows beyond the shard": (
        Pull(ids=(0,), rows=(True,)),
        [np.array([0, 3])],
        "must be from 0 to 2, counted within the shard; they are from 0 to 3",
    ),
    "rows below the shard": (
        Pull(ids=(0,), rows=(True,)),
        [np.array([-1, 2])],
        "from -1 to 2",
    ),
    "rows of another type": (
        Pull(ids=(0,), rows=(True,)),
        [np.array([1.0])],
        "must be int64 of one dimension, they are float64 (1,)",
    ),
    "rows of two dimensions": (Pull(ids=(0,), rows=(True,)), [ROWS[None]], "int64 (1, 2)"),
    "rows of a scalar": (
        Pull(ids=(3,), rows=(True,)),
        [np.array([0])],
        "'v3' float32 () is a scalar and has no rows",
    ),
    "more rows than a reply holds": (
        Pull(ids=(0,) * 600, rows=(True,) * 600),
        [np.zeros(1 << 20, np.int64)] * 600,
        "a pull must not exceed 4294967296 bytes, this one has 5033164800; pull in several parts",
    ),
    "a gradient of another shape": (
        push(Update(id=0)),
        [GRADIENT.T],
        "the gradient of 'v0' float32 (3, 2) must have shape (3, 2) here, it has (2, 3)",
    ),
    "a gradient of other rows": (
        push(Update(id=0, rows=True)),
        [ROWS, GRADIENT],
        "must have shape (2, 2) here, it has (3, 2)",
    ),
    "a wider gradient": (
        push(Update(id=0)),
        [GRADIENT.astype(np.float64)],
        "must be float32, or narrower; it is float64",
    ),
    "a gradient of rows beyond": (
        push(Update(id=0, rows=True)),
        [ROWS + 1, GRADIENT[:2]],
        "1 to 3",
    ),
    "too few arrays": (
        push(Update(id=0), Update(id=1, rows=True)),
        [GRADIENT, GRADIENT],
        "the updates need 3 arrays, 2 came with them",
    ),
    "an optimizer that is not there": (
        push(Update(id=0, optimizer=1)),
        [GRADIENT],
        "optimizer must be one of the 1 that are given, from 0; for id 0 it is 1",
    ),
    "an unknown rule": (
        push(Update(id=0), rule="tiger"),
        [GRADIENT],
        "rule 'tiger' is unknown; there are adadelta, adagrad, adam, adamax, adamw, add, assign",
    ),
    "hyper-parameters that a rule does not take": (
        push(Update(id=0), hyper={"momentum": 7.0}),
        [GRADIENT],
        "rule 'sgd' does not take {'momentum': 7.0} and 0 slots of float32: momentum must be",
    ),
    "too few slots": (push(Update(id=0, slots=(1,)), rule="adam"), [GRADIENT], "and 1 slots"),
    "a slot of another shape": (
        push(Update(id=0, slots=(2,)), hyper={"momentum": 0.5}),
        [GRADIENT],
        "a slot of 'v0' float32 (3, 2) must be like it, it is 'v2' int64 (3,)",
    ),
    "a variable twice": (
        push(Update(id=0), Update(id=0)),
        [GRADIENT, GRADIENT],
        "a variable occurs twice in a push",
    ),
    "a variable that is a slot": (
        push(Update(id=1), Update(id=0, slots=(1,)), hyper={"momentum": 0.5}),
        [GRADIENT, GRADIENT],
        "rule 'sgd' does not take {'momentum': 0.5} and 0 slots",
    ),
    "rows that are assigned": (
        push(Update(id=0, rows=True), rule="assign"),
        [ROWS, GRADIENT[:2]],
        "assign takes all of a variable",
    ),
    "the last of several is wrong": (
        push(Update(id=0), Update(id=1), Update(id=2), rule="add"),
        [GRADIENT, GRADIENT, GRADIENT],
        "the gradient of 'v2'",
    ),
    "a rate too many": (
        push(Update(id=0), rates=((1.0, 1), (1.0, 1))),
        [GRADIENT],
        "the plan has 1 optimizers, 2 rates came with it",
    ),
    "a plan that is none": (
        Push(step=0, number=1, pulled_version=0, plan='{"optimizers": []}'),
        [],
        "a malformed plan of a PUSH: updates: Field required",
    ),
    "a pull of the unknown after a push": (push(Update(id=0), pull=(8,)), [GRADIENT], "id 8"),
    "a version from the future": (
        push(Update(id=0), pulled_version=5),
        [GRADIENT],
        "pulled_version must be at most 0, the version of ps 0; chief gives 5. If this server was",
    ),
    "a write without a snapshot": (
        Write(path="p", shard_index=0),
        [],
        "ps 0 has no snapshot to write; SNAPSHOT it first",
    ),
    "arrays where none belong": (
        Snapshot(numbers={0: 1}),
        [GRADIENT],
        "SNAPSHOT takes no arrays, 1 came with it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_request_is_refused_and_changes_nothing(job, case):
    request, arrays, text = REFUSED[case]
    before = [value.tolist() for value in job.pull(0, 1, 2, 3)]
    with pytest.raises(ValueError, match=re.escape(text)):
        job.ask(0, request, *arrays)
    assert [value.tolist() for value in job.pull(0, 1, 2, 3)] == before
    assert job.ask(0, Status()).version == 0


def test_a_trainer_that_has_not_joined_may_look_but_not_push(job):
    job.server.joined(job.client(1))
    assert len(job.pull(0, rank=1)) == 1
    for _ in range(2):
        with pytest.raises(
            ValueError, match="worker 1 must JOIN ps 0 before it pushes, also after"
        ):
            job.push(1, {0: GRADIENT})
        job.ask(1, Join())
        job.push(1, {0: GRADIENT})
        job.ask(1, Done())


def test_a_stranger_is_refused(job):
    message = Message(Verb.JOIN, b"{}")
    with pytest.raises(ValueError, match="rank 2 is none of this job's trainers: chief, worker 1"):
        job.server.handle(Client(2, "worker 2"), message)


@pytest.mark.parametrize(
    ("verb", "body", "text"),
    [
        (0, b"{}", "verb 0 is unknown; a parameter server knows 1 to 13"),
        (99, b"{}", "verb 99 is unknown"),
        (Verb.JOIN, b"", "a malformed Join: : Invalid JSON"),
        (Verb.JOIN, b'{"rank": 1}', "a malformed Join: rank: Extra inputs are not permitted"),
        (Verb.JOIN, b'{"number": -1}', "a malformed Join: number: Input should be greater"),
        (Verb.JOIN, b'{"number": "1"}', "number: Input should be a valid integer"),
        (Verb.PULL, b"{}", "a malformed Pull: 2 bytes, it must have 24 or more"),
        (Verb.PULL, Pull(ids=(1, 2)).packed()[:-1], "a malformed Pull: 39 bytes, by its own numb"),
        (Verb.PUSH, PUSH.packed() + b"x", f"a malformed Push: {len(PUSH.packed()) + 1} bytes, by"),
        (Verb.PUSH, PUSH.packed()[:-1] + b"\xff", "'utf-8' codec can't decode"),
        (Verb.READ, b'{"key": "k", "wait_secs": 11}', "wait_secs: Input should be less than or"),
        (Verb.READ, b'{"key": ""}', "key: String should have at least 1 character"),
    ],
)
def test_a_malformed_body_is_refused(job, verb, body, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        job.server.handle(job.client(0), Message(verb, body))


PULL = Pull(ids=(0,))


@pytest.mark.parametrize(
    ("request_", "changes", "text"),
    [
        (PUSH, {"rates": ((math.nan, 1),)}, "a learning rate must be finite, it is nan"),
        (PUSH, {"rates": ((-math.inf, 1),)}, "a learning rate must be finite, it is -inf"),
        (PUSH, {"rates": ((1.0, 0),)}, "updates are numbered from 1 and below 2^62, one is 0"),
        (PUSH, {"rates": ((1.0, 1),) * 1001}, "there may be 1000 rates of a push, not 1001"),
        (PUSH, {"weight": math.nan}, "weight of a push must be finite and ≥ 0, it is nan"),
        (PUSH, {"weight": math.inf}, "it is inf"),
        (PUSH, {"weight": -1.0}, "it is -1.0"),
        (PUSH, {"number": 0}, "pushes are numbered from 1, this one is 0"),
        (PUSH, {"number": 1 << 62}, "numbered from 0 and below 2^62: (0, 4611686018427387904, 0)"),
        (PUSH, {"servers": (0,) * 10_001}, "there may be 10000 servers of a push, not 10001"),
        (PUSH, {"note": "x" * 262_145}, "there may be 262144 characters of a note, not 262145"),
        (PUSH, {"wait_secs": 11.0}, "wait_secs must be from 0 to 10, it is 11.0"),
        (PULL, {"wait_secs": math.nan}, "wait_secs must be from 0 to 10, it is nan"),
        (PULL, {"min_version": 1 << 62}, "below 2^62: (4611686018427387904,)"),
        (PULL, {"ids": (0,) * 10_001}, "there may be 10000 ids of a pull, not 10001"),
    ],
)
def test_a_number_that_cannot_be_is_refused_by_who_asks_and_who_is_asked(
    job, request_, changes, text
):
    """So that of a step that goes to several servers none has a part when another refuses."""
    with pytest.raises(ValueError, match=re.escape(text)):
        replace(request_, **changes)
    unchecked = copy(request_)
    for name, value in changes.items():
        setattr(unchecked, name, value)
    with pytest.raises(ValueError, match=re.escape(text)):
        job.ask(0, unchecked, GRADIENT)


def test_a_number_below_zero_is_not_asked_for():
    with pytest.raises(ValueError, match=re.escape("numbered from 0 and below 2^62: (-1, 1, 0)")):
        replace(PUSH, step=-1)


@pytest.mark.parametrize(
    "body",
    [
        Pull(ids=()),
        Pull(ids=(7, 0), rows=(False, True), min_version=3, wait_secs=0.5),
        PUSH,
        replace(PUSH, servers=(0, 2), weight=64.0, rates=((0.1, 7), (1.0, 8)), plan="ä"),
        replace(PUSH, note="", wait_secs=1.0),
        replace(PUSH, note="{}"),
        Pulled(version=1, stop_step=0),
        Pulled(version=1, waiting_for=("worker 1", "worker 2")),
        Pushed(version=2, staleness=1, dropped=True),
        Pushed(version=2, is_ending=True, stop_step=9, waiting_for=("chief",)),
    ],
    ids=str,
)
def test_what_is_said_in_each_step_comes_as_it_went(body):
    assert type(body).unpacked(body.packed()) == body


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 2, "stop": 1},
        {"stop": 4},
        {"whole_shape": (), "stop": 2},
        {"whole_shape": (), "stop": 0},
        {"dtype": "object"},
        {"whole_shape": (-1,)},
        {"name": ""},
    ],
    ids=str,
)
def test_a_shard_lies_within_its_variable(changes):
    with pytest.raises(ValidationError):
        spec(**changes)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"trainers": []}, "trainers must name at least one"),
        ({"replicas_to_aggregate": 1}, "has no meaning where each push is applied at once"),
        ({"synchronous": True, "replicas_to_aggregate": 3}, "must be from 1 to 2"),
        ({"synchronous": True, "replicas_to_aggregate": 0}, "it is 0"),
        ({"absence_secs": -1.0}, "absence_secs must not be negative, it is -1.0"),
        ({"rules": {"add": None}}, "rules must not be called add: these are built in"),
    ],
    ids=str,
)
def test_a_server_that_cannot_be_is_not_made(options, text):
    usual = {"trainers": ["chief", "worker 1"], "rules": {}, "storage": None, "synchronous": False}
    with pytest.raises(ValueError, match=text):
        ParameterServer(**usual | options)


def test_the_board_is_bounded_in_number_and_in_size(job):
    for number in range(MAX_KEYS):
        job.ask(0, Post(key=f"{number}", text="."))
    with pytest.raises(ValueError, match=f"the board holds {MAX_KEYS} keys, no room for 'one mo"):
        job.ask(0, Post(key="one more", text="."))
    job.ask(0, Post(key="0", text=None))
    job.ask(0, Post(key="one more", text="."))
    long = "x" * (256 << 10)
    for number in range(1, 64):
        job.ask(0, Post(key=f"{number}", text=long))
    with pytest.raises(ValueError, match="the board holds 16777216 characters, with '64' they"):
        job.ask(0, Post(key="64", text=long))


def test_an_update_that_fails_half_way_ends_the_server_with_its_reason(make_job):
    """Such as for want of memory. Half an update is worse than none: nobody reads it."""

    def burst(value, *_):
        value[:1] += 1
        if len(value):
            raise MemoryError("no scratch")

    job = make_job(2, rules={"burst": lambda hyper: burst})
    job.come(0, 1)
    job.create(0, np.zeros(3))
    with pytest.raises(MemoryError):
        job.push(0, {0: np.ones(3)}, rule="burst")
    text = (
        "ps 0 has failed in the update that follows version 0, pushed by chief: MemoryError: "
        "no scratch; its variables may be half updated, start it again from the last checkpoint"
    )
    for ends in (lambda: job.pull(0, rank=1), lambda: job.ask(1, Done()), job.server.run):
        with pytest.raises(RuntimeError) as failure:
            ends()
        assert str(failure.value) == text


KINDS = {kind.verb: kind for kind in (*Request.__subclasses__(), Pull, Push)}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def bodies():
    """JSON that looks like a request's: its own fields, mostly with the wrong things in them."""

    def of(verb):
        fields = KINDS[verb].__annotations__
        value = st.integers(0, 4) | st.lists(st.integers(0, 4), max_size=3) | JSON
        kinds = {name: value for name in fields if name != "wait_secs"}
        content = st.fixed_dictionaries({}, optional=kinds).map(json.dumps).map(str.encode)
        return st.tuples(st.just(verb), content | JSON.map(json.dumps).map(str.encode))

    known = st.sampled_from(sorted(KINDS)).flatmap(of)
    return known | st.tuples(st.integers(0, 20), st.binary(max_size=64))


ARRAYS = st.lists(
    st.sampled_from([GRADIENT, ROWS, GRADIENT[0], np.zeros(3, np.int64), np.float32(1) * GRADIENT]),
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(messages=st.lists(st.tuples(bodies(), ARRAYS), min_size=5, max_size=10))
def test_random_bodies_leave_the_server_well(make_job, messages):
    """Each is answered or refused; nothing else is raised, and variables stay what they were."""
    job = make_job(2)
    job.come(0)
    job.create(4_000, np.ones(2))
    for (verb, body), arrays in messages:
        handle(job, verb, body, arrays)
    assert job.pull(4_000)[0].tolist() == [1, 1]


GOOD = [
    (Join(), []),
    (Create(id=9, spec=spec(), fill=0.5), []),
    (Create(id=8, spec=spec()), [GRADIENT]),
    (Pull(ids=(0, 1), rows=(False, True), wait_secs=1.0), [ROWS]),
    (push(Update(id=0), Update(id=1, rows=True)), [GRADIENT, ROWS, GRADIENT[:2]]),
    (push(Update(id=0, slots=(1,)), hyper={"momentum": 0.9}, pull=(1,), note="n"), [GRADIENT]),
    (Wait(clock=3, staleness=1), []),
    (Hold(), []),
    (Snapshot(numbers={0: 1}), []),
    (Write(path="p", shard_index=1), []),
    (Post(key="k", text="t"), []),
    (Read(key="k", wait_secs=0.5), []),
    (WaitDone(), []),
    (Status(), []),
    (Done(), []),
]


def test_ten_thousand_damaged_bodies_leave_the_server_well(make_job):
    """Bytes of good ones are changed, removed, doubled; arrays are left out or exchanged."""
    rng = random.Random(4)
    passing = count(1000, 60)  # all waits are over at once
    job = make_job(2, clock=lambda: next(passing))
    job.come(0, 1)
    job.create(4_000, np.ones(2))
    num_answered = 0
    for _ in range(10_000):
        request, arrays = rng.choice(GOOD)
        body = bytearray(request.packed())
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(body) + 1)
            body[place : place + rng.randrange(3)] = rng.choices(b'0123456789{}[]",:.-entul', k=1)
        kept = [array for array in arrays if rng.random() < 0.9]
        if rng.random() < 0.1:
            rng.shuffle(kept)
        num_answered += handle(job, request.verb, bytes(body), kept)
    assert 1_000 < num_answered < 9_000
    assert job.pull(4_000)[0].tolist() == [1, 1]


def handle(job, verb, body, arrays):
    """Whether the server answers and does not refuse; it must do either."""
    try:
        reply = job.server.handle(job.client(0), Message(verb, body, arrays))
    except ValueError:
        return False
    assert reply.verb == verb
    return True
