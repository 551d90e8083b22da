"""Training with variables on a parameter server in another process of this host.

    python benchmarks/push_pull.py [--rounds 15] [--sizes 4096 65536 …] [--rows 100 …] [--links shm]
        [--before PYTHON]

dense   one push of a gradient, applied by SGD, that brings the new value back: per size, and for 20
        variables of 1.5 MB in all, as a small convolutional network has
sparse  rows of a table of 10^6 × 16: pulled, then changed along their gradients by Adagrad
here    the same arithmetic in this process, without a server, as a yardstick

before  the same by another paceline, by the interpreter that --before names

GB/s and bytes count both directions, cpu is the processor time of trainer and server together.
Rounds alternate between the variants, so that a noisy neighbour troubles all. Medians over steps,
of cpu over rounds. What the links alone can do is in `parameter_server.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np

from paceline.cluster import free_ports, tune_malloc
from paceline.collectives import Member, parameter_server
from paceline.collectives.parameter_server import (
    Create,
    Done,
    Join,
    OptimizerSpec,
    ParameterClient,
    ParameterServer,
    Pull,
    Push,
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


def pushes(
    rule: str, updates: tuple[Update, ...], pull: tuple[int, ...] = ()
) -> Callable[[], Push]:
    """What makes one push after the other, also by a paceline whose pushes had no plan."""
    how: dict[str, Any]
    if hasattr(parameter_server, "PushPlan"):
        optimizers = (OptimizerSpec(rule=rule),)
        plan = parameter_server.PushPlan(optimizers=optimizers, updates=updates, pull=pull)
        how = {"plan": plan.text, "rates": ((0.01, 1),)}
    else:
        spec: Any = OptimizerSpec
        optimizers = (spec(rule=rule, learning_rate=0.01),)
        how = {"optimizers": optimizers, "updates": updates, "pull": pull}
    return lambda: Push(step=0, number=next(PUSH_NUMBERS), pulled_version=0, **how)


@dataclass
class Trainer:
    """A connection, and numbers for new variables."""

    client: ParameterClient
    first_id: int
    num_variables: int = 0
    table: tuple[int, int] = (0, 0)

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
        push = pushes("sgd", updates, pull=ids)
        gradients = [np.ones(shape, np.float32) for shape in shapes]
        empty: Any = getattr(self.client, "empty", np.empty)
        values = [empty(shape, np.dtype(np.float32)) for shape in shapes]

        def step() -> None:
            self.client.ask(push(), gradients, values)

        return step

    def sparse(self, num_rows: int) -> Step:
        """Pull rows of a table, and push their gradients."""
        if not any(self.table):
            self.table = self.create(TABLE), self.create(TABLE, 0.1)
        table = self.table
        rows = np.unique(np.random.default_rng(0).integers(0, TABLE[0], num_rows))
        values = np.empty((len(rows), TABLE[1]), np.float32)
        gradients = np.ones_like(values)
        updates = (Update(id=table[0], slots=(table[1],), rows=True),)
        push = pushes("adagrad", updates)

        def step() -> None:
            self.client.ask(Pull(ids=table[:1], rows=(True,)), [rows], [values])
            self.client.ask(push(), [rows, gradients])

        return step


def dense_here(shapes: Sequence[tuple[int, ...]]) -> Step:
    values = [np.zeros(shape, np.float32).reshape(-1) for shape in shapes]
    gradients = [np.ones_like(value) for value in values]
    update = server_rules()["sgd"]({})

    def step() -> None:
        for value, gradient in zip(values, gradients, strict=True):
            update(value, gradient, (), 0.01, 1)

    return step


def sparse_here(num_rows: int) -> Step:
    table, slot = np.zeros(TABLE, np.float32), np.full(TABLE, 0.1, np.float32)
    rows = np.unique(np.random.default_rng(0).integers(0, TABLE[0], num_rows))
    gradients = np.ones((len(rows), TABLE[1]), np.float32)
    update = server_rules()["adagrad"]({})

    def step() -> None:
        _ = table.take(rows, axis=0)
        value, squares = table.take(rows, axis=0), slot.take(rows, axis=0)
        update(value.reshape(-1), gradients.reshape(-1), [squares.reshape(-1)], 0.01, 1)
        table[rows], slot[rows] = value, squares

    return step


@dataclass(frozen=True)
class Measure:
    """What is measured: pushes of variables of these shapes, or of so many rows of a table."""

    title: str
    shapes: Sequence[tuple[int, ...]] = ()
    num_rows: int = 0

    @property
    def num_bytes(self) -> int:
        """Of the gradients."""
        dense = 4 * sum(int(np.prod(shape)) for shape in self.shapes)
        return dense or 4 * TABLE[1] * self.num_rows

    @property
    def repetitions(self) -> int:
        """How often a round does it."""
        return max(1, min(50, (4 << 20) // (2 * self.num_bytes)))

    def step(self, trainer: Trainer | None) -> Step:
        """What does it once: on a server, or in this process."""
        if trainer is None:
            return dense_here(self.shapes) if self.shapes else sparse_here(self.num_rows)
        return trainer.dense(self.shapes) if self.shapes else trainer.sparse(self.num_rows)


def obey(args: argparse.Namespace) -> None:
    """Be a trainer that measures one round of one thing after the other, as it is told."""
    me, server = Member(0, "chief"), Member(0, "ps 0", f"127.0.0.1:{args.port}")
    server_clock = ~args.server_pid << 3 | 2  # the processor time of that process
    trainers: dict[str, Trainer | None] = {}
    steps: dict[tuple[str, str], Step] = {}
    with ExitStack() as stack:
        for index, link in enumerate(args.links):
            connection = connect(
                server, me, job_id=args.job_id, links=(link,), start_timeout_secs=30
            )
            client = stack.enter_context(closing(ParameterClient(connection)))
            client.ask(Join())
            trainers[link] = Trainer(client, 1_000_000 * index)
        trainers["here"] = None
        for line in sys.stdin:
            column, fields = json.loads(line)
            measure, trainer = Measure(**fields), trainers[column]
            if (column, measure.title) not in steps:
                steps[column, measure.title] = measure.step(trainer)
            step = steps[column, measure.title]
            before = 0 if trainer is None else trainer.client.num_bytes
            step()
            num_bytes = 0 if trainer is None else trainer.client.num_bytes - before
            used = time.process_time() + time.clock_gettime(server_clock)
            marks = [time.perf_counter()]
            for _ in range(measure.repetitions):
                step()
                marks.append(time.perf_counter())
            used = time.process_time() + time.clock_gettime(server_clock) - used
            times = np.diff(marks).tolist()
            print(json.dumps([times, used / measure.repetitions, num_bytes]), flush=True)
        if args.links:
            client.ask(Done())


class Side:
    """A server and a trainer, each a process of its own, by one interpreter.

    Args:
        python: The interpreter.
        title: In front of the names of its columns.
        links: Kinds of links to measure.
        job_id: Of the two.
    """

    def __init__(self, python: str, title: str, links: Sequence[str], job_id: str) -> None:
        shared = [python, __file__, "--job-id", job_id, "--port", str(free_ports(1)[0])]
        self.columns = {title + link: link for link in links}
        self._server = subprocess.Popen([*shared, "--serve"])
        pid = str(self._server.pid)
        self._trainer = subprocess.Popen(
            [*shared, "--obey", "--server-pid", pid, "--links", *links],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, link: str, measure: Measure) -> tuple[list[float], float, int]:
        """One round: seconds of each step, processor time of one, and bytes of one."""
        assert self._trainer.stdin is not None
        assert self._trainer.stdout is not None
        print(json.dumps([link, vars(measure)]), file=self._trainer.stdin, flush=True)
        line = self._trainer.stdout.readline()
        if not line:
            sys.exit("a trainer has ended")
        times, used, num_bytes = json.loads(line)
        return times, used, num_bytes

    def close(self) -> None:
        """End both."""
        assert self._trainer.stdin is not None
        self._trainer.stdin.close()
        if self._trainer.wait() or sys.exc_info()[0] is not None:
            self._server.kill()
        self._server.wait()


def line(what: str, unit: str, numbers: Sequence[float], digits: int = 1) -> str:
    return f"{what:>16} {unit:6}" + "".join(f"{number:12,.{digits}f}" for number in numbers)


def report(sides: Sequence[Side], measure: Measure, rounds: int) -> None:
    """Measure one thing everywhere in turn, and print it."""
    columns = [(side, link) for side in sides for link in side.columns.values()]
    seconds: list[list[float]] = [[] for _ in columns]
    used: list[list[float]] = [[] for _ in columns]
    num_bytes = [0] * len(columns)
    for round_index in range(rounds + 1):
        for index, (side, link) in enumerate(columns):
            times, cpu, num_bytes[index] = side.run(link, measure)
            if round_index > 0:  # the first round warms up
                seconds[index] += times
                used[index].append(cpu)
    medians = [float(np.median(times)) for times in seconds]
    print(line(measure.title, "µs", [1e6 * s for s in medians]))
    print(line("", "cpu µs", [1e6 * float(np.median(each)) for each in used]))
    if measure.shapes:
        print(line("", "GB/s", [2e-9 * measure.num_bytes / s for s in medians], 2), flush=True)
        return
    print(line("", "krow/s", [1e-3 * measure.num_rows / s for s in medians], 0))
    print(line("", "B/row", [n / measure.num_rows for n in num_bytes]), flush=True)


def measures(args: argparse.Namespace) -> list[Measure]:
    sizes = [
        Measure(f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB", [(size // 4,)])
        for size in args.sizes
    ]
    rows = [Measure(f"{num_rows} rows", num_rows=num_rows) for num_rows in args.rows]
    return [Measure("20 variables", NETWORK), *sizes, *rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="bytes")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--before", help="an interpreter that has another paceline")
    parser.add_argument("--job-id", default=uuid.uuid4().hex, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--server-pid", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--obey", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.WARNING)
    is_tuned = tune_malloc()
    if args.serve:
        run_server(args)
        return
    if args.obey:
        obey(args)
        return
    print(environment.describe(is_tuned))
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                closing(Side(python, title, args.links, args.job_id + title.strip()))
            )
            for python, title in ((sys.executable, ""), (args.before, "before "))
            if python
        ]
        sides[0].columns["here"] = "here"
        names = [name for side in sides for name in side.columns]
        print(f"\n{'':23}" + "".join(f"{name:>12}" for name in names))
        for measure in measures(args):
            report(sides, measure, args.rounds)


if __name__ == "__main__":
    main()
