"""What a trainer can ask of a parameter server, and what it is answered.

A request is a verb, a small body and raw arrays; so is its reply. The bodies are classes: of what
is asked in each step, in `step_requests`, they are structs, and else JSON, in `variable_requests`
and `trainer_requests`. Each names its verb and the class of its reply, and its docstring says which
arrays travel with either. Nothing that comes in is believed unchecked.

Whatever may have to wait has `wait_secs`, at most ten seconds. A reply that comes without what was
waited for says for whom (`waiting_for`): a trainer can name the culprit while it asks again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_WAIT_SECS = 10.0
"""No request keeps its connection waiting for longer: whoever wants to wait on asks again."""
MAX_TEXT_CHARACTERS = 256 << 10
NATURAL_LIMIT = 2**62

DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
Aggregation = Literal["mean", "sum", "first", "equal"]
Natural = Annotated[int, Field(ge=0, lt=NATURAL_LIMIT)]
Rank = Annotated[int, Field(ge=0, lt=2**20)]
WaitSecs = Annotated[float, Field(ge=0, le=MAX_WAIT_SECS)]
Name = Annotated[str, Field(min_length=1, max_length=1024)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Shape = Annotated[tuple[Natural, ...], Field(strict=False, max_length=8)]
Ids = Annotated[tuple[Natural, ...], Field(strict=False, max_length=10_000)]
Names = Annotated[tuple[str, ...], Field(strict=False, max_length=2**20)]


class Body(Protocol):
    """What is said beside arrays."""

    def packed(self) -> bytes:
        """As it travels."""

    @classmethod
    def unpacked(cls, body: bytes) -> Self:
        """What has come, which may be anything.

        Raises:
            ValueError: It is none of these.
        """


class Record(BaseModel):
    """What all bodies of JSON, and what they are made of, have in common."""

    # Built on first use: importing costs milliseconds less.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    def packed(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def unpacked(cls, body: bytes) -> Self:
        return parse(cls, body, cls.__name__)


R = TypeVar("R", bound=Record)


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
    """What comes back: of this class itself where there is nothing to say but that it is done."""


class Request(Record):
    """What is asked. `reply` is the class of the answer."""

    verb: ClassVar[Verb]
    reply: ClassVar[type[Reply]]


def parse(kind: type[R], text: bytes | str, what: str) -> R:
    """The record in a JSON text.

    Raises:
        ValueError: It is none of that class, so `what` is malformed.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"a malformed {what}: {place}: {first['msg']}") from None
