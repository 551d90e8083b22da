"""Training with variables on a parameter server in another process of this host.

    python benchmarks/push_pull.py [--rounds 15] [--sizes 4096 65536 …] [--rows 100 …] [--links shm]

dense   one push of a gradient, applied by SGD, that brings the new value back: per size, and for 20
        variables of 1.5 MB in all, as a small convolutional network has
sparse  rows of a table of 10^6 × 16: pulled, then changed along their gradients by Adagrad
here    the same arithmetic in this process, without a server, as a yardstick

GB/s and bytes count both directions. Rounds alternate between the variants, so that a noisy
neighbour troubles all. Medians over steps. What the links alone can do is in `parameter_server.py`.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np

from paceline.cluster import free_ports, tune_malloc
from paceline.collectives import Member
from paceline.collectives.parameter_server import (
    Create,
    Done,
    Join,
    OptimizerSpec,
    ParameterClient,
    ParameterServer,
    Pull,
    Push,
    PushPlan,
    ShardSpec,
    Update,
    connect,
    serve,
)
from paceline.nn.optimizers import server_rules

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
ROWS = (100, 1_000, 10_000, 100_000)
LINKS = ("shm", "tcp", "grpc")
NETWORK = (
    (5, 5, 1, 32),
    (32,),
    (5, 5, 32, 64),
    (64,),
    (3136, 102),
    (102,),
    (1024, 10),
    *[(10,)] * 13,
)
TABLE = (1_000_000, 16)
PUSH_NUMBERS = itertools.count(1)

Array = np.ndarray
Step = Callable[[], None]


def run_server(args: argparse.Namespace) -> None:
    """Serve until the trainer is done."""
    server = ParameterServer(
        trainers=["chief"], rules=server_rules(), storage=None, synchronous=False, absence_secs=0.0
    )
    address = Member(0, "ps 0", f"127.0.0.1:{args.port}")
    with closing(serve(address, server, job_id=args.job_id)):
        server.run()


def plan_of(rule: str, updates: tuple[Update, ...], pull: tuple[int, ...] = ()) -> str:
    return PushPlan(optimizers=(OptimizerSpec(rule=rule),), updates=updates, pull=pull).text


def push_of(plan: str) -> Push:
    number = next(PUSH_NUMBERS)
    return Push(step=0, number=number, pulled_version=0, plan=plan, rates=((0.01, 1),))


@dataclass
class Trainer:
    """A connection, and numbers for new variables."""

    client: ParameterClient
    first_id: int
    num_variables: int = 0

    def create(self, shape: tuple[int, ...], fill: float = 0.0) -> int:
        number = self.first_id + self.num_variables
        self.num_variables += 1
        spec = ShardSpec(
            name=f"v{number}", whole_shape=shape, dtype="float32", start=0, stop=shape[0]
        )
        self.client.ask(Create(id=number, spec=spec, fill=fill))
        return number

    def dense(self, shapes: Sequence[tuple[int, ...]]) -> Step:
        """Push gradients of variables and have their new values."""
        ids = tuple(self.create(shape) for shape in shapes)
        updates = tuple(Update(id=number) for number in ids)
        plan = plan_of("sgd", updates, pull=ids)
        gradients = [np.ones(shape, np.float32) for shape in shapes]
        values = [self.client.empty(shape, np.dtype(np.float32)) for shape in shapes]

        def step() -> None:
            self.client.ask(push_of(plan), gradients, values)

        return step

    def sparse(self, num_rows: int, table: tuple[int, int]) -> Step:
        """Pull rows of a table, and push their gradients."""
        rows = np.unique(np.random.default_rng(0).integers(0, TABLE[0], num_rows))
        values = np.empty((len(rows), TABLE[1]), np.float32)
        gradients = np.ones_like(values)
        updates = (Update(id=table[0], slots=(table[1],), rows=True),)
        plan = plan_of("adagrad", updates)

        def step() -> None:
            self.client.ask(Pull(ids=table[:1], rows=(True,)), [rows], [values])
            self.client.ask(push_of(plan), [rows, gradients])

        return step


def dense_here(shapes: Sequence[tuple[int, ...]]) -> Step:
    values = [np.zeros(shape, np.float32).reshape(-1) for shape in shapes]
    gradients = [np.ones_like(value) for value in values]
    rule = server_rules()["sgd"]

    def step() -> None:
        for value, gradient in zip(values, gradients, strict=True):
            rule(value, gradient, (), 0.01, 1, {})

    return step


def sparse_here(num_rows: int) -> Step:
    table, slot = np.zeros(TABLE, np.float32), np.full(TABLE, 0.1, np.float32)
    rows = np.unique(np.random.default_rng(0).integers(0, TABLE[0], num_rows))
    gradients = np.ones((len(rows), TABLE[1]), np.float32)
    rule = server_rules()["adagrad"]

    def step() -> None:
        _ = table.take(rows, axis=0)
        value, squares = table.take(rows, axis=0), slot.take(rows, axis=0)
        rule(value.reshape(-1), gradients.reshape(-1), [squares.reshape(-1)], 0.01, 1, {})
        table[rows], slot[rows] = value, squares

    return step


def measure(steps: Mapping[str, Step], num_bytes: int, rounds: int) -> dict[str, float]:
    """Median seconds of a step of each variant."""
    repetitions = max(1, min(50, (4 << 20) // num_bytes))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_index in range(rounds + 1):
        for name, step in steps.items():
            step()
            marks = [time.perf_counter()]
            for _ in range(repetitions):
                step()
                marks.append(time.perf_counter())
            if round_index > 0:  # the first round warms up
                seconds[name] += np.diff(marks).tolist()
    return {name: float(np.median(times)) for name, times in seconds.items()}


def line(what: str, unit: str, numbers: Sequence[float], digits: int = 1) -> str:
    return f"{what:>16} {unit:6}" + "".join(f"{number:12,.{digits}f}" for number in numbers)


def report_dense(
    trainers: Mapping[str, Trainer], what: str, shapes: Sequence[tuple[int, ...]], rounds: int
) -> None:
    num_bytes = 4 * sum(int(np.prod(shape)) for shape in shapes)
    steps = {name: trainer.dense(shapes) for name, trainer in trainers.items()}
    seconds = measure(steps | {"here": dense_here(shapes)}, num_bytes, rounds)
    print(line(what, "µs", [1e6 * s for s in seconds.values()]))
    print(line("", "GB/s", [2e-9 * num_bytes / s for s in seconds.values()], 2), flush=True)


def report_sparse(
    trainers: Mapping[str, Trainer],
    tables: Mapping[str, tuple[int, int]],
    num_rows: int,
    rounds: int,
) -> None:
    steps = {name: trainer.sparse(num_rows, tables[name]) for name, trainer in trainers.items()}
    steps["here"] = sparse_here(num_rows)
    seconds = measure(steps, num_rows * 150, rounds)
    num_bytes = []
    for name, trainer in trainers.items():
        before = trainer.client.num_bytes
        steps[name]()
        num_bytes.append(trainer.client.num_bytes - before)
    print(line(f"{num_rows} rows", "µs", [1e6 * s for s in seconds.values()]))
    print(line("", "krow/s", [1e-3 * num_rows / s for s in seconds.values()], 0))
    print(line("", "B/row", [n / num_rows for n in num_bytes]), flush=True)


def run_trainer(args: argparse.Namespace) -> None:
    print(environment.describe(tune_malloc()))
    me, server = Member(0, "chief"), Member(0, "ps 0", f"127.0.0.1:{args.port}")
    with ExitStack() as stack:
        trainers = {}
        for index, link in enumerate(args.links):
            connection = connect(
                server, me, job_id=args.job_id, links=(link,), start_timeout_secs=30
            )
            client = stack.enter_context(closing(ParameterClient(connection)))
            client.ask(Join())
            trainers[link] = Trainer(client, 1_000_000 * index)
        print(f"\n{'':23}" + "".join(f"{name:>12}" for name in (*trainers, "here")))
        report_dense(trainers, "20 variables", NETWORK, args.rounds)
        for size in args.sizes:
            what = f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"
            report_dense(trainers, what, [(size // 4,)], args.rounds)
        tables = {
            name: (trainer.create(TABLE), trainer.create(TABLE, 0.1))
            for name, trainer in trainers.items()
        }
        for num_rows in args.rows:
            report_sparse(trainers, tables, num_rows, args.rounds)
        client.ask(Done())


@contextmanager
def server_process(args: argparse.Namespace) -> Iterator[None]:
    """Start this script a second time, as the server."""
    shared = ["--job-id", args.job_id, "--port", str(args.port), "--serve"]
    with subprocess.Popen([sys.executable, __file__, *shared]) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        sys.exit(process.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="bytes")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--job-id", default=uuid.uuid4().hex, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.WARNING)
    if args.serve:
        tune_malloc()
        run_server(args)
        return
    args.port = args.port or free_ports(1)[0]
    with server_process(args):
        run_trainer(args)


if __name__ == "__main__":
    main()
