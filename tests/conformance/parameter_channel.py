"""What the channel between trainers and a parameter server must do, over whatever it is made.

An implementation brings ``run(handler, bodies, timeout_secs, max_frame_bytes)``: it makes a server
that answers with ``handler``, and for each body a client (rank i, task "worker i") which calls
``body(connection)``, all at the same time; it closes each connection when its body has ended, waits
until the server has told how each client went, and returns a `Run`. With that,

    @pytest.mark.parametrize("case", cases(), ids=str)
    def test_conformance(case):
        case(run)

A check runs once, and everything that its bodies need is made inside of it, so that client and
server may be in different processes: they share code, but no memory.
"""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest
from pydantic import TypeAdapter

from paceline.collectives import ClosedError, CollectiveTimeoutError
from paceline.collectives.parameter_server import (
    Client,
    Connection,
    Message,
    RefusedRequest,
    ServerLost,
)

TIMEOUT_SECS = 20.0
SHORT_SECS = 0.3
DEFAULT_MAX_FRAME_BYTES = 1 << 30

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
SHAPES = ((), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5), (1,) * 7 + (2,), (300_001,))
ECHO, FAIL, WAIT, GO, WHO, MAKE, LATE, GROW = range(1, 9)

Handler = Callable[[Client, Message], Message]
Body = Callable[[Connection], Any]


@dataclass(frozen=True)
class Run:
    """What came of it.

    Attributes:
        outcomes: What each body returned, or the exception that it raised.
        events: What the server was told, in order: ("joined" | "lost" | "left", rank, reason).
    """

    outcomes: list[Any]
    events: list[tuple[str, int, str]]

    def results(self) -> list[Any]:
        """The outcomes; raises the first that is an exception."""
        for outcome in self.outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return self.outcomes


class Runner(Protocol):
    """What an implementation brings."""

    def __call__(
        self, handler: Handler, bodies: Sequence[Body], timeout_secs: float, max_frame_bytes: int
    ) -> Run: ...


@dataclass(frozen=True)
class Case:
    """One thing to check."""

    check: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def __call__(self, run: Runner) -> None:
        self.check(run, *self.arguments)

    def __str__(self) -> str:
        name = self.check.__name__.removeprefix("check_")
        return "-".join([name, *map(str, self.arguments)])


def cases() -> list[Case]:
    """Return all cases."""
    return [
        *(Case(check_arrays, (dtype,)) for dtype in DTYPES),
        *map(Case, _SINGLE),
        *(Case(check_refusal, (kind,)) for kind in _FAILURES),
        *(Case(check_unsendable, (what,)) for what in _UNSENDABLE),
    ]


def essential() -> list[Case]:
    """Return the cases in which the link matters: not each dtype and each kind of refusal."""
    kept = {"bool", "float64", "KeyError", "objects"}
    return [case for case in cases() if not case.arguments or {*case.arguments} <= kept]


class Answers:
    """A handler that does what the tests ask for."""

    def __init__(self) -> None:
        self._go = threading.Event()

    def __call__(self, client: Client, request: Message) -> Message:
        if request.verb == FAIL:
            raise _FAILURES[json.loads(request.body)]()
        if request.verb == WAIT:
            assert self._go.wait(TIMEOUT_SECS)
        if request.verb == GO:
            self._go.set()
        if request.verb == LATE:
            threading.Event().wait(5 * SHORT_SECS)
        if request.verb == WHO:
            return Message(WHO, json.dumps([client.rank, client.task]).encode())
        if request.verb == MAKE:
            return _UNSENDABLE[json.loads(request.body)]()
        if request.verb == GROW:
            return Message(GROW, b"", [np.zeros(1 << 18)])
        return Message(request.verb, request.body, request.arrays)


