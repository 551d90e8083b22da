"""All-reduce of float32 sums between processes of this host, side by side in one run.

    python benchmarks/all_reduce.py [--rounds 15] [--sizes 4096 65536 …] [--only mpi shm …]
    python benchmarks/all_reduce.py --ranks 3    more of them than two, without the bare ones
    python benchmarks/all_reduce.py --verbs      all verbs of a communicator beside mpi4py's

one call   raw mpi4py: one Allreduce in place
chunks     raw mpi4py: chunks of 2 MiB, as our own communicator takes them
mpi        our communicator over MPI
shm, tcp, grpc   our ring over each kind of link
mpi kept, shm kept   the same, of an array that the communicator has made (`Communicator.empty`)
bare tcp, bare grpc   a socket, a gRPC stream and nothing else, as yardsticks for ours
gloo       PyTorch's, where it is installed
memcpy     copying as many bytes within one process, as a yardstick

Rounds alternate between the variants, so that a noisy neighbour troubles all. Medians over calls.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
from bare_grpc import bare_grpc
from bare_tcp import bare_tcp

from paceline.cluster import free_ports, tune_malloc
from paceline.collectives import Communicator, Member

SIZES = (8, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20)
UNITS = ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)
CHUNK = (2 << 20) // 4
VARIANTS = (
    *("one call", "chunks", "mpi", "mpi kept", "shm", "shm kept", "tcp", "bare tcp"),
    *("grpc", "bare grpc", "gloo", "memcpy"),
)
RATIOS = (
    ("mpi", "chunks"),
    ("mpi kept", "chunks"),
    ("shm", "mpi"),
    ("shm kept", "chunks"),
    ("tcp", "bare tcp"),
    ("tcp", "gloo"),
    ("grpc", "bare grpc"),
    ("grpc", "gloo"),
)

Array = np.ndarray
Variant = Callable[[Array], None]


def raw_mpi() -> dict[str, Variant]:
    from mpi4py import MPI

    world, in_place, add = MPI.COMM_WORLD, MPI.IN_PLACE, MPI.SUM

    def chunks(array: Array) -> None:
        for start in range(0, len(array), CHUNK):
            world.Allreduce(in_place, array[start : start + CHUNK], add)

    return {"one call": lambda array: world.Allreduce(in_place, array, add), "chunks": chunks}


def raw_verbs(rank: int) -> dict[str, Variant]:
    """The same verbs in mpi4py alone, as its tutorial writes them."""
    from mpi4py import MPI

    world, in_place, add = MPI.COMM_WORLD, MPI.IN_PLACE, MPI.SUM

    def reduce_scatter(array: Array) -> None:
        part = np.empty(len(array) // 2, array.dtype)
        world.Reduce_scatter(array, part, [len(part)] * 2, add)

    def all_gather(array: Array) -> None:
        world.Allgather(array, np.empty((2, len(array)), array.dtype))

    def send_and_receive(array: Array) -> None:
        world.Send(array, 1) if rank == 0 else world.Recv(array, 0)
        world.Send(array, 0) if rank == 1 else world.Recv(array, 1)

    return {
        "all_reduce": lambda array: world.Allreduce(in_place, array, add),
        "reduce_scatter": reduce_scatter,
        "all_gather": all_gather,
        "broadcast": lambda array: world.Bcast(array, 0),
        "send, receive": send_and_receive,
        "barrier": lambda array: world.Barrier(),
    }


def verbs_of(communicator: Communicator) -> dict[str, Variant]:
    def send_and_receive(array: Array) -> None:
        first, second = communicator.send, communicator.receive
        for verb in (first, second) if communicator.rank == 0 else (second, first):
            verb(array, "there and back", 1 - communicator.rank)

    return {
        "all_reduce": lambda array: communicator.all_reduce(array, "sum"),
        "reduce_scatter": lambda array: communicator.reduce_scatter(array, "parts"),
        "all_gather": lambda array: communicator.all_gather(array, "all"),
        "broadcast": lambda array: communicator.broadcast(array, "first"),
        "send, receive": send_and_receive,
        "barrier": lambda array: communicator.barrier("all"),
    }


def compare_verbs(stack: ExitStack, rank: int, args: argparse.Namespace) -> None:
    """Print for each verb and size the time of mpi4py alone, and ours as multiples of it."""
    ours = {"shm": verbs_of(stack.enter_context(ring("shm", rank, args)))}
    theirs: dict[str, Variant] = {}
    with suppress(ImportError):
        from paceline.collectives.mpi import mpi_communicator

        ours["mpi"] = verbs_of(stack.enter_context(mpi_communicator(expected_size=2)))
        theirs = raw_verbs(rank)
    for verb in ours["shm"]:
        for num_bytes in args.sizes if verb != "barrier" else args.sizes[:1]:
            variants = {kind: verbs[verb] for kind, verbs in ours.items()}
            variants |= {"mpi4py": theirs[verb]} if theirs else {}
            seconds = measure(variants, num_bytes, args.rounds)
            if rank == 0:
                columns = "".join(f"{k} {1e6 * s:10.1f} µs   " for k, s in seconds.items())
                yardstick = seconds.get("mpi4py", float("nan"))
                ratios = ", ".join(
                    f"{kind}/mpi4py {seconds[kind] / yardstick:.2f}" for kind in ours
                )
                print(f"{verb:15}{num_bytes >> 10:>7} KiB   {columns}{ratios}", flush=True)


def ring(kind: str, rank: int, args: argparse.Namespace) -> Communicator:
    """Our ring over one kind of link."""
    from paceline.collectives.session import connect_ring

    ports = [args.ports.pop() for _ in range(args.ranks)]
    members = [Member(i, f"worker {i}", f"127.0.0.1:{port}") for i, port in enumerate(ports)]
    return connect_ring(members, rank, job_id=args.job_id, links=(kind,))


def over(communicator: Communicator) -> Variant:
    return lambda array: communicator.all_reduce(array, "array")


def over_kept(communicator: Communicator) -> Variant:
    """All-reduces of the communicator's own memory, in the place of an array of that length."""
    kept: dict[int, Array] = {}

    def reduce(array: Array) -> None:
        if len(array) not in kept:
            kept.clear()
            kept[len(array)] = communicator.empty(array.shape, array.dtype, f"of {len(array)}")
            kept[len(array)][:] = array
        communicator.all_reduce(kept[len(array)], "kept")

    return reduce


