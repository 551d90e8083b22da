"""What every communicator must do, as cases that any implementation can run.

An implementation brings ``run(size, body, timeout_secs)``: it makes a communicator of ``size``
ranks, calls ``body(communicator)`` on every rank at the same time, closes the communicators when
all ranks have ended, and returns one outcome a rank: what ``body`` returned or the exception that
it raised. A check runs a body once. With that,

    @pytest.mark.parametrize("case", cases([1, 2, 3, 4]), ids=str)
    def test_conformance(case):
        case(run)

`cases` are about results and refusals and leave the communicator in order; `mismatches` end with an
error on every rank; `losses` need ranks that can fail one by one. Expected values are formulas in
rank and size.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest

from paceline.collectives import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    Communicator,
    MismatchError,
    Op,
    PeerLostError,
    part_bounds,
)

DTYPES = ("float16", "float32", "float64", "int32", "int64", "bool")
TIMEOUT_SECS = 20.0
SHORT_SECS = 0.5

Body = Callable[[Communicator], Any]


class Run(Protocol):
    """What an implementation brings."""

    def __call__(self, size: int, body: Body, timeout_secs: float) -> list[Any]: ...


@dataclass(frozen=True)
class Case:
    """One thing to check, with a number of ranks."""

    name: str
    size: int
    check: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def __call__(self, run: Run) -> None:
        self.check(run, self.size, *self.arguments)

    def __str__(self) -> str:
        values = [getattr(a, "value", a) for a in self.arguments]
        return "-".join(map(str, [self.name, *values, f"{self.size} ranks"]))


def cases(sizes: Iterable[int]) -> list[Case]:
    """Return the cases that end well, for each number of ranks."""
    return [Case(name, size, *what) for size in sizes for name, *what in [*_MATRIX, *_SINGLE]]


def essential(cases: Iterable[Case]) -> list[Case]:
    """Return the cases with the smallest and the largest elements, added up, and those without.

    Other types and ops do not matter to the link or to the number of ranks.
    """
    kept = {"bool", "float64", Op.SUM}
    return [case for case in cases if not case.arguments or {*case.arguments} <= kept]


def mismatches(sizes: Iterable[int]) -> list[Case]:
    """Return first uses of a name that differ between ranks: an error on every rank."""
    return [
        Case("a differing first use", size, check_first_use, (difference,))
        for size in sizes
        for difference in DIFFERENCES
        if size > 1
    ]


def losses(sizes: Iterable[int]) -> list[Case]:
    """Return what goes wrong on one rank and must be said on the others."""
    return [Case(name, size, *what) for size in sizes if size > 1 for name, *what in _LOSSES]


def lengths(size: int) -> list[int]:
    """Empty, one, around the number of ranks, short, odd and long."""
    return [0, 1, size - 1, size, 7, 20_011, 140_001]


def example(length: int, dtype: str, rank: int) -> np.ndarray:
    """Element i of rank r is i % 5 + r + 1, or for bool whether 3 divides i + r."""
    index = np.arange(length)
    return (index + rank) % 3 == 0 if dtype == "bool" else (index % 5 + rank + 1).astype(dtype)


def reduced(length: int, dtype: str, op: Op, size: int) -> np.ndarray:
    """What `example` becomes; small integers, so exact in every dtype."""
    index = np.arange(length)
    if dtype == "bool":
        each = [(index + rank) % 3 == 0 for rank in range(size)]
        return np.any(each, 0) if op in (Op.SUM, Op.MAX) else np.all(each, 0)
    first = index % 5 + 1
    result = {
        Op.SUM: size * first + size * (size - 1) // 2,
        Op.MIN: first,
        Op.MAX: first + size - 1,
        Op.PRODUCT: np.prod([first + rank for rank in range(size)], axis=0),
    }[op]
    return result.astype(dtype)


def check_all_reduce(run: Run, size: int, dtype: str, op: Op) -> None:
    def body(communicator: Communicator) -> list[np.ndarray]:
        results = []
        for length, _ in itertools.product(lengths(size), range(2)):
            array = example(length, dtype, communicator.rank)
            assert communicator.all_reduce(array, f"array of {length}", op) is None
            results.append(array)
        return results

    expected = [reduced(n, dtype, op, size) for n in lengths(size) for _ in range(2)]
    for arrays in results_of(run, size, body):
        assert_same(arrays, expected)


def check_arrays_of_the_communicator(run: Run, size: int, dtype: str, op: Op) -> None:
    """Arrays that `empty` has made are like any others, in whole, in part, and started."""

    def body(communicator: Communicator) -> list[np.ndarray]:
        results = []
        for length in lengths(size):
            array = communicator.empty((length,), dtype, f"array of {length}")
            assert array.shape == (length,)
            assert not array.any()
            for turn in range(3):
                array[:] = example(length, dtype, communicator.rank)
                if turn == 1:
                    communicator.start_all_reduce(array, "started", op).wait()
                else:
                    communicator.all_reduce(array, "reduced", op)
                results.append(array.copy())
            array[:] = example(length, dtype, communicator.rank)
            half = array[: length // 2]
            communicator.all_reduce(half, "half", op)
            results.append(half.copy())
        return results

    expected = []
    for n in lengths(size):
        whole = reduced(n, dtype, op, size)
        expected += [whole] * 3 + [whole[: n // 2]]
    for arrays in results_of(run, size, body):
        assert_same(arrays, expected)


def check_reduce_scatter(run: Run, size: int, dtype: str, op: Op) -> None:
    def body(communicator: Communicator) -> list[np.ndarray]:
        return [
            communicator.reduce_scatter(example(length, dtype, communicator.rank), f"n{length}", op)
            for length in lengths(size)
            for _ in range(2)
        ]

    for rank, arrays in enumerate(results_of(run, size, body)):
        expected = []
        for length in lengths(size):
            start, stop = part_bounds(length, size)[rank]
            expected += [reduced(length, dtype, op, size)[start:stop]] * 2
        assert_same(arrays, expected)


def check_all_gather(run: Run, size: int, dtype: str) -> None:
    """Rank r brings n // (r + 1) elements."""

    def body(communicator: Communicator) -> list[list[np.ndarray]]:
        rank = communicator.rank
        return [
            communicator.all_gather(example(length // (rank + 1), dtype, rank), f"n{length}")
            for length in lengths(size)
            for _ in range(2)
        ]

    for gathered in results_of(run, size, body):
        for length, arrays in zip(np.repeat(lengths(size), 2), gathered, strict=True):
            assert_same(arrays, [example(length // (r + 1), dtype, r) for r in range(size)])


def check_broadcast(run: Run, size: int, dtype: str) -> None:
    """The roots take turns; there are more lengths than ranks."""

    def body(communicator: Communicator) -> list[np.ndarray]:
        results = []
        for (number, length), turn in itertools.product(enumerate(lengths(size)), range(2)):
            array = example(length, dtype, communicator.rank + turn)
            communicator.broadcast(array, f"array {number}", root=number % size)
            results.append(array)
        return results

    expected = [
        example(length, dtype, number % size + turn)
        for (number, length), turn in itertools.product(enumerate(lengths(size)), range(2))
    ]
    for arrays in results_of(run, size, body):
        assert_same(arrays, expected)


def check_send_and_receive(run: Run, size: int, dtype: str) -> None:
    """Every rank sends to the next one, the even ones first."""

    def body(communicator: Communicator) -> list[np.ndarray]:
        if communicator.size == 1:
            return []
        rank, results = communicator.rank, []
        to, source = (rank + 1) % size, (rank - 1) % size
        for length, _ in itertools.product(lengths(size), range(2)):
            array, result = example(length, dtype, rank), np.empty(length, dtype)
            steps = [
                lambda a=array: communicator.send(a, "neighbour", to),
                lambda r=result: communicator.receive(r, "neighbour", source),
            ]
            for step in steps if rank % 2 == 0 else reversed(steps):
                step()
            results.append(result)
        return results

    for rank, arrays in enumerate(results_of(run, size, body)):
        if size > 1:
            source = (rank - 1) % size
            assert_same(arrays, [example(n, dtype, source) for n in lengths(size) for _ in "ab"])


def check_equal_bits(run: Run, size: int, dtype: str, op: Op) -> None:
    """Rounding, signed zeros, infinities and NaN come out equal on every rank (CO-16)."""

    def body(communicator: Communicator) -> list[bytes]:
        rng = np.random.default_rng(communicator.rank)
        results = []
        for length in (5, 4_099, 300_007):
            array = (rng.standard_normal(length) * 10.0 ** rng.integers(-3, 3, length)).astype(
                dtype
            )
            array[rng.random(length) < 0.1] = 0.0
            array[rng.random(length) < 0.1] = -0.0
            array[rng.random(length) < 0.01] = np.nan
            made = communicator.empty((length,), dtype, f"made {length}")
            made[:] = array
            with np.errstate(all="ignore"):
                communicator.all_reduce(array, f"n{length}", op)
                communicator.all_reduce(made, f"made {length}", op)
            results += [array.tobytes(), made.tobytes()]
        return results

    first, *others = results_of(run, size, body)
    assert all(other == first for other in others)


SHAPES = ((), (1,), (2, 3), (4, 0, 2), (0, 3), (30, 40, 50))


def check_shapes(run: Run, size: int) -> None:
    """Arrays keep their shapes; those that are gathered may differ in the first dimension."""

    def body(communicator: Communicator) -> list[np.ndarray]:
        rank, results = communicator.rank, []
        for shape, _ in itertools.product(SHAPES, range(2)):
            array, root = np.full(shape, rank + 1.0), np.full(shape, rank + 1.0)
            communicator.all_reduce(array, "sum")
            communicator.all_reduce(array, "sum")  # the very same array again
            communicator.broadcast(root, "root", root=size - 1)
            rows = np.full((rank + 1, *shape[1:]) if shape else (), float(rank))
            results += [array, root, *communicator.all_gather(rows, f"rows of {shape[1:]}")]
            if size > 1 and rank < 2:
                moved = np.full(shape, float(rank))
                if rank == 0:
                    communicator.send(moved, "moved", 1)
                else:
                    communicator.receive(moved, "moved", 0)
                    assert (moved == 0).all()
        return results

    expected = []
    for shape, _ in itertools.product(SHAPES, range(2)):
        expected += [np.full(shape, size * size * (size + 1) / 2), np.full(shape, float(size))]
        expected += [
            np.full((rank + 1, *shape[1:]) if shape else (), float(rank)) for rank in range(size)
        ]
    for arrays in results_of(run, size, body):
        assert_same(arrays, expected)
        assert [array.shape for array in arrays] == [right.shape for right in expected]


def check_a_name_may_change_its_length(run: Run, size: int) -> None:
    """The last batch of an epoch is shorter."""

    def body(communicator: Communicator) -> list[float]:
        totals = []
        for length in (10, 3, 10, 100_000, 3, 10):
            array = np.ones(length, np.float32)
            communicator.all_reduce(array, "gradients")
            totals.append(array.sum().item())
        return totals

    for totals in results_of(run, size, body):
        assert totals == [size * n for n in (10, 3, 10, 100_000, 3, 10)]


def check_started_operations_run_in_order(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> list[np.ndarray]:
        arrays = [example(length, "float32", communicator.rank) for length in lengths(size)]
        handles = [
            communicator.start_all_reduce(array, f"bucket {i}") for i, array in enumerate(arrays)
        ]
        for handle in reversed(handles):
            assert handle.wait() is None
        handles[0].wait()
        return arrays

    for arrays in results_of(run, size, body):
        assert_same(arrays, [reduced(n, "float32", Op.SUM, size) for n in lengths(size)])


def check_started_operations_come_again(run: Run, size: int) -> None:
    """A step's: sums in a new array each time, a bucket that is kept, one that is not always."""
    length = 40_000

    def body(communicator: Communicator) -> list[float]:
        kept = communicator.empty((length,), "float32", "kept")
        other = communicator.empty((length,), "float32", "other")
        totals = []
        for turn in range(6):
            arrays = [np.zeros(5), kept, kept.copy() if turn in (2, 3) else other]
            for array in arrays:
                array[:] = turn + communicator.rank
            started = [communicator.start_all_reduce(a, f"{i}") for i, a in enumerate(arrays)]
            for handle in started:
                handle.wait()
            communicator.all_reduce(arrays[0], "sums")
            totals += [extreme.item() for a in arrays for extreme in (a.min(), a.max())]
        return totals

    for totals in results_of(run, size, body):
        sums = [size * turn + size * (size - 1) / 2 for turn in range(6)]
        assert totals == [s for s in sums for s in (size * s, size * s, s, s, s, s)]


def check_a_call_waits_for_those_started_before(run: Run, size: int) -> None:
    """One array through both: the second sum is of the first."""

    def body(communicator: Communicator) -> list[float]:
        array = np.ones(200_000, np.float64)
        handle = communicator.start_all_reduce(array, "first")
        communicator.all_reduce(array, "second")
        handle.wait()
        return [array.min().item(), array.max().item()]

    for extremes in results_of(run, size, body):
        assert extremes == [size**2] * 2


def check_barrier(run: Run, size: int) -> None:
    """No rank leaves before the last one has come (the monotonic clock is one for the host)."""

    def body(communicator: Communicator) -> list[tuple[float, float]]:
        times = []
        for _ in range(5):
            before = time.monotonic()
            communicator.barrier("meeting point")
            times.append((before, time.monotonic()))
        return times

    for passages in zip(*results_of(run, size, body), strict=True):
        assert max(before for before, _ in passages) <= min(after for _, after in passages)


def check_split(run: Run, size: int) -> None:
    """Even and odd ranks, in reverse order; the whole can be used in between."""

    def body(communicator: Communicator) -> tuple[int, int, list[int], float, float]:
        rank = communicator.rank
        tasks = [member.task for member in communicator.members]
        part = communicator.split(color=rank % 2, key=-rank)
        own, whole = np.array([float(rank)]), np.array([float(rank)])
        for _ in range(2):
            own[0] = whole[0] = rank
            part.all_reduce(own, "ranks")
            communicator.all_reduce(whole, "ranks")
        part.close()
        group = [tasks.index(member.task) for member in part.members]
        return part.rank, part.size, group, own.item(), whole.item()

    for rank, result in enumerate(results_of(run, size, body)):
        group = [r for r in reversed(range(size)) if r % 2 == rank % 2]
        total = size * (size - 1) / 2
        assert result == (group.index(rank), len(group), group, sum(group), total)


def check_parts_of_parts(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> list[int]:
        halves = communicator.split(communicator.rank // 2, 0)
        again = communicator.split(0, -communicator.rank)
        single = halves.split(halves.rank, 0)
        for part in (single, halves, again):
            array = np.ones(5, np.int32)
            part.all_reduce(array, "ones")
            assert array.tolist() == [part.size] * 5
        return [halves.size, again.rank, single.size]

    for rank, result in enumerate(results_of(run, size, body)):
        assert result == [min(2, size - rank // 2 * 2), size - 1 - rank, 1]


def check_members(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> tuple[int, int, list[int], list[str]]:
        members = communicator.members
        names = [str(member) for member in members]
        return communicator.rank, communicator.size, [m.rank for m in members], names

    outcomes = results_of(run, size, body)
    for rank, (own_rank, own_size, ranks, names) in enumerate(outcomes):
        assert (own_rank, own_size, ranks) == (rank, size, list(range(size)))
        assert len(set(names)) == size
        assert names == outcomes[0][3]


REFUSED: tuple[tuple[Callable[[], Any], type[Exception], str], ...] = (
    (lambda: np.zeros(8)[::2], ValueError, "contiguous"),
    (lambda: np.zeros((2, 3)).T, ValueError, r"order of C, but has shape \(3, 2\)"),
    (lambda: np.zeros(3, complex), TypeError, "complex128"),
    (lambda: np.zeros(3, ">f4"), TypeError, "dtype >f4"),
    (lambda: [1.0, 2.0], TypeError, "is a list"),
    (lambda: np.frombuffer(bytes(8)), ValueError, "read-only"),
)


def check_refused_arrays_do_no_harm(run: Run, size: int) -> None:
    """Rank 0 alone tries what is refused; afterwards all go on together."""

    def body(communicator: Communicator) -> float:
        for make, error, text in REFUSED if communicator.rank == 0 else ():
            for call in (
                communicator.all_reduce,
                communicator.start_all_reduce,
                communicator.reduce_scatter,
                communicator.broadcast,
            ):
                with pytest.raises(error, match=text):
                    call(make(), "refused")
        array = np.ones(1)
        communicator.all_reduce(array, "accepted")
        return array.item()

    assert results_of(run, size, body) == [size] * size


def check_ranks_out_of_range_are_refused(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> None:
        array = np.ones(1)
        for call in (communicator.broadcast, communicator.send, communicator.receive):
            for rank in (-1, size):
                with pytest.raises(ValueError, match=f"from 0 to {size - 1}, but is {rank}"):
                    call(array, "x", rank)
        for call in (communicator.send, communicator.receive):
            with pytest.raises(ValueError, match="this rank itself"):
                call(array, "x", communicator.rank)

    results_of(run, size, body)


def check_many_calls_of_one_name(run: Run, size: int) -> None:
    """Often enough for every periodic check to have its turn."""

    def body(communicator: Communicator) -> list[float]:
        array = np.zeros(3)
        for i in range(300):
            array[:] = communicator.rank + i
            communicator.all_reduce(array, "counter")
        return array.tolist()

    expected = size * 299 + size * (size - 1) / 2
    for values in results_of(run, size, body):
        assert values == [expected] * 3


def check_an_array_that_is_on_its_way(run: Run, size: int) -> None:
    """It is read when it has come."""

    class Copy:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def synchronize(self) -> None:
            self.array[:] = 1

    def body(communicator: Communicator) -> list[float]:
        array = np.full(3, np.nan)
        communicator.start_all_reduce(array, "late", after=Copy(array)).wait()
        return array.tolist()

    assert results_of(run, size, body) == [[float(size)] * 3] * size


def check_closed(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> None:
        array = np.ones(2)
        communicator.all_reduce(array, "x")
        communicator.barrier("end")
        communicator.close()
        communicator.close()
        with pytest.raises(ClosedError):
            communicator.all_reduce(array, "x")
        with pytest.raises(ClosedError):
            communicator.start_all_reduce(array, "x").wait()

    results_of(run, size, body)


DIFFERENCES: dict[str, tuple[Body, Body, Sequence[str]]] = {
    "name": (
        lambda c: c.all_reduce(np.ones(3), "a"),
        lambda c: c.all_reduce(np.ones(3), "b"),
        ["all_reduce 'a'", "all_reduce 'b'"],
    ),
    "length": (
        lambda c: c.all_reduce(np.ones(3), "a"),
        lambda c: c.all_reduce(np.ones(4), "a"),
        ["float64[3]", "float64[4]"],
    ),
    "shape": (
        lambda c: c.all_reduce(np.ones((2, 3)), "a"),
        lambda c: c.all_reduce(np.ones((3, 2)), "a"),
        ["float64[2, 3]", "float64[3, 2]"],
    ),
    "row": (
        lambda c: c.all_gather(np.ones((2, 3)), "a"),
        lambda c: c.all_gather(np.ones((3, 2)), "a"),
        ["float64[any length, 3]", "float64[any length, 2]"],
    ),
    "dtype": (
        lambda c: c.all_reduce(np.ones(3, np.float32), "a"),
        lambda c: c.all_reduce(np.ones(3, np.int32), "a"),
        ["float32[3]", "int32[3]"],
    ),
    "op": (
        lambda c: c.all_reduce(np.ones(3), "a", Op.SUM),
        lambda c: c.all_reduce(np.ones(3), "a", Op.MAX),
        ["op sum", "op max"],
    ),
    "operation": (
        lambda c: c.all_reduce(np.ones(3), "a"),
        lambda c: c.broadcast(np.ones(3), "a"),
        ["all_reduce 'a'", "broadcast 'a'"],
    ),
    "root": (
        lambda c: c.broadcast(np.ones(3), "a", root=0),
        lambda c: c.broadcast(np.ones(3), "a", root=1),
        ["from rank 0", "from rank 1"],
    ),
    "gathered dtype": (
        lambda c: c.all_gather(np.ones(3, np.float32), "a"),
        lambda c: c.all_gather(np.ones(3, np.float64), "a"),
        ["float32", "float64"],
    ),
    "started": (
        lambda c: c.start_all_reduce(np.ones(3), "a").wait(),
        lambda c: c.start_all_reduce(np.ones(300_000), "a").wait(),
        ["float64[3]", "float64[300000]"],
    ),
}


def check_first_use(run: Run, size: int, difference: str) -> None:
    """The last rank differs; all hear what each has called (D-26), and where (D-10)."""
    common, other, texts = DIFFERENCES[difference]

    def body(communicator: Communicator) -> str:
        communicator.barrier("start")
        with pytest.raises(MismatchError) as raised:
            (other if communicator.rank == size - 1 else common)(communicator)
        for member in (communicator.members[0], communicator.members[-1]):
            assert str(member) in str(raised.value)
        return str(raised.value)

    for text in results_of(run, size, body):
        assert all(part in text for part in texts)
        if difference != "started":  # by a thread, maybe, that runs no line of the user's
            assert text.count(f"(first at {__file__}:") == 2


def check_skipped_call(
    run: Run, size: int, num_bytes: int, is_made: bool = False, is_started: bool = False
) -> None:
    """Rank 0 leaves out one of two calls that have been made before."""

    def body(communicator: Communicator) -> None:
        shape = (num_bytes // 8,)
        array = communicator.empty(shape, "float64", "made") if is_made else np.zeros(shape)
        for turn in range(6):
            names = "b" if turn == 3 and communicator.rank == 0 else "ab"
            for name in names:
                if is_started:
                    communicator.start_all_reduce(array, name).wait()
                else:
                    communicator.all_reduce(array, name)
        communicator.barrier("end")

    outcomes = run(size, body, TIMEOUT_SECS)
    text = mismatch_among(outcomes)
    for name in "ab":
        site = "" if is_started else rf" \(first at {re.escape(__file__)}:\d+\)"
        assert re.search(rf"all_reduce '{name}' [^(]*{site}", text)


def check_other_length(run: Run, size: int, num_bytes: int) -> None:
    """The last rank comes with another length under a name that all know."""

    def body(communicator: Communicator) -> None:
        array = np.zeros(num_bytes // 8)
        for turn in range(4):
            odd = turn == 2 and communicator.rank == size - 1
            communicator.all_reduce(np.zeros(len(array) + 1) if odd else array, "a")
        communicator.barrier("end")

    text = mismatch_among(run(size, body, TIMEOUT_SECS))
    assert f"float64[{num_bytes // 8}]" in text
    assert f"float64[{num_bytes // 8 + 1}]" in text


def check_another_message_than_expected(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> None:
        if communicator.rank == 0:
            communicator.send(np.ones(3), "weights", 1)
        if communicator.rank == 1:
            communicator.receive(np.ones(4), "weights", 0)
        communicator.barrier("end")

    text = mismatch_among(run(size, body, TIMEOUT_SECS))
    assert "float64[3] from rank 0 to rank 1" in text
    assert "float64[4] from rank 0 to rank 1" in text


def check_a_rank_that_raises(run: Run, size: int) -> None:
    """Its reason reaches the others, which wait for it (D-21)."""

    def body(communicator: Communicator) -> None:
        array = np.zeros(1000)
        with communicator:
            for turn in range(5):
                if turn == 3 and communicator.rank == size - 1:
                    raise KeyError("no such column")
                communicator.all_reduce(array, "gradients")

    *others, last = run(size, body, TIMEOUT_SECS)
    assert isinstance(last, KeyError)
    for outcome in others:
        assert isinstance(outcome, PeerLostError)
        assert "all_reduce 'gradients'" in str(outcome)
    assert any("no such column" in str(outcome) for outcome in others)


def check_a_rank_that_never_comes(run: Run, size: int) -> None:
    """The wait ends at the deadline; operation, size, step and rank are named (CO-12)."""

    def body(communicator: Communicator) -> str:
        communicator.barrier("start")
        communicator.step = 1841
        if communicator.rank == size - 1:
            return str(communicator.members[-1])
        communicator.all_reduce(np.zeros(500_000), "bucket 3")
        return ""

    *others, name = run(size, body, SHORT_SECS)
    assert all(isinstance(outcome, CollectiveError) for outcome in others)
    late = [outcome for outcome in others if isinstance(outcome, CollectiveTimeoutError)]
    assert late
    assert any(
        "all_reduce 'bucket 3' (4.0 MB, step 1841) timed out after " in str(outcome)
        for outcome in late
    )
    assert any(name in str(outcome) for outcome in others)


def check_a_rank_that_leaves(run: Run, size: int) -> None:
    """A rank that is done too early is lost to the others, at once."""

    def body(communicator: Communicator) -> None:
        for turn in range(5):
            if turn == 2 and communicator.rank == 0:
                communicator.close()
                return
            communicator.all_reduce(np.zeros(20_000), "gradients")

    for outcome in run(size, body, TIMEOUT_SECS)[1:]:
        assert isinstance(outcome, PeerLostError)


def check_a_failed_communicator_stays_failed(run: Run, size: int) -> None:
    def body(communicator: Communicator) -> None:
        with pytest.raises(MismatchError):
            communicator.all_reduce(np.zeros(1 + communicator.rank), "uneven")
        for _ in range(2):
            with pytest.raises(MismatchError, match="unusable since"):
                communicator.barrier("after")

    results_of(run, size, body)


def check_closing_ends_a_wait(run: Run, size: int) -> None:
    """Rank 0 closes while an operation that it started waits for the others."""

    def body(communicator: Communicator) -> None:
        communicator.barrier("start")
        if communicator.rank == 0:
            handle = communicator.start_all_reduce(np.zeros(10), "alone")
            communicator.close()
            with pytest.raises(ClosedError):
                handle.wait()

    results_of(run, size, body)


_MATRIX = [
    *(
        (name, check, (dtype, op))
        for name, check in (
            ("all_reduce", check_all_reduce),
            ("arrays of the communicator", check_arrays_of_the_communicator),
            ("reduce_scatter", check_reduce_scatter),
        )
        for dtype in DTYPES
        for op in Op
    ),
    *(
        (name, check, (dtype,))
        for name, check in (
            ("all_gather", check_all_gather),
            ("broadcast", check_broadcast),
            ("send and receive", check_send_and_receive),
        )
        for dtype in DTYPES
    ),
    *(
        ("equal bits", check_equal_bits, (dtype, op))
        for dtype in ("float16", "float32", "float64")
        for op in Op
    ),
]
_SINGLE = [
    ("shapes", check_shapes),
    ("a name may change its length", check_a_name_may_change_its_length),
    ("started operations run in order", check_started_operations_run_in_order),
    ("started operations come again", check_started_operations_come_again),
    ("an array that is on its way", check_an_array_that_is_on_its_way),
    ("a call waits for those started before", check_a_call_waits_for_those_started_before),
    ("barrier", check_barrier),
    ("split", check_split),
    ("parts of parts", check_parts_of_parts),
    ("members", check_members),
    ("refused arrays do no harm", check_refused_arrays_do_no_harm),
    ("ranks out of range are refused", check_ranks_out_of_range_are_refused),
    ("many calls of one name", check_many_calls_of_one_name),
    ("closed", check_closed),
]
_LOSSES = [
    ("a rank that raises", check_a_rank_that_raises),
    ("a rank that never comes", check_a_rank_that_never_comes),
    ("a rank that leaves", check_a_rank_that_leaves),
    ("a failed communicator stays failed", check_a_failed_communicator_stays_failed),
    ("closing ends a wait", check_closing_ends_a_wait),
    ("another message than expected", check_another_message_than_expected),
    *(("a skipped call", check_skipped_call, (n,)) for n in (8, 1 << 12, 1 << 21)),
    ("a skipped call of an array of the communicator", check_skipped_call, (1 << 20, True)),
    *(("a skipped call, started", check_skipped_call, (n, True, True)) for n in (8, 1 << 20)),
    *(("another length", check_other_length, (n,)) for n in (8, 1 << 12, 1 << 21)),
]


def results_of(run: Run, size: int, body: Body) -> list[Any]:
    """Run ``body`` and return the results, raising the first error."""
    outcomes = run(size, body, TIMEOUT_SECS)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def mismatch_among(outcomes: list[Any]) -> str:
    """All ranks have ended with an error; return the text of a mismatch among them."""
    assert all(isinstance(outcome, CollectiveError) for outcome in outcomes), outcomes
    return next(str(outcome) for outcome in outcomes if isinstance(outcome, MismatchError))


def assert_same(arrays: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Equal in length, dtype and every element."""
    assert len(arrays) == len(expected)
    for array, right in zip(arrays, expected, strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_array_equal(array, right)