def example(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Element i is i % 100 + 1, or whether 3 divides i."""
    index = np.arange(math.prod(shape))
    values = index % 3 == 0 if dtype == "bool" else index % 100 + 1
    return values.astype(dtype).reshape(shape)


def check_arrays(run: Runner, dtype: str) -> None:
    arrays = [example(shape, dtype) for shape in SHAPES]

    def body(connection: Connection) -> None:
        for sent, _ in itertools.product([arrays, *([a] for a in arrays)], range(2)):
            reply = connection.ask(Message(ECHO, b"{}", sent))
            assert_same(reply.arrays, sent)

    run_one(run, body)


def check_verb_and_body(run: Runner) -> None:
    def body(connection: Connection) -> None:
        for verb, text in [(0, b""), (99, b"{}"), ((1 << 16) - 1, b'"%s"' % (b"x" * 1_000_000))]:
            reply = connection.ask(Message(verb, text))
            assert (reply.verb, bytes(reply.body), tuple(reply.arrays)) == (verb, text, ())

    run_one(run, body)


def check_many_arrays(run: Runner) -> None:
    """Short ones travel together, long ones on their own, in whatever order."""
    lengths = [*range(300), 100_000, 3, 200_000, *range(300), 9_000, 9_000]

    def body(connection: Connection) -> None:
        arrays = [np.full(n, i, np.float32) for i, n in enumerate(lengths)]
        assert_same(connection.ask(Message(ECHO, b"", arrays)).arrays, arrays)

    run_one(run, body)


def check_more_than_a_link_holds(run: Runner) -> None:
    def body(connection: Connection) -> int:
        array = np.arange(3_000_001, dtype=np.int64)
        assert_same(connection.ask(Message(ECHO, b"", [array])).arrays, [array])
        return connection.num_sent_bytes + connection.num_received_bytes

    assert run_one(run, body) == 2 * 8 * 3_000_001


def check_into(run: Runner) -> None:
    """Where an array of the reply fits it is received in place; elsewhere it is a new one."""

    def body(connection: Connection) -> None:
        sent = [example((50_000,), "float32"), example((2, 3), "int64"), example((4,), "bool")]
        fits, readonly = np.zeros(50_000, np.float32), np.zeros((2, 3), np.int64)
        readonly.flags.writeable = False
        strided = np.zeros((3, 2), np.int64).T
        tables = [
            ([fits], [True]),
            ([fits, np.zeros((2, 3), np.int64)], [True, True]),
            ([fits, np.zeros((3, 2), np.int64)], [True, False]),
            ([fits, np.zeros((2, 3), np.uint64)], [True, False]),
            ([fits, readonly], [True, False]),
            ([fits, strided], [True, False]),
            ([np.zeros(0)] * 9, [False] * 3),
        ]
        for into, expected in tables:
            reply = connection.ask(Message(ECHO, b"", sent), into)
            assert_same(reply.arrays, sent)
            pairs = zip(into, reply.arrays, expected, strict=False)
            assert all((given is got) == same for given, got, same in pairs)

    run_one(run, body)


def check_sent_arrays_may_change(run: Runner) -> None:
    def body(connection: Connection) -> None:
        array = example((400_000,), "float64")
        expected = array.copy()
        pending = connection.start(Message(ECHO, b"", [array]))
        array[:] = -1
        assert_same(pending.wait().arrays, [expected])
        assert pending.wait() is pending.wait()

    run_one(run, body)


def check_refusal(run: Runner, kind: str) -> None:
    """What the handler raises is what the client is told, and the connection lives on."""

    def body(connection: Connection) -> None:
        for _ in range(2):
            pending = connection.start(Message(FAIL, json.dumps(kind).encode()))
            for _ in range(2):
                with pytest.raises(RefusedRequest, match="no variable 'weights'") as caught:
                    pending.wait()
                assert caught.value.kind == kind
            assert connection.ask(Message(ECHO, b"1")).body == b"1"

    run_one(run, body)


def check_unsendable(run: Runner, what: str) -> None:
    """What cannot be sent is refused at whichever end it is, and the connection lives on."""

    def body(connection: Connection) -> None:
        with pytest.raises((TypeError, ValueError)) as caught:
            connection.ask(_UNSENDABLE[what]())
        with pytest.raises(RefusedRequest) as refused:
            connection.ask(Message(MAKE, json.dumps(what).encode()))
        assert refused.value.kind == caught.type.__name__
        assert str(refused.value) == str(caught.value)
        assert connection.ask(Message(ECHO, b"1")).body == b"1"

    run_one(run, body)


def check_one_request_at_a_time(run: Runner) -> None:
    def body(connection: Connection) -> None:
        pending = connection.start(Message(ECHO, b"1"))
        with pytest.raises(RuntimeError, match="one request at a time"):
            connection.start(Message(ECHO, b"2"))
        assert pending.wait().body == b"1"
        assert connection.ask(Message(ECHO, b"3")).body == b"3"

    run_one(run, body)


def check_who_asks(run: Runner) -> None:
    def body(connection: Connection) -> list[Any]:
        return [json.loads(connection.ask(Message(WHO)).body) for _ in range(3)]

    results = run(Answers(), [body] * 2, TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES).results()
    assert results == [[[rank, f"worker {rank}"]] * 3 for rank in range(2)]


def check_handlers_do_not_hold_each_other_up(run: Runner) -> None:
    """One client's request is answered only when another's has come."""

    def waits(connection: Connection) -> bytes:
        return connection.ask(Message(WAIT, b"waited")).body

    def goes(connection: Connection) -> bytes:
        return connection.ask(Message(GO, b"went")).body

    results = run(Answers(), [waits, goes], TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES).results()
    assert results == [b"waited", b"went"]


def check_a_late_reply(run: Runner) -> None:
    """A wait that was too short says for whom, and can be repeated."""

    def body(connection: Connection) -> bytes:
        pending = connection.start(Message(LATE, b"late"), what="pull")
        with pytest.raises(CollectiveTimeoutError, match=r"request 'pull' .*timed out .*ps 0"):
            pending.wait(SHORT_SECS)
        with pytest.raises(RuntimeError, match="one request at a time"):
            connection.start(Message(ECHO))
        reply = pending.wait().body
        assert connection.ask(Message(ECHO, b"1")).body == b"1"
        return reply

    assert run_one(run, body) == b"late"


def check_joined_and_left(run: Runner) -> None:
    def body(connection: Connection) -> None:
        for _ in range(3):
            connection.ask(Message(ECHO))

    events = run(Answers(), [body] * 2, TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES).events
    for rank in range(2):
        mine = [event for event in events if event[1] == rank]
        assert mine == [("joined", rank, ""), ("left", rank, "")]


def check_left_without_a_request(run: Runner) -> None:
    events = run(Answers(), [lambda _: None], TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES).events
    assert events == [("joined", 0, ""), ("left", 0, "")]


def check_too_long_a_request(run: Runner) -> None:
    """Whoever sends more than the server takes is cut off, told why, and harms nobody."""

    def sends_too_much(connection: Connection) -> None:
        with pytest.raises(ServerLost, match=rf"ps 0.*{1 << 20} are allowed"):
            connection.ask(Message(ECHO, b"", [np.zeros(1 << 18)]))
        with pytest.raises(ServerLost, match="unusable since"):
            connection.ask(Message(ECHO))

    def goes_on(connection: Connection) -> None:
        for _ in range(50):
            assert_same(connection.ask(Message(ECHO, b"", [np.ones(500)])).arrays, [np.ones(500)])

    result = run(Answers(), [sends_too_much, goes_on], TIMEOUT_SECS, 1 << 20)
    result.results()
    ends = {event[1]: event for event in result.events if event[0] != "joined"}
    assert ends[0][0] == "lost"
    assert "are allowed" in ends[0][2]
    assert ends[1] == ("left", 1, "")


def check_too_long_a_reply(run: Runner) -> None:
    """The limit holds at the client's end too."""

    def body(connection: Connection) -> None:
        with pytest.raises(ServerLost, match=rf"ps 0.* sent .*{1 << 20} are allowed"):
            connection.ask(Message(GROW))

    result = run(Answers(), [body], TIMEOUT_SECS, 1 << 20)
    result.results()
    assert [event[:2] for event in result.events] == [("joined", 0), ("lost", 0)]


def check_closed_by_ourselves(run: Runner) -> None:
    def body(connection: Connection) -> None:
        assert connection.ask(Message(ECHO, b"1")).body == b"1"
        pending = connection.start(Message(LATE))
        connection.close()
        connection.close()
        with pytest.raises(ClosedError):
            pending.wait()

    def closes_at_once(connection: Connection) -> None:
        connection.close()
        with pytest.raises(ClosedError):
            connection.ask(Message(ECHO))

    result = run(Answers(), [body, closes_at_once], TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES)
    result.results()
    ends = sorted(event[:2] for event in result.events if event[0] != "joined")
    assert ends == [("left", 0), ("left", 1)]


def run_one(run: Runner, body: Body) -> Any:
    """Run one client; return its result."""
    return run(Answers(), [body], TIMEOUT_SECS, DEFAULT_MAX_FRAME_BYTES).results()[0]


def assert_same(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """The same arrays, bit for bit, in shape and dtype too."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


def _validation_error() -> Exception:
    with pytest.raises(ValueError, match="int") as caught:
        TypeAdapter(int).validate_python("no variable 'weights'")
    return caught.value


_TEXT = "no variable 'weights'"
_FAILURES: dict[str, Callable[[], Exception]] = {
    "ValueError": lambda: ValueError(_TEXT),
    "KeyError": lambda: KeyError(_TEXT),
    "TypeError": lambda: TypeError(_TEXT),
    "ZeroDivisionError": lambda: ZeroDivisionError(_TEXT),
    "ValidationError": _validation_error,
}
_UNSENDABLE: dict[str, Callable[[], Message]] = {
    "objects": lambda: Message(ECHO, b"", [np.array([None])]),
    "text": lambda: Message(ECHO, b"", [np.array(["a"])]),
    "dates": lambda: Message(ECHO, b"", [np.array(["2026-11-21"], "datetime64[D]")]),
    "foreign byte order": lambda: Message(ECHO, b"", [np.zeros(3, np.dtype(float).newbyteorder())]),
    "not contiguous": lambda: Message(ECHO, b"", [np.zeros((2, 3)).T]),
    "9 dimensions": lambda: Message(ECHO, b"", [np.zeros((1,) * 9)]),
    "a long body": lambda: Message(ECHO, bytes((1 << 20) + 1)),
    "too many arrays": lambda: Message(ECHO, b"", [np.zeros(0)] * ((1 << 14) + 1)),
}
_SINGLE = (
    check_verb_and_body,
    check_many_arrays,
    check_more_than_a_link_holds,
    check_into,
    check_sent_arrays_may_change,
    check_one_request_at_a_time,
    check_who_asks,
    check_handlers_do_not_hold_each_other_up,
    check_a_late_reply,
    check_joined_and_left,
    check_left_without_a_request,
    check_too_long_a_request,
    check_too_long_a_reply,
    check_closed_by_ourselves,
)