@contextmanager
def gloo(rank: int, num_ranks: int, port: int) -> Iterator[Variant]:
    import torch
    from torch import distributed

    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=num_ranks)
    yield lambda array: distributed.all_reduce(torch.from_numpy(array))
    distributed.destroy_process_group()


def memcpy() -> Variant:
    copies: dict[int, Array] = {}

    def copy(array: Array) -> None:
        np.copyto(copies.setdefault(len(array), np.empty_like(array)), array)

    return copy


def open_variants(stack: ExitStack, rank: int, args: argparse.Namespace) -> dict[str, Variant]:
    """Return what works here; all ranks come to the same list."""
    ports, wanted = args.ports, set(args.only)
    if args.ranks != 2:
        wanted -= {"bare tcp", "bare grpc"}
    variants: dict[str, Variant] = {}
    try:
        from paceline.collectives.mpi import mpi_communicator

        mpi = stack.enter_context(mpi_communicator(expected_size=args.ranks))
        variants |= raw_mpi() | {"mpi": over(mpi), "mpi kept": over_kept(mpi)}
    except ImportError as error:
        print(error, file=sys.stderr)
    for kind in ("shm", "tcp", "grpc"):
        if kind in wanted:
            communicator = stack.enter_context(ring(kind, rank, args))
            variants[kind] = over(communicator)
            if kind == "shm":
                variants["shm kept"] = over_kept(communicator)
    if "bare tcp" in wanted:
        variants["bare tcp"] = stack.enter_context(bare_tcp(rank, ports.pop()))
    if "bare grpc" in wanted:
        variants["bare grpc"] = stack.enter_context(bare_grpc(rank, ports.pop()))
    if "gloo" in wanted:
        with suppress(ImportError):
            variants["gloo"] = stack.enter_context(gloo(rank, args.ranks, ports.pop()))
    variants["memcpy"] = memcpy()
    return {name: variants[name] for name in VARIANTS if name in variants and name in wanted}


