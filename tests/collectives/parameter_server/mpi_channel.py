"""Runs the conformance suite on three ranks: ``mpiexec -n 3 python -m mpi4py <this>``.

Rank 0 serves, the others are clients; rank 0 checks the outcomes of all.
"""

import importlib.util
import sys
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path

from mpi4py import MPI

from paceline.collectives.parameter_server import Client
from paceline.collectives.parameter_server.mpi import mpi_job

_PATH = Path(__file__).parents[2] / "conformance" / "parameter_channel.py"
_SPEC = importlib.util.spec_from_file_location("conformance_of_parameter_channels", _PATH)
conformance = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = conformance
_SPEC.loader.exec_module(conformance)


PAUSE_SECS = 1e-3


class SomebodyElseChecksError(Exception):
    """Ends a check on all ranks but the first."""


class Record:
    """What the server is told of its clients."""

    def __init__(self):
        self.events = []
        self.changed = threading.Condition()
        self.calls = {
            "on_joined": lambda client: self.add("joined", client.rank, ""),
            "on_lost": lambda client, reason: self.add("lost", client.rank, reason),
            "on_left": lambda client: self.add("left", client.rank, ""),
        }

    def add(self, *event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait_until_all_are_gone(self, num_clients):
        with self.changed:
            assert self.changed.wait_for(
                lambda: sum(event[0] != "joined" for event in self.events) == num_clients, 30
            ), self.events


def receive_from(rank):
    """What a rank sends. Without blocking: what is blocked in MPI takes a processor from others."""
    while not MPI.COMM_WORLD.Iprobe(rank):
        time.sleep(PAUSE_SECS)
    return MPI.COMM_WORLD.recv(source=rank)


def meet():
    """Wait for all ranks, likewise."""
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(PAUSE_SECS)


def run(job, handler, bodies, timeout_secs, max_frame_bytes):
    options = {"timeout_secs": timeout_secs, "max_frame_bytes": max_frame_bytes}
    if job.rank > 0:
        MPI.COMM_WORLD.send(ask(job, bodies, options), 0)
        meet()  # nobody knocks at the server of the case before
        raise SomebodyElseChecksError
    record = Record()
    try:
        with closing(job.serve(handler, **record.calls, **options)):
            outcomes = [receive_from(rank) for rank in range(1, len(job.members))][: len(bodies)]
            record.wait_until_all_are_gone(len(bodies))
    finally:
        meet()
    return conformance.Run(outcomes, record.events)


def ask(job, bodies, options):
    """Run the body of this rank, if there is one; return its outcome."""
    index = job.rank - 1
    if index >= len(bodies):
        return None
    try:
        with closing(job.connect(0, Client(index, f"worker {index}"), **options)) as connection:
            return bodies[index](connection)
    except BaseException as error:
        traceback.print_exc()
        return RuntimeError(f"{type(error).__name__}: {error}")


def failure(case, how):
    """Return the traceback of ``case`` if this rank checks and it fails."""
    try:
        case(how)
    except SomebodyElseChecksError:
        return ""
    except Exception:
        return f"{case}\n{traceback.format_exc()}"
    return ""


def main():
    job = mpi_job(tasks=["ps 0", "worker 0", "worker 1"], expected_size=3)
    cases = conformance.essential()
    failed = [failure(case, lambda *what: run(job, *what)) for case in cases]
    failed = [text for text in failed if text]
    job.close()
    if job.rank == 0:
        print("\n".join([*failed, f"{len(cases) - len(failed)} of {len(cases)} cases passed"]))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
