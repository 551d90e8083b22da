"""`ParameterClient` and a server over a connection: the same requests as bytes."""

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest

from paceline.collectives.parameter_server import (
    Create,
    Done,
    Hold,
    InProcessServer,
    Join,
    OptimizerSpec,
    ParameterClient,
    Pull,
    Push,
    PushPlan,
    Read,
    RefusedRequest,
    ShardSpec,
    Snapshot,
    Update,
    Write,
)


@pytest.fixture
def serve(make_job):
    """`serve(num_trainers, ...)` → the job, and a client for each trainer; closed at the end.

    With `come`, only those connect, and none joins.
    """
    with ExitStack() as stack:

        def start(num_trainers, come=None, **options):
            job = make_job(num_trainers, clock=time.monotonic, **options)
            channel = InProcessServer(job.server)
            stack.enter_context(closing(channel))
            clients = []
            for rank in range(num_trainers) if come is None else come:
                clients.append(ParameterClient(channel.connect(job.client(rank))))
                stack.callback(clients[-1].close)
                if come is None:
                    clients[-1].ask(Join())
            return job, clients

        yield start


def adding(step, *ids, pull=(), **rest):
    updates = tuple(Update(id=number) for number in ids)
    plan = PushPlan(optimizers=(OptimizerSpec(rule="add"),), updates=updates, pull=pull)
    return Push(
        step=step,
        number=step + 1,
        pulled_version=step,
        plan=plan.text,
        rates=((0.0, 1),),
        **rest,
    )


VECTOR = ShardSpec(name="v", whole_shape=(4,), dtype="float32", start=0, stop=4)
SCALAR = ShardSpec(name="s", whole_shape=(), dtype="int64", start=0, stop=1)


def test_variables_are_created_pushed_and_pulled(serve):
    _, (client,) = serve(1)
    assert not client.ask(Create(id=0, spec=VECTOR), [np.arange(4, dtype=np.float32)]).existed
    assert not client.ask(Create(id=1, spec=SCALAR, fill=5.0)).existed
    vector, scalar = np.empty(4, np.float32), np.empty((), np.int64)
    started = client.start(
        adding(0, 0, 1, pull=(0, 1)),
        [np.ones(4, np.float32), np.array(2)],
        into=[vector, scalar],
    )
    assert started.wait().version == 1
    assert [a is b for a, b in zip(started.arrays, (vector, scalar), strict=True)] == [True, True]
    assert (vector.tolist(), scalar.tolist()) == ([1, 2, 3, 4], 7)
    rows = client.start(Pull(ids=(0,), rows=(True,)), [np.array([3, 0])])
    assert (rows.wait().version, rows.arrays[0].tolist()) == (1, [4, 1])


def test_several_servers_work_at_once(serve):
    clients = [serve(1)[1][0] for _ in range(2)]
    for client in clients:
        client.ask(Create(id=0, spec=VECTOR, fill=0.0))
    started = [client.start(adding(0, 0), [np.ones(4, np.float32)]) for client in clients]
    assert [one.wait().version for one in started] == [1, 1]


def test_a_refusal_says_why_and_the_next_request_is_answered(serve):
    _, (client,) = serve(1)
    with pytest.raises(RefusedRequest, match="ps 0 holds no variable with id 3"):
        client.ask(Pull(ids=(3,)))
    assert client.ask(Join()).num_shards == 0


def test_who_waits_for_the_dead_goes_on_without_them(serve):
    _, (chief, worker) = serve(2, synchronous=True)
    chief.ask(Create(id=0, spec=VECTOR, fill=0.0))
    started = chief.start(adding(0, 0, wait_secs=10.0), [np.ones(4, np.float32)])
    worker.close()
    assert started.wait().version == 1


def test_the_server_ends_when_all_have_finished(serve):
    job, clients = serve(3)
    outcomes = []
    running = threading.Thread(target=lambda: outcomes.append(job.server.run()), daemon=True)
    running.start()
    for client in clients:
        client.ask(Done())
    for client in clients:
        client.close()
    running.join(30)
    assert outcomes == [""]


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_server_that_was_started_anew_is_filled_and_training_goes_on(serve, synchronous):
    """Of the three trainers one had finished before: nobody waits for it for long."""
    job, (chief, worker) = serve(3, synchronous=synchronous, absence_secs=0.0, come=(0, 1))
    job.storage.checkpoints["model.ckpt-70"] = {"v": np.full(4, 5, np.float32)}
    for trainer, has_it in ((chief, False), (worker, True)):
        joined = trainer.ask(Join(returning=True))
        assert (joined.num_shards, joined.is_ready) == (int(has_it), False)
        create = Create(id=0, spec=VECTOR, checkpoint="model.ckpt-70", version=70)
        assert trainer.ask(create).existed == has_it
        assert trainer.ask(Join(from_version=70, returning=True)).version == 70
    started = [
        trainer.start(adding(70, 0, pull=(0,), wait_secs=10.0), [np.ones(4, np.float32)])
        for trainer in (chief, worker)
    ]
    versions = {one.wait().version for one in started}
    assert versions == ({71} if synchronous else {71, 72})
    values = chief.start(Pull(ids=(0,)))
    values.wait()
    assert values.arrays[0].tolist() == [6 if synchronous else 7] * 4


def test_a_checkpoint_is_written_while_training_goes_on(serve):
    job, (client,) = serve(1)
    client.ask(Create(id=0, spec=VECTOR, fill=0.0))
    client.ask(adding(0, 0), [np.ones(4, np.float32)])
    client.ask(Hold())
    client.ask(Snapshot(numbers={}))
    client.ask(adding(1, 0), [np.ones(4, np.float32)])
    assert client.ask(Write(path="p", shard_index=0)).record == "p: part 0"
    assert job.storage.written[0][2][0][-1].tolist() == [1, 1, 1, 1]


def test_bytes_are_counted_in_proportion_to_the_rows_that_travel(serve):
    """And not to the size of the table."""
    _, (client,) = serve(1)
    table = ShardSpec(name="t", whole_shape=(100_000, 16), dtype="float32", start=0, stop=100_000)
    client.ask(Create(id=0, spec=table, fill=0.0))
    before = client.num_bytes
    rows = np.arange(0, 100_000, 1000)
    client.ask(Pull(ids=(0,), rows=(True,)), [rows])
    plan = PushPlan(optimizers=(OptimizerSpec(rule="add"),), updates=(Update(id=0, rows=True),))
    push = replace(adding(0), plan=plan.text)
    client.ask(push, [rows, np.ones((100, 16), np.float32)])
    assert client.num_bytes - before == pytest.approx(2 * 100 * (16 * 4 + 8), abs=1000)


def test_what_does_not_come_is_waited_for_as_long_as_was_said(serve):
    _, (client,) = serve(1)
    assert client.ask(Read(key="nothing", wait_secs=0.01)).text is None
