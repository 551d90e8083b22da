"""One member as a process of its own, told what to do line by line. Run by the tests.

Its argument is JSON: members (task and address of each), rank, options of `connect_ring`, and
whether to log. It says "started", then "in" when it has connected, then the answer to each command.
"""

import json
import logging
import sys

import numpy as np

from paceline.collectives import CollectiveError, Member
from paceline.collectives.session import connect_ring


def say(text):
    print(text, flush=True)


def reduce_for_ever(communicator):
    array = np.ones(50_000, np.float32)
    communicator.all_reduce(array, "x")
    say("reducing")
    while True:
        communicator.all_reduce(array, "x")


def main():
    arguments = json.loads(sys.argv[1])
    if arguments["log"]:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    members = [Member(i, *pair) for i, pair in enumerate(arguments["members"])]
    say("started")
    try:
        communicator = connect_ring(members, arguments["rank"], **arguments["options"])
        say("in")
        for command in map(str.strip, sys.stdin):
            match command:
                case "reduce":
                    array = np.ones(50_000, np.float32)
                    communicator.all_reduce(array, "x")
                    say("reduced" if (array == communicator.size).all() else "wrong")
                case "broadcast":
                    array = np.full(4, float(communicator.rank))
                    communicator.broadcast(array, "y")
                    say("received" if not array.any() else "wrong")
                case "reduce for ever":
                    reduce_for_ever(communicator)
                case "raise":
                    with communicator:
                        raise ArithmeticError("a loss of NaN")
                case "close":
                    communicator.close()
                    say("closed")
                case "leave":
                    return
    except CollectiveError as error:
        say(f"{type(error).__name__}: {error}")
        sys.exit(3)


main()
