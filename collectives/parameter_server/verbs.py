"""What a trainer can ask of a parameter server, and what it is answered.

A request is a verb, a small JSON body and raw arrays; so is its reply. The classes here are the
bodies. Each request names its verb and the class of its reply; which arrays travel with either is
said in the docstrings. Nothing of a body is believed before its schema has been checked.

Whatever may have to wait has `wait_secs`, at most ten seconds. A reply that comes without what was
waited for says for whom (`waiting_for`): a trainer can name the culprit while it asks again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

from pydantic import Field, ValidationError

from .schema import Ids, Name, Names, Natural, Path, Rank, Record, Text, WaitSecs
from .shards import ShardSpec


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


class Reply(Record):
    """What comes back."""


class Request(Record):
    """What is asked. `reply` is the class of the answer."""

    verb: ClassVar[Verb]
    reply: ClassVar[type[Reply]]


class Joined(Reply):
    """Where the server is.

    Attributes:
        version: The number of updates made, counted from the beginning of the job.
        num_shards: How many shards it holds; a server that is new or was restarted holds none.
        is_ready: Whether somebody has pulled or pushed, so that all variables have been created.
        note: What this trainer said with its last push that was applied, here or before a restart
            of the trainer; None if there was none.
        clock: Where this trainer's clock starts (see `Wait`).
    """

    version: Natural
    num_shards: Natural
    is_ready: bool
    note: Text | None
    clock: Natural


class Join(Request):
    """This trainer takes part, from now on.

    What it pushed before and was not yet applied is forgotten: whoever comes back starts anew, from
    the variables as they are and from the note that is returned.

    Attributes:
        from_version: In synchronous training the first step to which it contributes and which
            therefore waits for it. To be said, by a second JOIN, when it is about to pull: until
            then nobody waits for it. Unless it is the very first step: that waits for all.
        returning: Whether it has trained in this job before. A server without updates then knows
            that it replaces one that died, and waits less long for those that may have finished.
    """

    verb: ClassVar[Verb] = Verb.JOIN
    reply: ClassVar[type[Joined]] = Joined

    from_version: Natural | None = None
    returning: bool = False


class Created(Reply):
    """`existed`: whether the shard was there, and keeps its value."""

    existed: bool


class Create(Request):
    """Hold this shard, unless it is there. With `fill` and `checkpoint` None, its value follows.

    Attributes:
        id: The variable's number, chosen by the trainers, the same on all servers.
        spec: What it is a shard of.
        fill: The number that all its elements start with.
        checkpoint: Where to read it from; the storage knows what it means.
        version: How many updates the value has behind it. A server without any goes on from there.
    """

    verb: ClassVar[Verb] = Verb.CREATE
    reply: ClassVar[type[Created]] = Created

    id: Natural
    spec: ShardSpec
    fill: float | None = None
    checkpoint: Path | None = None
    version: Natural = 0


class Pulled(Reply):
    """`version`, and one array for each id; none at all where `waiting_for` has names."""

    version: Natural
    waiting_for: Names = ()


class Pull(Request):
    """Give me these shards, or rows of them, at least as new as this.

    Attributes:
        ids: Which shards.
        rows: Of which of them only rows are wanted; empty for none. For each there is an int64
            array of row numbers, counted within the shard, in the order of the ids.
        min_version: Wait for this version.
    """

    verb: ClassVar[Verb] = Verb.PULL
    reply: ClassVar[type[Pulled]] = Pulled

    ids: Ids
    rows: Annotated[tuple[bool, ...], Field(strict=False, max_length=10_000)] = ()
    min_version: Natural = 0
    wait_secs: WaitSecs = 0.0


class OptimizerSpec(Record):
    """How to change variables along gradients.

    Attributes:
        rule: Name of an update rule, or "add" or "assign" for what is not a gradient.
        hyper: The rule's hyper-parameters.
        learning_rate: Of this update.
        step: The number of this update, from 1, for rules that count.
    """

    rule: Name
    hyper: Annotated[dict[Name, bool | float], Field(max_length=32, default_factory=dict)]
    learning_rate: float = 0.0
    step: Annotated[int, Field(ge=1, lt=2**62)] = 1


class Update(Record):
    """One variable's part of a push.

    Attributes:
        id: The variable.
        optimizer: Which of the push's optimizers.
        slots: What the rule keeps beside the variable, in its order: shards of the same rows.
        rows: Whether the gradient is of some rows only. Then two arrays travel, int64 row numbers
            within the shard (one may occur more than once: the sum counts) and the rows'
            gradients; otherwise one, of the shard's shape.
    """

    id: Natural
    optimizer: Natural = 0
    slots: Ids = ()
    rows: bool = False


class Pushed(Reply):
    """What became of a push; then one array for each id of its `pull`, unless there is a wait.

    Attributes:
        version: The number of updates made so far.
        staleness: How many updates by others came between this trainer's pull and this push.
        dropped: Whether it came too late for its step and changed nothing.
        waiting_for: Who has not pushed this step yet. The push is kept; PULL with `min_version` one
            above its step waits on.
    """

    version: Natural
    staleness: Natural = 0
    dropped: bool = False
    waiting_for: Names = ()


class Push(Request):
    """Change these variables along my gradients.

    Attributes:
        step: In synchronous training the version that the gradients were computed at, otherwise
            the trainer's own count.
        weight: How much it counts in the mean with others, such as the number of examples behind
            it. One of weight 0 has nothing to say and changes nothing.
        pulled_version: The version that the gradients were computed at.
        optimizers, updates: What to do, with one or two arrays for each update.
        pull: The shards that are wanted afterwards.
        note: A text to keep with it, such as how far this trainer's input has been read: a snapshot
            holds both the push and the note, or neither.
    """

    verb: ClassVar[Verb] = Verb.PUSH
    reply: ClassVar[type[Pushed]] = Pushed

    step: Natural
    weight: Annotated[float, Field(ge=0)] = 1.0
    pulled_version: Natural
    optimizers: Annotated[tuple[OptimizerSpec, ...], Field(strict=False, max_length=1000)]
    updates: Annotated[tuple[Update, ...], Field(strict=False, max_length=10_000)]
    pull: Ids = ()
    note: Text | None = None
    wait_secs: WaitSecs = 0.0


class Waited(Reply):
    """`ok`: the slowest trainer is near enough; `slowest` is its name, `clock` its clock."""

    ok: bool
    slowest: str
    clock: Natural


class Wait(Request):
    """Bounded staleness: wait until I am at most `staleness` steps ahead of the slowest trainer.

    Attributes:
        clock: How many steps this trainer has made, counted from the clock that JOIN gave it.
        staleness: The bound.
    """

    verb: ClassVar[Verb] = Verb.WAIT
    reply: ClassVar[type[Waited]] = Waited

    clock: Natural
    staleness: Natural
    wait_secs: WaitSecs = 0.0


class Snapped(Reply):
    """`notes`: of each rank that gave one, the note of its last push in the snapshot."""

    version: Natural
    notes: dict[Rank, Text]


class Snapshot(Request):
    """Keep all shards as they are now, for WRITE. An earlier snapshot is given up."""

    verb: ClassVar[Verb] = Verb.SNAPSHOT
    reply: ClassVar[type[Snapped]] = Snapped

    step: Natural


class Written(Reply):
    """`record`: what the storage reports, for who commits the checkpoint."""

    record: str


class Write(Request):
    """Write the snapshot as this shard of the checkpoint that grows at `path`, and let it go."""

    verb: ClassVar[Verb] = Verb.WRITE
    reply: ClassVar[type[Written]] = Written

    path: Path
    shard_index: Natural


class Posted(Reply):
    """It is on the board."""


class Post(Request):
    """Put `text` on the board under `key`, in place of what was there; None takes it off."""

    verb: ClassVar[Verb] = Verb.POST
    reply: ClassVar[type[Posted]] = Posted

    key: Name
    text: Text | None


class Found(Reply):
    """`text`: what is on the board; None if nothing came in time."""

    text: Text | None


class Read(Request):
    """Tell me what is on the board under `key`; wait for it if there is nothing."""

    verb: ClassVar[Verb] = Verb.READ
    reply: ClassVar[type[Found]] = Found

    key: Name
    wait_secs: WaitSecs = 0.0


class Dismissed(Reply):
    """The server waits for this trainer no longer."""


class Done(Request):
    """This trainer has finished."""

    verb: ClassVar[Verb] = Verb.DONE
    reply: ClassVar[type[Dismissed]] = Dismissed


class Remaining(Reply):
    """`waiting_for`: the other trainers that are neither done nor gone."""

    waiting_for: Names


class WaitDone(Request):
    """Wait until all other trainers are done or gone."""

    verb: ClassVar[Verb] = Verb.WAIT_DONE
    reply: ClassVar[type[Remaining]] = Remaining

    wait_secs: WaitSecs = 0.0


class TrainerStatus(Record):
    """One trainer, in numbers.

    Attributes:
        state: "absent" (never came), "here", "gone" or "done".
        num_pushes, num_dropped: How many of its pushes were applied, and how many came too late.
        mean_staleness, max_staleness: Of those that were applied.
    """

    name: str
    state: str
    clock: Natural
    num_pushes: Natural
    num_dropped: Natural
    mean_staleness: float
    max_staleness: Natural


class ServerStatus(Reply):
    """The server, in numbers. Bytes received and sent are those of arrays."""

    name: str
    version: Natural
    num_shards: Natural
    shard_bytes: Natural
    num_received_bytes: Natural
    num_sent_bytes: Natural
    trainers: Annotated[tuple[TrainerStatus, ...], Field(strict=False)]


class Status(Request):
    """Numbers for people."""

    verb: ClassVar[Verb] = Verb.STATUS
    reply: ClassVar[type[ServerStatus]] = ServerStatus


REQUESTS: dict[int, type[Request]] = {
    kind.verb: kind
    for kind in (
        Join,
        Create,
        Pull,
        Push,
        Wait,
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
