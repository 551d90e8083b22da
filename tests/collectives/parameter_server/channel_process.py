"""A server or a client as a process of its own, told what to do line by line. Run by the tests.

Its argument is JSON: role, server (task and address), rank, options. It says "started", then "in",
then the answer to each command. The server says what it is told about its clients.
"""

import json
import sys
import threading

import numpy as np

from paceline.collectives import CollectiveError, Member
from paceline.collectives.parameter_server import Message, connect, serve

ECHO, STAY = 1, 2


def say(text):
    print(text, flush=True)


class Telling:
    """Answers requests, and says who comes and goes."""

    def handle(self, client, request):
        if request.verb == STAY:
            say("staying")
            threading.Event().wait(60)
        return Message(request.verb, request.body, request.arrays)

    def joined(self, client):
        say(f"joined {client.rank}")

    def lost(self, client, reason):
        say(f"lost {client.rank}: {reason}")

    def left(self, client):
        say(f"left {client.rank}")


def serve_here(server, options):
    serving = serve(server, Telling(), **options)
    say("in")
    for command in map(str.strip, sys.stdin):
        if command == "close":
            serving.close()
            say("closed")
        elif command == "give up":
            serving.close("a disk is full")
            say("closed")
        elif command == "leave":
            return


def use(server, me, options):
    connection = connect(server, me, report=say, **options)
    say("in")
    for command in map(str.strip, sys.stdin):
        match command:
            case "ask":
                reply = connection.ask(Message(ECHO, b"", [np.arange(50_000)]))
                say("right" if (reply.arrays[0] == np.arange(50_000)).all() else "wrong")
            case "ask for ever":
                array = np.ones(4_000_000)
                connection.ask(Message(ECHO, b"", [array]), [array])
                say("asking")
                while True:
                    connection.ask(Message(ECHO, b"", [array]), [array])
            case "try":
                try:
                    connection.ask(Message(ECHO), what="probe")
                except CollectiveError as error:
                    say(f"{type(error).__name__}: {error}")
            case "stay":
                connection.start(Message(STAY))
                say("asked")
            case "connect again":
                connection = connect(server, me, report=say, **options)
                say("in")
            case "close":
                connection.close()
                say("closed")
            case "leave":
                return


def main():
    role, server, rank, options = json.loads(sys.argv[1])
    server = Member(0, *server)
    say("started")
    try:
        if role == "server":
            serve_here(server, options)
        else:
            use(server, Member(rank, f"worker {rank}"), options)
    except CollectiveError as error:
        say(f"{type(error).__name__}: {error}")
        sys.exit(3)


main()
