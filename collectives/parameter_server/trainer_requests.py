"""What can be asked that concerns trainers: who takes part, how far they are, who has finished.

And texts by key, by which trainers tell each other what is not the server's business.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from .requests import Name, Names, Natural, Record, Reply, Request, Text, Verb, WaitSecs


class Joined(Reply):
    """Where the server is.

    Attributes:
        version: The number of updates made, counted from the beginning of the job.
        num_shards: How many shards it holds; a server that is new or was restarted holds none.
        is_ready: Whether somebody has pulled or pushed, so that all variables have been created.
        note: What this trainer said with its last push that was applied, here or before a restart
            of the trainer; None if there was none.
        clock: Where this trainer's clock starts (see `Wait`).
        number: Of its last push that has come here (see `Push`).
    """

    version: Natural
    num_shards: Natural
    is_ready: bool
    note: Text | None
    clock: Natural
    number: Natural


class Join(Request):
    """This trainer takes part, from now on.

    Unless it is `returning`, what it pushed before and was not yet applied is forgotten: a process
    that takes the place of another starts anew, from the variables as they are and from the note
    that is returned.

    Attributes:
        from_version: In synchronous training the first step to which it contributes and which
            therefore waits for it. To be said, by a second JOIN, when it is about to pull: until
            then nobody waits for it. Unless it is the very first step: that waits for all.
        returning: Whether this process has trained in this job before. A server without updates
            then knows that it replaces one that died, and waits less long for those that may have
            finished.
        number: Of its last push; a server that replaces another one does not wait for that.
    """

    verb: ClassVar[Verb] = Verb.JOIN
    reply: ClassVar[type[Joined]] = Joined

    from_version: Natural | None = None
    returning: bool = False
    number: Natural = 0


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


class Post(Request):
    """Keep `text` under `key`, in place of what was there; None takes it away."""

    verb: ClassVar[Verb] = Verb.POST
    reply: ClassVar[type[Reply]] = Reply

    key: Name
    text: Text | None


class Found(Reply):
    """`text`: what is kept there; None if nothing came in time."""

    text: Text | None


class Read(Request):
    """Tell me what is kept under `key`; wait for it if there is nothing."""

    verb: ClassVar[Verb] = Verb.READ
    reply: ClassVar[type[Found]] = Found

    key: Name
    wait_secs: WaitSecs = 0.0


class Done(Request):
    """This trainer has finished; the server waits for it no longer."""

    verb: ClassVar[Verb] = Verb.DONE
    reply: ClassVar[type[Reply]] = Reply


class Remaining(Reply):
    """`waiting_for`: the other trainers that are neither done nor gone."""

    waiting_for: Names


class WaitDone(Request):
    """I make no more steps; wait until all other trainers are done or gone.

    Nobody waits for this trainer any more, but it is not done: it may pull and take a snapshot.
    """

    verb: ClassVar[Verb] = Verb.WAIT_DONE
    reply: ClassVar[type[Remaining]] = Remaining

    wait_secs: WaitSecs = 0.0


class TrainerStatus(Record):
    """One trainer.

    Attributes:
        state: "absent" (never came), "here", "gone" or "done".
        is_expected: Whether the server goes on for its sake: it is not done, and not given up.
    """

    name: str
    state: str
    is_expected: bool
    clock: Natural


class ServerStatus(Reply):
    """The server: how many updates it has made, and all trainers of the job by rank."""

    version: Natural
    trainers: Annotated[tuple[TrainerStatus, ...], Field(strict=False)]


class Status(Request):
    """Who is there, and how far."""

    verb: ClassVar[Verb] = Verb.STATUS
    reply: ClassVar[type[ServerStatus]] = ServerStatus
