"""What can be asked that concerns variables, and not in every step."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from .requests import (
    Aggregation,
    DType,
    Ids,
    Name,
    Names,
    Natural,
    Path,
    Rank,
    Record,
    Reply,
    Request,
    Shape,
    Text,
    Verb,
    WaitSecs,
)


class ShardSpec(Record):
    """Which rows of which variable. A scalar is one row.

    Attributes:
        name: The variable's.
        whole_shape: The shape of the whole variable.
        dtype: NumPy's name of its type.
        start, stop: The rows, half open; 0 and the number of rows if the variable is not split.
    """

    name: Name
    whole_shape: Shape
    dtype: DType
    start: Natural
    stop: Natural

    @model_validator(mode="after")
    def _is_within(self) -> ShardSpec:
        num_rows = self.whole_shape[0] if self.whole_shape else 1
        if not self.start <= self.stop <= num_rows:
            raise ValueError(
                f"rows {self.start} to {self.stop} of '{self.name}' are not within its "
                f"{num_rows} rows"
            )
        if not self.whole_shape and self.stop - self.start != 1:
            raise ValueError(f"the scalar '{self.name}' is rows 0 to 1")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shard's own shape."""
        return (self.stop - self.start, *self.whole_shape[1:]) if self.whole_shape else ()

    def __str__(self) -> str:
        part = f" rows {self.start} to {self.stop}" if self.shape != self.whole_shape else ""
        return f"'{self.name}'{part} {self.dtype} {self.whole_shape}"


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


class OptimizerSpec(Record):
    """How to change variables along gradients.

    Attributes:
        rule: Name of an update rule, or "add" or "assign" for what is not a gradient.
        hyper: The rule's hyper-parameters.
        rows_only: Whether a gradient of some rows changes these alone; without it the others change
            as by a gradient of zero.
        aggregation: What several trainers' pushes of one step come to in synchronous training (see
            `mean_of`).
    """

    rule: Name
    hyper: Annotated[dict[Name, bool | float], Field(max_length=32, default_factory=dict)]
    rows_only: bool = True
    aggregation: Aggregation = "mean"

    def __hash__(self) -> int:
        return hash((self.rule, *self.hyper.items(), self.rows_only, self.aggregation))


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


class PushPlan(Record):
    """What one push after the other does: it changes when a model does, and not with each step.

    It travels as text, which is made once, and a server does not look twice into the same text.
    Nothing has to be agreed on for that: a push says all that it means, also to a server that is
    new, and may come over any connection.

    Attributes:
        optimizers, updates: What to do, with one or two arrays for each update.
        pull: The shards that are wanted afterwards.
    """

    optimizers: Annotated[tuple[OptimizerSpec, ...], Field(strict=False, max_length=1000)]
    updates: Annotated[tuple[Update, ...], Field(strict=False, max_length=10_000)]
    pull: Ids = ()

    @property
    def text(self) -> str:
        """As a push brings it."""
        return self.model_dump_json()


class Position(Record):
    """How far one trainer's pushes are: the number of the last one, and where it went."""

    number: Natural
    servers: Ids


class Held(Reply):
    """Where the server stands still: the updates made, and of each rank its last push here."""

    version: Natural
    positions: dict[Rank, Position]


class Hold(Request):
    """Apply no more pushes until my SNAPSHOT says which still belong to it; they wait.

    All servers hold before any takes its snapshot. Whoever has asked and does not come back, or is
    lost, is forgotten: the server goes on.
    """

    verb: ClassVar[Verb] = Verb.HOLD
    reply: ClassVar[type[Held]] = Held


class Snapped(Reply):
    """What became of a snapshot.

    Attributes:
        is_held: Whether the server has stood still since HOLD. If not nothing was kept: begin anew.
        waiting_for: Whose pushes are missing; nothing was kept so far. Ask again.
        notes: Of each rank that gave one, the note of its last push in the snapshot.
    """

    version: Natural
    is_held: bool = True
    waiting_for: Names = ()
    notes: Annotated[dict[Rank, Text], Field(default_factory=dict)]


class Snapshot(Request):
    """Keep all shards for WRITE as they are after these pushes, and go on. After HOLD only.

    An earlier snapshot is given up.

    Attributes:
        version: In synchronous training: make the updates up to this version first.
        numbers: Otherwise, by rank: apply its pushes up to this number first. Nobody waits for a
            trainer that is not here.
    """

    verb: ClassVar[Verb] = Verb.SNAPSHOT
    reply: ClassVar[type[Snapped]] = Snapped

    version: Natural = 0
    numbers: Annotated[dict[Rank, Natural], Field(default_factory=dict)]
    wait_secs: WaitSecs = 0.0


class Written(Reply):
    """`record`: what the storage reports, for who commits the checkpoint."""

    record: str


class Write(Request):
    """Write the snapshot as this shard of the checkpoint that grows at `path`, and let it go."""

    verb: ClassVar[Verb] = Verb.WRITE
    reply: ClassVar[type[Written]] = Written

    path: Path
    shard_index: Natural
