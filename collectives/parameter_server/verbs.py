"""What a trainer can ask of a parameter server, and what it is answered.

A request is a verb, a small JSON body and raw arrays; so is its reply. The bodies are classes: in
`variable_requests` those that concern variables, in `trainer_requests` those that concern trainers.
Each request names its verb and the class of its reply; which arrays travel with either is said in
the docstrings.

Whatever may have to wait has `wait_secs`, at most ten seconds. A reply that comes without what was
waited for says for whom (`waiting_for`): a trainer can name the culprit while it asks again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from .schema import Record


class Verb(IntEnum):
    """The number of a request on the wire; its reply carries the same."""

    JOIN = 1
    CREATE = 2
    PULL = 3
    PUSH = 4
    WAIT = 5
    SNAPSHOT = 6
    WRITE = 7
    POST = 8
    READ = 9
    DONE = 10
    WAIT_DONE = 11
    STATUS = 12
    HOLD = 13


class Reply(Record):
    """What comes back."""


class Request(Record):
    """What is asked. `reply` is the class of the answer."""

    verb: ClassVar[Verb]
    reply: ClassVar[type[Reply]]
