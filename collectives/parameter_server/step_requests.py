"""What a trainer asks in each step: PULL and PUSH.

These are asked so often, for so little, that JSON would take a fifth of the time. Their bodies are
structs: numbers of a fixed size, little endian, and behind them what has none.

    Pull     min version u64, wait f64, number of ids u32, of flags u32; ids u64, flags u8
    Pulled   version u64, stop step i64; names
    Push     step u64, number u64, pulled version u64, weight f64, wait f64, number of rates u32,
             of servers u32, bytes of the plan u32, of the note i32; rates (f64, u64), servers u32,
             plan, note
    Pushed   version u64, staleness u64, stop step i64, dropped u8, ending u8; names

What may be missing is -1. Texts are UTF-8, names have zeros between them. What numbers may be is
looked at where a request is made, be it of a body: so a step that no server takes is sent to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from struct import Struct, pack, unpack_from
from typing import Any, ClassVar, TypeAlias, final

from .requests import MAX_TEXT_CHARACTERS, MAX_WAIT_SECS, NATURAL_LIMIT, Verb

Rate: TypeAlias = tuple[float, int]
"""A learning rate, and the number of the update that it is for, from 1."""

_PULL = Struct("<QdII")
_PULLED = Struct("<Qq")
_PUSH = Struct("<QQQddIIIi")
_PUSHED = Struct("<QQq??")
_RATE = Struct("<dQ")
_MISSING = -1
_MAX_RATES = 1000
_MAX_IDS = 10_000


@final
@dataclass(slots=True, kw_only=True)
class Pulled:
    """`version`, and one array for each id; none at all where `waiting_for` has names.

    `stop_step`: as in `Pushed`, for a trainer whose push had to wait for the others.
    """

    version: int
    stop_step: int | None = None
    waiting_for: tuple[str, ...] = ()

    def packed(self) -> bytes:
        stop_step = _MISSING if self.stop_step is None else self.stop_step
        return _PULLED.pack(self.version, stop_step) + _joined(self.waiting_for)

    @classmethod
    def unpacked(cls, body: bytes) -> Pulled:
        version, stop_step = _fixed(cls, _PULLED, body)
        return cls(
            version=version,
            stop_step=None if stop_step == _MISSING else stop_step,
            waiting_for=_names(body[_PULLED.size :]),
        )


@final
@dataclass(slots=True, kw_only=True)
class Pull:
    """Give me these shards, or rows of them, at least as new as this.

    Attributes:
        ids: Which shards.
        rows: Of which of them only rows are wanted; empty for none. For each there is an int64
            array of row numbers, counted within the shard, in the order of the ids.
        min_version: Wait for this version.
        wait_secs: For how long, at most `MAX_WAIT_SECS`.
    """

    verb: ClassVar[Verb] = Verb.PULL
    reply: ClassVar[type[Pulled]] = Pulled

    ids: tuple[int, ...]
    rows: tuple[bool, ...] = ()
    min_version: int = 0
    wait_secs: float = 0.0

    def __post_init__(self) -> None:
        _check_naturals(self.min_version)
        _check_wait(self.wait_secs)
        _check_length("ids of a pull", self.ids, _MAX_IDS)

    def packed(self) -> bytes:
        num_ids, num_flags = len(self.ids), len(self.rows)
        fixed = _PULL.pack(self.min_version, self.wait_secs, num_ids, num_flags)
        return fixed + pack(f"<{num_ids}Q", *self.ids) + bytes(self.rows)

    @classmethod
    def unpacked(cls, body: bytes) -> Pull:
        min_version, wait_secs, num_ids, num_flags = _fixed(cls, _PULL, body)
        flags_start = _PULL.size + 8 * num_ids
        _check_size(cls, body, flags_start + num_flags)
        return cls(
            ids=unpack_from(f"<{num_ids}Q", body, _PULL.size),
            rows=unpack_from(f"<{num_flags}?", body, flags_start),
            min_version=min_version,
            wait_secs=wait_secs,
        )


@final
@dataclass(slots=True, kw_only=True)
class Pushed:
    """What became of a push; then arrays for the `pull` of its plan, unless there is a wait.

    Attributes:
        version: The number of updates made so far.
        staleness: How many updates by others came between this trainer's pull and this push.
        dropped: Whether it came too late for its step and changed nothing.
        is_ending: Whether a trainer has said that all are to end.
        stop_step: The global step after which nothing is left to train, if a trainer has said so.
        waiting_for: Who has not pushed this step yet. The push is kept; PULL with `min_version` one
            above its step waits on.
    """

    version: int
    staleness: int = 0
    dropped: bool = False
    is_ending: bool = False
    stop_step: int | None = None
    waiting_for: tuple[str, ...] = ()

    def packed(self) -> bytes:
        stop_step = _MISSING if self.stop_step is None else self.stop_step
        fixed = _PUSHED.pack(self.version, self.staleness, stop_step, self.dropped, self.is_ending)
        return fixed + _joined(self.waiting_for)

    @classmethod
    def unpacked(cls, body: bytes) -> Pushed:
        version, staleness, stop_step, dropped, is_ending = _fixed(cls, _PUSHED, body)
        return cls(
            version=version,
            staleness=staleness,
            dropped=dropped,
            is_ending=is_ending,
            stop_step=None if stop_step == _MISSING else stop_step,
            waiting_for=_names(body[_PUSHED.size :]),
        )


@final
@dataclass(slots=True, kw_only=True)
class Push:
    """Change these variables along my gradients.

    Attributes:
        step: In synchronous training the version that the gradients were computed at, otherwise
            the trainer's own count.
        number: Counts this trainer's pushes, from 1, the same on all servers; it rises also where
            the trainer is started anew. A push that comes again is not applied again.
        servers: The indices of all servers that a part of this push goes to.
        weight: How much it counts in the mean with others, such as the number of examples behind
            it. One of weight 0 has nothing to say and changes nothing.
        pulled_version: The version that the gradients were computed at.
        plan: What to do: the text of a `PushPlan`.
        rates: For each optimizer of the plan its learning rate in this step, and the number of this
            update, from 1, for rules that count.
        note: A text to keep with it, such as how far this trainer's input has been read: a snapshot
            holds both the push and the note, or neither.
        wait_secs: How long to wait for the others in step, at most `MAX_WAIT_SECS`.
    """

    verb: ClassVar[Verb] = Verb.PUSH
    reply: ClassVar[type[Pushed]] = Pushed

    step: int
    number: int
    servers: tuple[int, ...] = ()
    weight: float = 1.0
    pulled_version: int
    plan: str
    rates: tuple[Rate, ...] = ()
    note: str | None = None
    wait_secs: float = 0.0

    def __post_init__(self) -> None:
        _check_naturals(self.step, self.number, self.pulled_version)
        _check_wait(self.wait_secs)
        if not self.number:
            raise ValueError("pushes are numbered from 1, this one is 0")
        if not (self.weight >= 0 and isfinite(self.weight)):
            raise ValueError(f"weight of a push must be finite and ≥ 0, it is {self.weight}")
        _check_length("rates of a push", self.rates, _MAX_RATES)
        for rate, number in self.rates:
            if not isfinite(rate):
                raise ValueError(f"a learning rate must be finite, it is {rate}")
            if not 0 < number < NATURAL_LIMIT:
                raise ValueError(f"updates are numbered from 1 and below 2^62, one is {number}")
        _check_length("servers of a push", self.servers, _MAX_IDS)
        _check_length("characters of a note", self.note or "", MAX_TEXT_CHARACTERS)

    def packed(self) -> bytes:
        plan = self.plan.encode()
        note = b"" if self.note is None else self.note.encode()
        num_rates, num_servers = len(self.rates), len(self.servers)
        fixed = _PUSH.pack(
            self.step,
            self.number,
            self.pulled_version,
            self.weight,
            self.wait_secs,
            num_rates,
            num_servers,
            len(plan),
            _MISSING if self.note is None else len(note),
        )
        counted = pack(
            f"<{'dQ' * num_rates}{num_servers}I", *chain.from_iterable(self.rates), *self.servers
        )
        return b"".join((fixed, counted, plan, note))

    @classmethod
    def unpacked(cls, body: bytes) -> Push:
        step, number, pulled_version, weight, wait_secs, *sizes = _fixed(cls, _PUSH, body)
        num_rates, num_servers, num_plan_bytes, num_note_bytes = sizes
        servers_start = _PUSH.size + _RATE.size * num_rates
        plan_start = servers_start + 4 * num_servers
        note_start = plan_start + num_plan_bytes
        _check_size(cls, body, note_start + max(num_note_bytes, 0))
        return cls(
            step=step,
            number=number,
            servers=unpack_from(f"<{num_servers}I", body, servers_start),
            weight=weight,
            pulled_version=pulled_version,
            plan=body[plan_start:note_start].decode(),
            rates=tuple(_RATE.iter_unpack(body[_PUSH.size : servers_start])),
            note=None if num_note_bytes == _MISSING else body[note_start:].decode(),
            wait_secs=wait_secs,
        )


def _fixed(kind: type, layout: Struct, body: bytes) -> tuple[Any, ...]:
    if len(body) < layout.size:
        raise ValueError(
            f"a malformed {kind.__name__}: {len(body)} bytes, it must have {layout.size} or more"
        )
    return layout.unpack_from(body)


def _check_size(kind: type, body: bytes, num_bytes: int) -> None:
    if len(body) != num_bytes:
        raise ValueError(
            f"a malformed {kind.__name__}: {len(body)} bytes, by its own numbers {num_bytes}"
        )


def _check_length(what: str, items: Sequence[object], limit: int) -> None:
    if len(items) > limit:
        raise ValueError(f"there may be {limit} {what}, not {len(items)}")


def _check_naturals(*numbers: int) -> None:
    if not 0 <= min(numbers) <= max(numbers) < NATURAL_LIMIT:
        raise ValueError(
            f"steps, versions and pushes are numbered from 0 and below 2^62: {numbers}"
        )


def _check_wait(wait_secs: float) -> None:
    if not 0 <= wait_secs <= MAX_WAIT_SECS:
        raise ValueError(f"wait_secs must be from 0 to {MAX_WAIT_SECS:g}, it is {wait_secs}")


def _joined(names: Sequence[str]) -> bytes:
    return "\0".join(names).encode()


def _names(joined: bytes) -> tuple[str, ...]:
    return tuple(joined.decode().split("\0")) if joined else ()