def repetitions(num_bytes: int) -> int:
    return max(1, min(50, (4 << 20) // num_bytes))


def measure(variants: dict[str, Variant], num_bytes: int, rounds: int) -> dict[str, float]:
    """Return the median seconds that a call of each variant takes."""
    array = np.zeros(num_bytes // 4, np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_index in range(rounds + 1):
        for name, reduce in variants.items():
            reduce(array)  # the ranks meet
            marks = [time.perf_counter()]
            for _ in range(repetitions(num_bytes)):
                reduce(array)
                marks.append(time.perf_counter())
            if round_index > 0:  # the first round warms up
                seconds[name] += np.diff(marks).tolist()
    return {name: float(np.median(times)) for name, times in seconds.items()}


def check(variants: dict[str, Variant], num_ranks: int) -> None:
    for name, reduce in variants.items():
        array = np.ones(1001, np.float32)
        reduce(array)
        assert name == "memcpy" or "kept" in name or (array == num_ranks).all(), name


def report(num_bytes: int, seconds: dict[str, float]) -> str:
    unit, scale = next((u, s) for u, s in UNITS if num_bytes >= s)
    size = f"{num_bytes // scale} {unit}"
    columns = "".join(f"{1e6 * s:11.1f}" for s in seconds.values())
    speeds = "".join(f"{num_bytes / 1e9 / s:11.2f}" for s in seconds.values())
    lines = [f"{size:>8} µs   {columns}", f"{'':8} GB/s {speeds}"]
    ratios = [
        f"{ours}/{theirs} {seconds[ours] / seconds[theirs]:.2f}"
        for ours, theirs in RATIOS
        if ours in seconds and theirs in seconds
    ]
    return "\n".join([*lines, f"{'':8} {', '.join(ratios)}"])


def run_rank(args: argparse.Namespace) -> None:
    rank = args.rank
    if rank is None:
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
    logging.getLogger("paceline").setLevel(logging.WARNING)
    tuned = tune_malloc()
    with ExitStack() as stack:
        if args.verbs:
            compare_verbs(stack, rank, args)
            return
        variants = open_variants(stack, rank, args)
        check(variants, args.ranks)
        if rank == 0:
            print(environment.describe(tuned))
            print(f"\n{'':13} {''.join(f'{name:>11}' for name in variants)}", flush=True)
        for num_bytes in args.sizes:
            rounds = max(5, args.rounds // 3) if num_bytes > 64 << 20 else args.rounds
            seconds = measure(variants, num_bytes, rounds)
            if rank == 0:
                print(report(num_bytes, seconds), flush=True)


def start_ranks(num_ranks: int) -> int:
    """Start this script for each rank: under mpiexec if there is one beside the interpreter."""
    shared = ["--job-id", uuid.uuid4().hex, "--ports", *map(str, free_ports(3 * num_ranks + 3))]
    script = [__file__, *sys.argv[1:], *shared]
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if mpiexec.exists():
        return subprocess.call(
            [mpiexec, "-n", str(num_ranks), sys.executable, "-m", "mpi4py", *script]
        )
    command = [sys.executable, *script, "--rank"]
    ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(num_ranks)]
    return max(rank.wait() for rank in ranks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--verbs", action="store_true", help="all verbs, beside mpi4py's")
    parser.add_argument("--job-id", help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.verbs and args.ranks != 2:
        parser.error("--verbs compares two ranks")
    if args.ports:
        run_rank(args)
    else:
        sys.exit(start_ranks(args.ranks))


if __name__ == "__main__":
    main()
