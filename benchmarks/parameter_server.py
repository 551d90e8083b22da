"""Requests to a parameter server in another process of this host, side by side in one run.

    python benchmarks/parameter_server.py [--rounds 15] [--sizes 4096 65536 …] [--only shm tcp …]

A request carries an array and is answered by one of the same size, as when gradients are pushed and
values pulled.

shm, tcp, grpc, mpi   our channel over each kind of link; mpi where an MPI is installed
bare shm, bare tcp    as many bytes over the same link and nothing else, as a yardstick for ours
memcpy                copying as many bytes there and back within one process, as the limit

GB/s count both directions. Rounds alternate between the variants, so that a noisy neighbour
troubles all. Medians over requests.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np

from paceline.cluster import free_ports, tune_malloc
from paceline.collectives import Link, Member
from paceline.collectives.parameter_server import Client, Connection, Message, connect, serve
from paceline.collectives.session import MPI_LINKS, Address, SharedMemoryTransport, TcpTransport
from paceline.collectives.session.grpc_link import DataStreams
from paceline.collectives.session.links import LinkEnds

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
KINDS = ("shm", "tcp", "grpc", "mpi")
VARIANTS = (*KINDS, "bare shm", "bare tcp", "memcpy")
RATIOS = (("shm", "bare shm"), ("tcp", "bare tcp"), ("shm", "memcpy"), ("mpi", "tcp"))
MPIEXEC = Path(sys.executable).parent / "mpiexec"
SERVER, CLIENT = Member(0, "ps 0"), Client(0, "worker 0")
ECHO, BARE = 1, 2
TICKET = "5a" * 32
HOST = "127.0.0.1"
TRANSPORTS = {"shm": SharedMemoryTransport(), "tcp": TcpTransport()}

Array = np.ndarray
Variant = Callable[[Array, Array], None]
"""Sends the one array and receives the other."""


class Server:
    """Answers requests with what they bring, and opens bare links, until its client has gone."""

    def __init__(self) -> None:
        self.has_gone = threading.Event()

    def joined(self, client: Client) -> None:
        pass

    def lost(self, client: Client, reason: str) -> None:
        self.has_gone.set()

    def left(self, client: Client) -> None:
        self.has_gone.set()

    def handle(self, client: Client, request: Message) -> Message:
        if request.verb == BARE:
            return Message(BARE, self._listen(json.loads(request.body)).encode())
        return request

    def _listen(self, kind: str) -> str:
        """Wait for a bare link; return where."""
        expected = TRANSPORTS[kind].listen(ends(is_caller=False), TICKET)

        def work() -> None:
            with ExitStack() as stack:
                stack.enter_context(closing(expected))
                link = stack.enter_context(closing(expected.accept(time.monotonic() + 10)))
                stack.enter_context(suppress(Exception))
                echo_for_ever(link)

        threading.Thread(target=work, daemon=True).start()
        return expected.address


def ends(*, is_caller: bool) -> LinkEnds:
    """The two ends of a link as one of them sees them."""
    called, caller_ip = (Address(HOST, 1), "") if is_caller else (None, HOST)
    return LinkEnds(caller=1, caller_ip=caller_ip, ip=HOST, called=called, streams=DataStreams())


def echo_for_ever(link: Link) -> None:
    """Send back whatever comes; before each array comes its size."""
    size = np.empty(1, np.int64)
    while True:
        link.receive_into(size.view(np.uint8).data, math.inf)
        array = np.empty(int(size[0]), np.uint8)
        link.receive_into(array.data, math.inf)
        link.send(array.data, math.inf)


def over(connection: Connection) -> Variant:
    def ask(sent: Array, received: Array) -> None:
        connection.ask(Message(ECHO, b"{}", [sent]), [received])

    return ask


def over_link(link: Link) -> Variant:
    def ask(sent: Array, received: Array) -> None:
        link.send(np.array([sent.nbytes]).view(np.uint8).data, math.inf)
        link.send(sent.view(np.uint8).data, math.inf)
        link.receive_into(received.view(np.uint8).data, math.inf)

    return ask


def memcpy() -> Variant:
    places: dict[int, Array] = {}

    def copy(sent: Array, received: Array) -> None:
        place = places.setdefault(len(sent), np.empty_like(sent))
        np.copyto(place, sent)
        np.copyto(received, place)

    return copy


@contextmanager
def bare(connection: Connection, kind: str) -> Iterator[Variant]:
    """A link to the server and nothing else."""
    reply = connection.ask(Message(BARE, json.dumps(kind).encode()))
    address = bytes(reply.body).decode()
    link = TRANSPORTS[kind].connect(ends(is_caller=True), address, TICKET)
    with closing(link):
        yield over_link(link)


def open_variants(
    stack: ExitStack, server: Member, job_id: str, wanted: list[str]
) -> dict[str, Variant]:
    variants: dict[str, Variant] = {}
    for kind in KINDS if MPIEXEC.exists() else KINDS[:-1]:
        connection = connect(server, CLIENT, job_id=job_id, links=(kind,))
        stack.enter_context(closing(connection))
        variants[kind] = over(connection)
        if kind in TRANSPORTS and f"bare {kind}" in wanted:
            variants[f"bare {kind}"] = stack.enter_context(bare(connection, kind))
    variants["memcpy"] = memcpy()
    return {name: variants[name] for name in VARIANTS if name in variants and name in wanted}


def repetitions(num_bytes: int) -> int:
    return max(1, min(50, (4 << 20) // num_bytes))


def measure(variants: dict[str, Variant], num_bytes: int, rounds: int) -> dict[str, float]:
    """Return the median seconds that a request of each variant takes."""
    sent, received = np.random.default_rng(0).random(num_bytes // 8), np.zeros(num_bytes // 8)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_index in range(rounds + 1):
        for name, ask in variants.items():
            received[:] = 0
            ask(sent, received)
            assert (sent == received).all(), name
            marks = [time.perf_counter()]
            for _ in range(repetitions(num_bytes)):
                ask(sent, received)
                marks.append(time.perf_counter())
            if round_index > 0:  # the first round warms up
                seconds[name] += np.diff(marks).tolist()
    return {name: float(np.median(times)) for name, times in seconds.items()}


def report(num_bytes: int, seconds: dict[str, float]) -> str:
    size = f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes >> 10} KiB"
    columns = "".join(f"{1e6 * s:11.1f}" for s in seconds.values())
    speeds = "".join(f"{2 * num_bytes / 1e9 / s:11.2f}" for s in seconds.values())
    lines = [f"{size:>8} µs   {columns}", f"{'':8} GB/s {speeds}"]
    ratios = [
        f"{ours}/{theirs} {seconds[ours] / seconds[theirs]:.2f}"
        for ours, theirs in RATIOS
        if ours in seconds and theirs in seconds
    ]
    return "\n".join([*lines, f"{'':8} {', '.join(ratios)}"])


def run_server(server: Member, args: argparse.Namespace) -> None:
    """Serve until the client has left."""
    handler = Server()
    with closing(serve(server, handler, job_id=args.job_id, links=KINDS)):
        handler.has_gone.wait()


def run_client(server: Member, args: argparse.Namespace, tuned: bool) -> None:
    with ExitStack() as stack:
        variants = open_variants(stack, server, args.job_id, args.only)
        print(environment.describe(tuned))
        print(f"\n{'':13} {''.join(f'{name:>11}' for name in variants)}", flush=True)
        for num_bytes in args.sizes:
            rounds = max(5, args.rounds // 3) if num_bytes > 16 << 20 else args.rounds
            print(report(num_bytes, measure(variants, num_bytes, rounds)), flush=True)


def run_rank(args: argparse.Namespace) -> None:
    logging.getLogger("paceline").setLevel(logging.WARNING)
    tuned = tune_malloc()
    if MPIEXEC.exists():
        from mpi4py import MPI

        MPI_LINKS.join(MPI, MPI.COMM_WORLD)
        args.rank = MPI.COMM_WORLD.rank
    server = Member(SERVER.rank, SERVER.task, f"127.0.0.1:{args.port}")
    if args.rank == 0:
        run_server(server, args)
    else:
        run_client(server, args, tuned)


def start_ranks() -> int:
    """Start this script twice: under mpiexec if there is one beside the interpreter."""
    shared = ["--job-id", uuid.uuid4().hex, "--port", str(free_ports(1)[0])]
    script = [__file__, *sys.argv[1:], *shared]
    if MPIEXEC.exists():
        return subprocess.call([MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", *script])
    ranks = [subprocess.Popen([sys.executable, *script, "--rank", str(i)]) for i in range(2)]
    return max(rank.wait() for rank in ranks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--job-id", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.port:
        run_rank(args)
    else:
        sys.exit(start_ranks())


if __name__ == "__main__":
    main()
