"""Memory that ranks of one host share: who gets it, who does not, and what is checked."""

import gc
import os
import struct
import threading

import numpy as np
import pytest

from paceline.collectives import MismatchError, threads
from paceline.collectives.sealed_memory import unavailable
from paceline.collectives.shared_arrays import SharedArrays

pytestmark = pytest.mark.skipif(bool(unavailable()), reason="no such memory on this platform")
FLOAT32 = np.dtype(np.float32)


def together(size, body):
    """What `body(rank, gather)` returns on each of so many threads."""
    rows, meeting, found = [[b""] * size for _ in range(2)], threading.Barrier(size), [None] * size

    def run(rank):
        turns = iter(rows)

        def gather(row):
            table = next(turns)
            table[rank] = row
            meeting.wait()
            return list(table)

        found[rank] = body(rank, gather)

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return found


def shared(size, change=lambda rank, row: row):
    def body(rank, gather):
        arrays = SharedArrays(rank)
        array = arrays.make(1000, FLOAT32, lambda row: gather(change(rank, row)))
        return arrays, array

    return together(size, body)


def test_each_rank_has_its_own_array_and_sees_those_of_the_others():
    made = shared(3)
    for rank, (_, array) in enumerate(made):
        assert not array.any()
        array[:] = rank + 1
    for arrays, array in made:
        found = arrays.find(array)
        assert [theirs.max() for theirs in found.all_ranks] == [1, 2, 3]


def another_process(row):
    return struct.pack("<q", 2**22 + 1) + row[8:]


def another_file(row):
    with open(os.devnull) as file:
        return row[:8] + struct.pack("<q", file.fileno()) + row[16:]


def another_secret(row):
    return row[:-1] + bytes([row[-1] ^ 1])


@pytest.mark.parametrize(
    "change",
    [another_process, another_file, another_secret, lambda row: bytes(len(row))],
    ids=["another process", "another file", "another secret", "no offer"],
)
def test_where_one_rank_cannot_be_reached_all_have_memory_of_their_own(change):
    def of_the_last(rank, row):
        return change(row) if rank == 2 and len(row) > 1 else row

    for arrays, array in shared(3, of_the_last):
        assert not array.any()
        assert arrays.find(array) is None


def test_what_nobody_holds_is_let_go():
    ((arrays, array), _) = shared(2)
    address = array.__array_interface__["data"][0]
    assert address in arrays._by_address
    del array
    gc.collect()
    assert address not in arrays._by_address


@pytest.mark.parametrize(
    "changed", [lambda a: a[:-1], lambda a: a.view(np.int32), lambda a: a.copy()]
)
def test_another_array_at_the_same_place_is_not_taken_for_it(changed):
    ((arrays, array), _) = shared(2)
    assert arrays.find(array) is not None
    assert arrays.find(changed(array)) is None


@pytest.mark.parametrize("num_good", [0, 2])
def test_d_26_a_rank_that_gives_an_array_of_its_own_is_found_out(num_good):
    communicators, errors = threads(2, timeout_secs=10), [None, None]

    def run(rank):
        communicator = communicators[rank]
        made = communicator.empty((100_000,), np.float32, "bucket")
        for _ in range(num_good):
            communicator.start_all_reduce(made, "gradients").wait()
        with pytest.raises(MismatchError) as raised:
            communicator.start_all_reduce(made if rank else made.copy(), "gradients").wait()
        errors[rank] = str(raised.value)

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    for communicator in communicators:
        communicator.close()
    for error in errors:
        assert "float32[100000], op sum, shared array 1" in error


def test_an_error_between_the_two_meetings_leaves_nobody_waiting():
    communicators, outcomes = threads(2, timeout_secs=20), [None, None]

    def run(rank):
        communicator = communicators[rank]
        made = communicator.empty((100_000,), np.float32, "bucket")
        made[:] = np.finfo(np.float32).max
        try:
            with communicator, np.errstate(over="raise" if rank else "ignore"):
                for _ in range(2):
                    communicator.all_reduce(made, "gradients")
        except Exception as error:
            outcomes[rank] = error

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert isinstance(outcomes[1], FloatingPointError)
    assert "FloatingPointError" in str(outcomes[0])
