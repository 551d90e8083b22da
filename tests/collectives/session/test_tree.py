"""Members that come together through rank 0 and hear of each other along a tree."""

import signal
import threading
from functools import partial

import numpy as np
import pytest

from paceline.collectives import Member, PeerLostError
from paceline.collectives.session.member_table import children_of, parent_of


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64, 100])
def test_the_tree_holds_every_rank_once_and_few_neighbours(size):
    for rank in range(size):
        children = children_of(rank, size)
        assert len(children) <= size.bit_length()
        assert all(parent_of(child) == rank for child in children)
    assert sorted(c for rank in range(size) for c in children_of(rank, size)) == [*range(1, size)]


def reduce_all(ring, run_at_once):
    arrays = [np.ones(1000) for _ in ring]
    run_at_once([partial(c.all_reduce, a, "x") for c, a in zip(ring, arrays, strict=True)])
    return [array[0] for array in arrays]


@pytest.mark.parametrize("size", [2, 5])
def test_the_address_of_rank_0_is_enough(loopback, connect, run_at_once, size):
    """As torchrun over several nodes tells it."""
    [first] = loopback(1)
    members = [first, *(Member(rank, f"worker {rank}") for rank in range(1, size))]
    ring = connect(members)
    assert reduce_all(ring, run_at_once) == [size] * size
    listening = {member.address for member in ring[size - 1].members}
    assert len(listening) == size
    assert "" not in listening


def test_a_rank_that_is_there_twice_is_found_without_addresses(loopback, connect, run_at_once):
    [first] = loopback(1)
    members = [first, Member(1, "worker 1")]
    ring = connect(members)
    [second] = connect(members, [1], start_timeout_secs=1.0)
    assert "is already there as another process" in str(second)
    assert reduce_all(ring, run_at_once) == [2, 2]


def test_rank_0_may_start_anew_while_others_wait(loopback, connect_beside, start_process):
    """The new process is told of those, too, who are not its children: rank 3 is below 2."""
    members = loopback(5)
    wait = connect_beside(members, [1, 2, 3], start_timeout_secs=60.0)
    first = start_process(members, 0, log=True, report_secs=0.3)
    while not first.hear_log().startswith(f"waiting for {members[4]}: "):
        pass
    first.end()
    second, last = (start_process(members, rank) for rank in (0, 4))
    for process in (second, last):
        process.expect("started")
        process.expect("in")
    assert [communicator.size for communicator in wait()] == [5, 5, 5]


def test_a_loss_is_named_by_those_who_are_far_from_it_in_the_tree(
    loopback, connect_beside, start_process, run_at_once
):
    """Rank 5 is a leaf below 4, and has a session with none of 1, 2, 3 and 6."""
    members = loopback(7)
    wait = connect_beside(members, [0, 1, 2, 3, 4, 6])
    process = start_process(members, 5)
    process.expect("started")
    process.expect("in")
    ring = wait()
    process.signal(signal.SIGKILL)
    process.wait()
    for failure, _ in run_at_once([partial(c.barrier, "x") for c in ring]):
        assert isinstance(failure, PeerLostError)
        assert f"lost {members[5]}" in str(failure)


def test_a_goodbye_reaches_those_who_are_far_from_it_in_the_tree(loopback, connect, run_at_once):
    members = loopback(7)
    ring = connect(members)
    ring[5].close()
    others = [c for c in ring if c is not ring[5]]
    for failure, _ in run_at_once([partial(c.barrier, "x") for c in others]):
        assert isinstance(failure, PeerLostError)
        assert f"{members[5]} has left" in str(failure)


def test_threads_grow_with_the_tree_and_not_with_the_number_of_members(loopback, connect):
    """A process of each member has three threads a session; a full mesh had 14 sessions each."""
    before = threading.active_count()
    size = 15
    connect(loopback(size))
    num_sessions = 2 * (size - 1)  # both ends of each edge are in this process
    assert threading.active_count() - before < 5 * num_sessions
