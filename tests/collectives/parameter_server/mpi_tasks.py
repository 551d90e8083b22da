"""Ranks of an MPI job that become tasks; what they do is the argument. See test_channel_mpi.py."""

import os
import signal
import sys
import threading
from contextlib import closing
from functools import partial

import numpy as np
from mpi4py import MPI

from paceline.collectives.errors import PeerLostError
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


def exchange(job):
    """Both workers have arrays of many sizes and dtypes sent back, over links of MPI only."""
    server, me = job.members[0], Client(job.rank - 1, TASKS[job.rank])
    terms = {"job_id": job.job_id, "token": job.token, "links": ["mpi"]}
    if job.rank == 0:
        with closing(serve(server, Echo(), **terms)):
            MPI.COMM_WORLD.Barrier()
        return
    random = np.random.default_rng(job.rank)
    with closing(connect(server, me, start_timeout_secs=20, **terms)) as connection:
        for num_bytes in (0, 1, 8, 4_095, 65_536, 100_001, 524_288, 9_000_001):
            arrays = [
                np.frombuffer(random.bytes(num_bytes), np.uint8),
                np.frombuffer(random.bytes(num_bytes // 8 * 8), np.int64).reshape(-1, 1),
            ]
            reply = connection.ask(Message(1, b"{}", arrays))
            for sent, received in zip(arrays, reply.arrays, strict=True):
                np.testing.assert_array_equal(received, sent, strict=True)
    print(f"{me.task} has all arrays back, over MPI", flush=True)
    MPI.COMM_WORLD.Barrier()


class Stopping(Echo):
    """A server that says whom it has lost, or that stops soon after it was asked something."""

    def __init__(self, stops):
        self.gone = threading.Event()
        self._stops = stops

    def handle(self, client, request):
        if self._stops:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        return request

    def lost(self, client, reason):
        print(f"ps 0 has lost {client}: {reason}", flush=True)
        self.gone.set()


def stop(job, *, server_stops):
    """One of two stops for ever while an array travels to it; the other one sees that."""
    server, me = job.members[0], Client(0, TASKS[1])
    terms = {"job_id": job.job_id, "token": job.token, "links": ["mpi"], "silence_secs": 3}
    if job.rank == 0:
        handler = Stopping(server_stops)
        with closing(serve(server, handler, **terms)):
            handler.gone.wait()
    else:
        connection = connect(server, me, start_timeout_secs=20, **terms)
        try:
            while True:
                pending = connection.start(Message(1, b"{}", [np.zeros(64 << 20, np.uint8)]))
                if not server_stops:
                    os.kill(os.getpid(), signal.SIGSTOP)  # the server is sending the same back
                pending.wait()
        except PeerLostError as error:
            print(f"worker 0 has lost ps 0: {error}", flush=True)
    job.abandon([TASKS[1 - job.rank]])


def lose_one(job):
    """One worker stands still for ever; the server has given it up when it ends."""
    if job.rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    job.abandon(TASKS[2:] if job.rank == 0 else ())
    print(f"{TASKS[job.rank]} has ended", flush=True)


SCENES = {
    "ask": ask,
    "exchange": exchange,
    "lose one": lose_one,
    "stop the server": partial(stop, server_stops=True),
    "stop the client": partial(stop, server_stops=False),
}

job = mpi_job(TASKS[: MPI.COMM_WORLD.size], servers=["ps 0"], start_timeout_secs=30)
assert [bool(member.address) for member in job.members] == [True, False, False][: len(job.members)]
SCENES[sys.argv[1]](job)
