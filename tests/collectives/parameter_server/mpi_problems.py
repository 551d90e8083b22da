"""Rank 0 is a server, and something goes wrong; what, is the argument. See test_channel_mpi.py."""

import sys
import threading
from contextlib import closing

from mpi4py import MPI

from paceline.collectives import CollectiveError
from paceline.collectives.parameter_server import Client, Message
from paceline.collectives.parameter_server.mpi import mpi_job

go_on = threading.Event()


def handle(client, request):
    if request.verb == 2:
        assert go_on.wait(60)
    return request


def say_nothing(*about):
    pass


def serve(job):
    return job.serve(handle, on_joined=say_nothing, on_lost=say_nothing, on_left=say_nothing)


def nobody_serves(job):
    if job.rank == 1:
        job.connect(0, Client(1, "worker 1"), start_timeout_secs=0.5)


def two_claim_one_rank(job):
    if job.rank == 0:
        with closing(serve(job)):
            MPI.COMM_WORLD.Barrier()
            MPI.COMM_WORLD.Barrier()
        return
    if job.rank == 2:
        MPI.COMM_WORLD.Barrier()
    try:
        with closing(job.connect(0, Client(7, f"worker {job.rank}"))):
            MPI.COMM_WORLD.Barrier()
            MPI.COMM_WORLD.Barrier()
    finally:
        if job.rank == 2:
            MPI.COMM_WORLD.Barrier()


def the_server_ends(job, reason=""):
    if job.rank == 0:
        serving = serve(job)
        MPI.COMM_WORLD.Barrier()
        serving.close(reason)
        MPI.COMM_WORLD.Barrier()
        return
    with closing(job.connect(0, Client(job.rank, f"worker {job.rank}"))) as connection:
        assert connection.ask(Message(1, b"1")).body == b"1"
        MPI.COMM_WORLD.Barrier()
        MPI.COMM_WORLD.Barrier()
        connection.ask(Message(1))


def the_server_gives_up(job):
    the_server_ends(job, "a disk is full")


def a_request_takes_long(job):
    if job.rank == 0:
        with closing(serve(job)):
            MPI.COMM_WORLD.Barrier()
            go_on.set()
            MPI.COMM_WORLD.Barrier()
        return
    with closing(job.connect(0, Client(job.rank, f"worker {job.rank}"))) as connection:
        pending = connection.start(Message(2, b"late"))
        try:
            pending.wait(0.5)
        finally:
            MPI.COMM_WORLD.Barrier()
            assert pending.wait().body == b"late"
            MPI.COMM_WORLD.Barrier()


def main():
    job = mpi_job(tasks=["ps 0", "worker 1", "worker 2"], expected_size=3)
    try:
        globals()[sys.argv[1]](job)
    except CollectiveError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
