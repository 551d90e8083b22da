"""From the body of a message to what it says, and back. Nothing is believed unchecked."""

from __future__ import annotations

from pydantic import ValidationError

from .schema import Record
from .trainer_requests import Done, Join, Post, Read, Status, Wait, WaitDone
from .variable_requests import Create, Hold, Pull, Push, Snapshot, Write
from .verbs import Request

REQUESTS: dict[int, type[Request]] = {
    kind.verb: kind
    for kind in (
        Join,
        Create,
        Pull,
        Push,
        Wait,
        Hold,
        Snapshot,
        Write,
        Post,
        Read,
        Done,
        WaitDone,
        Status,
    )
}
"""The class of each verb's body."""


def parse_request(verb: int, body: bytes) -> Request:
    """The request in the body of a message.

    Raises:
        ValueError: There is no such verb, or the body is none of its.
    """
    kind = REQUESTS.get(verb)
    if kind is None:
        raise ValueError(f"verb {verb} is unknown; a parameter server knows 1 to {max(REQUESTS)}")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"a malformed {kind.verb.name} body: {place}: {first['msg']}") from None


def as_body(message: object) -> bytes:
    """The JSON of a request or reply."""
    assert isinstance(message, Record)
    return message.model_dump_json().encode()
