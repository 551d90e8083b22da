"""Workers who do not make the same calls, for test_calls.py. The argument says how they differ.

All make ten rounds of the calls 'a' and 'b'. In round 3, worker 1 prints AT THE FAULT and does
something else.
"""

import contextlib
import sys

import numpy as np

import paceline as pl

options = pl.CommunicationOptions(timeout_seconds=60)
strategy = pl.MultiWorkerMirroredStrategy(communication_options=options)
communicator = strategy.extended.workers.communicator
is_culprit = communicator.rank == 1


def reduce(name, length=1000):
    communicator.all_reduce(np.zeros(length, np.float32), name)


def skips_a_call():
    if not is_culprit:
        reduce("a")


def calls_another():
    if is_culprit:
        communicator.all_gather(np.zeros(1000, np.float32), "a")
    else:
        reduce("a")


def has_another_shape():
    reduce("a", 1001 if is_culprit else 1000)


def makes_another_variable():
    with strategy.scope():
        pl.Variable(np.zeros((3, 2) if is_culprit else (2, 3), np.float32), name="kernel")


def leaves_early():
    if is_culprit:
        communicator.close()
        sys.exit(0)


def ends_early():
    if is_culprit:
        sys.exit(0)


def raises():
    if is_culprit:
        raise ValueError("the data of worker 1 " + "is broken " * 1000)


# The last two are about a program that does not close.
closes = sys.argv[1] not in ("ends_early", "raises")
with communicator if closes else contextlib.nullcontext():
    for turn in range(10):
        if turn == 3:
            if is_culprit:
                print("AT THE FAULT", flush=True)
            globals()[sys.argv[1]]()
        else:
            reduce("a")
        reduce("b")
