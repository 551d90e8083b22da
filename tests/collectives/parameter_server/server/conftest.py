"""A parameter server that is asked directly, with a clock and a storage of the test's own."""

import itertools

import numpy as np
import pytest

from paceline.collectives.parameter_server import (
    Client,
    Create,
    Hold,
    Join,
    Message,
    OptimizerSpec,
    ParameterServer,
    Pull,
    Push,
    PushPlan,
    ShardSpec,
    Snapshot,
    Update,
)
from paceline.nn.optimizers import server_rules

UPDATE_RULES = server_rules()


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Storage:
    """Checkpoints in memory: path → name → whole variable."""

    def __init__(self):
        self.checkpoints = {}
        self.written = []

    def read(self, path, name, start, stop):
        if name not in self.checkpoints.get(path, {}):
            raise ValueError(f"checkpoint '{path}' has no '{name}'")
        whole = self.checkpoints[path][name]
        return whole[start:stop].copy() if whole.ndim else whole.copy()

    def write(self, path, shard_index, slices):
        copies = [(*rest, array.copy()) for *rest, array in slices]
        self.written.append((path, shard_index, copies))
        return f"{path}: part {shard_index}"


class Job:
    """A server and its trainers, who all talk from the test's thread, or from any."""

    def __init__(self, num_trainers=1, synchronous=False, **options):
        self.clock = options.setdefault("clock", Clock())
        self.storage = options.setdefault("storage", Storage())
        self.num_pushes = itertools.count(1)
        self.names = ["chief", *(f"worker {i}" for i in range(1, num_trainers))]
        self.server = ParameterServer(
            trainers=self.names,
            synchronous=synchronous,
            **{"rules": UPDATE_RULES, "return_secs": 0.0, **options},
        )

    def client(self, rank):
        return Client(rank, self.names[rank])

    def ask_with_arrays(self, rank, request, *arrays):
        """The reply to a request and its arrays."""
        message = Message(request.verb, request.packed(), arrays)
        reply = self.server.handle(self.client(rank), message)
        assert reply.verb == request.verb
        return request.reply.unpacked(reply.body), reply.arrays

    def ask(self, rank, request, *arrays):
        """The reply to a request."""
        return self.ask_with_arrays(rank, request, *arrays)[0]

    def come(self, *ranks, **join):
        """Trainers connect and join."""
        for rank in ranks:
            self.server.joined(self.client(rank))
            self.ask(rank, Join(**join))

    def lose(self, rank):
        self.server.lost(self.client(rank), "killed by the test")

    def create(self, number, value, rank=0, **how):
        """A variable that is not split."""
        value = np.asarray(value)
        return self.ask(rank, Create(id=number, spec=whole(value, f"v{number}"), **how), value)

    def snapshot(self, rank=0):
        """The server keeps its values, with the pushes that it has."""
        self.ask(rank, Hold())
        return self.ask(rank, Snapshot(numbers={}))

    def pull(self, *numbers, rank=0):
        """The values of variables."""
        return self.ask_with_arrays(rank, Pull(ids=numbers))[1]

    def push(self, rank, gradients, step=0, rule="sgd", hyper=None, **rest):
        """Change variables: id → gradient, or id → (rows, gradients)."""
        updates, arrays = [], []
        for number, gradient in gradients.items():
            has_rows = isinstance(gradient, tuple)
            updates.append(Update(id=number, rows=has_rows, slots=rest.get("slots", ())))
            arrays += gradient if has_rows else [gradient]
        rest.pop("slots", None)
        optimizer = OptimizerSpec(
            rule=rule,
            hyper=hyper or {},
            aggregation=rest.pop("aggregation", "mean"),
        )
        plan = PushPlan(optimizers=(optimizer,), updates=tuple(updates), pull=rest.pop("pull", ()))
        request = Push(
            step=step,
            number=rest.pop("number", None) or next(self.num_pushes),
            pulled_version=rest.pop("pulled_version", step),
            plan=plan.text,
            rates=((rest.pop("learning_rate", 1.0), rest.pop("update_number", 1)),),
            **rest,
        )
        return self.ask(rank, request, *[np.asarray(array) for array in arrays])


def whole(value, name):
    """The spec of a variable that is not split."""
    stop = value.shape[0] if value.ndim else 1
    return ShardSpec(name=name, whole_shape=value.shape, dtype=str(value.dtype), start=0, stop=stop)


@pytest.fixture(scope="session")
def make_job():
    """`Job`."""
    return Job


@pytest.fixture(scope="session")
def update_rules():
    """The rules of all optimizers, as a server takes them."""
    return UPDATE_RULES


@pytest.fixture(scope="session")
def spec_of():
    """`whole`."""
    return whole
