"""Ranks of an MPI job that become tasks; what they do is the argument. See test_channel_mpi.py."""

import os
import signal
import sys
from contextlib import closing

import numpy as np
from mpi4py import MPI

from paceline.collectives.parameter_server import Client, Message, connect, serve
from paceline.collectives.parameter_server.mpi import mpi_job

TASKS = ("ps 0", "worker 0", "worker 1")


class Echo:
    """Answers each request with itself."""

    def handle(self, client, request):
        return request

    def joined(self, client):
        pass

    def lost(self, client, reason):
        pass

    def left(self, client):
        pass


def ask(job):
    """Both workers ask the server, at the address and with the secret that MPI has brought."""
    server, me = job.members[0], Client(job.rank - 1, TASKS[job.rank])
    terms = {"job_id": job.job_id, "token": job.token}
    if job.rank == 0:
        with closing(serve(server, Echo(), **terms)):
            MPI.COMM_WORLD.Barrier()
        return
    with closing(connect(server, me, start_timeout_secs=20, **terms)) as connection:
        reply = connection.ask(Message(1, b"{}", [np.arange(5)]))
        print(f"{me.task} was answered {reply.arrays[0].tolist()}", flush=True)
    MPI.COMM_WORLD.Barrier()


def lose_one(job):
    """One worker stands still for ever; the server has given it up when it ends."""
    if job.rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    job.abandon(TASKS[2:] if job.rank == 0 else ())
    print(f"{TASKS[job.rank]} has ended", flush=True)


job = mpi_job(TASKS, servers=["ps 0"], start_timeout_secs=30)
assert [bool(member.address) for member in job.members] == [True, False, False]
{"ask": ask, "lose one": lose_one}[sys.argv[1]](job)
