"""The algorithms by themselves, and over links that are full all the time."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.collectives import Op, linked_communicator, part_bounds
from paceline.collectives.algorithms import tree_neighbours
from paceline.collectives.in_process import in_process_link_pair
from paceline.collectives.link import MIN_SEGMENT_BYTES
from paceline.collectives.members import local_members

LONG = 10**6 + 3


def on_narrow_links(size, body, swap_bytes):
    """Run ``body`` on ``size`` ranks whose links hold just what a link must hold."""
    ends = [{} for _ in range(size)]
    for low in range(size):
        for high in range(low + 1, size):
            ends[low][high], ends[high][low] = in_process_link_pair(MIN_SEGMENT_BYTES)
    for link in (link for links in ends for link in links.values()):
        link.segment_bytes, link.swap_bytes = MIN_SEGMENT_BYTES, swap_bytes
    results = [None] * size

    def run_rank(rank):
        with linked_communicator(local_members(size), rank, ends[rank].get, timeout_secs=20) as c:
            results[rank] = body(c)
            c.barrier("end")

    threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("swap_bytes", [0, 1 << 30])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("offset", [0, 1, "n-1", "n", LONG])
def test_all_reduce_of_every_size(size, offset, swap_bytes):
    """CO-08: the ring with 2, 3 and 5 ranks and sizes 0, 1, n−1, n and 10^6+3."""
    length = {"n-1": size - 1, "n": size}.get(offset, offset)

    def body(communicator):
        array = np.arange(length, dtype=np.float32) + communicator.rank
        communicator.all_reduce(array, "sum")
        return array

    expected = size * np.arange(length, dtype=np.float32) + size * (size - 1) / 2
    for array in on_narrow_links(size, body, swap_bytes):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_other_collectives_get_through_narrow_links(size):
    def body(communicator):
        rank = communicator.rank
        part = communicator.reduce_scatter(np.full(LONG, rank, np.int64), "reduced", Op.MAX)
        gathered = communicator.all_gather(np.full(LONG // (rank + 1), rank, np.int64), "gathered")
        array = np.full(LONG, rank, np.int64)
        communicator.broadcast(array, "broadcast", root=size - 1)
        return part, gathered, array

    for rank, (part, gathered, array) in enumerate(on_narrow_links(size, body, 0)):
        start, stop = part_bounds(LONG, size)[rank]
        assert len(part) == stop - start
        assert (part == size - 1).all()
        assert [len(g) for g in gathered] == [LONG // (r + 1) for r in range(size)]
        assert all((g == r).all() for r, g in enumerate(gathered))
        assert (array == size - 1).all()


@given(st.integers(1, 40), st.data())
def test_every_rank_but_the_root_is_its_parents_child(size, data):
    root = data.draw(st.integers(0, size - 1))
    family = [tree_neighbours(rank, size, root) for rank in range(size)]
    assert family[root][0] is None
    children = [child for _, children in family for child in children]
    assert sorted(children) == [rank for rank in range(size) if rank != root]
    assert all(rank in family[family[rank][0]][1] for rank in children)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_parts_follow_each_other_and_the_first_are_longer(length, num_parts):
    bounds = part_bounds(length, num_parts)
    lengths = [stop - start for start, stop in bounds]
    assert sum(lengths) == length
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1
    assert [start for start, _ in bounds[1:]] == [stop for _, stop in bounds[:-1]]
