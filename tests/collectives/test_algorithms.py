"""The algorithms by themselves, and over links that are full all the time."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.collectives import Op, linked_communicator, part_bounds
from paceline.collectives.algorithms import halving_all_reduce, prefers_halves, tree_neighbours
from paceline.collectives.calls import Kind, pack_header
from paceline.collectives.in_process import in_process_link_pair
from paceline.collectives.link import MIN_SEGMENT_BYTES, UNLIMITED_BYTES
from paceline.collectives.members import local_members
from paceline.collectives.peers import Peers, World
from paceline.collectives.small_all_reduce import partners

LONG = 10**6 + 3


def narrow_links(size, swap_bytes=0):
    """For each of ``size`` ranks its ends of links that hold just what a link must hold."""
    ends = [{} for _ in range(size)]
    for low in range(size):
        for high in range(low + 1, size):
            ends[low][high], ends[high][low] = in_process_link_pair(MIN_SEGMENT_BYTES)
    for link in (link for links in ends for link in links.values()):
        link.segment_bytes, link.swap_bytes = MIN_SEGMENT_BYTES, swap_bytes
    return ends


def on_narrow_links(size, body, swap_bytes, asked=None):
    """Run ``body`` on the communicators of ``size`` ranks; note which links each ``asked`` for."""
    ends, asked = narrow_links(size, swap_bytes), asked or [set() for _ in range(size)]

    def run_rank(rank):
        def connect(peer):
            asked[rank].add(peer)
            return ends[rank][peer]

        with linked_communicator(local_members(size), rank, connect, timeout_secs=20) as c:
            result = body(c)
            c.barrier("end")
            return result

    return on_threads(size, run_rank)


def on_narrow_peers(size, body):
    """Run ``body`` on what algorithms see of ``size`` ranks."""
    ends = narrow_links(size)

    def run_rank(rank):
        world = World(local_members(size), rank, ends[rank].get, None, 0.0, None)
        return body(Peers(world, range(size), 20.0))

    return on_threads(size, run_rank)


def on_threads(size, run_rank):
    """What ``run_rank`` returns for each of ``size`` ranks, run at once."""
    results = [None] * size

    def run(rank):
        results[rank] = run_rank(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
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


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("with_nothing", [(), (0, 1), (1, 3)])
def test_a_ring_of_links_with_different_segments_and_windows_comes_to_an_end(size, with_nothing):
    """Who passes on parts of others can send nothing ahead of its own."""
    ends = [{} for _ in range(size)]
    for low in range(size):
        for high in range(low + 1, size):
            segment_bytes = MIN_SEGMENT_BYTES * (4 if low % 2 == 0 else 1)
            pair = in_process_link_pair(segment_bytes)
            ends[low][high], ends[high][low] = pair
            for link in pair:
                link.segment_bytes = segment_bytes
                link.window_bytes = segment_bytes if low % 2 else UNLIMITED_BYTES

    def run_rank(rank):
        members, own_length = local_members(size), 0 if rank in with_nothing else LONG - rank
        with linked_communicator(members, rank, ends[rank].get, timeout_secs=20) as c:
            array = np.full(LONG, rank, np.float32)
            c.all_reduce(array, "sum")
            gathered = c.all_gather(np.full(own_length, rank, np.int64), "gathered")
            c.barrier("end")
        return array, gathered

    for array, gathered in on_threads(size, run_rank):
        assert (array == size * (size - 1) / 2).all()
        for rank, part in enumerate(gathered):
            assert len(part) == (0 if rank in with_nothing else LONG - rank)
            assert (part == rank).all()


@pytest.mark.parametrize("length", [0, 1, 7, 4_099, LONG])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_halves_give_what_a_ring_gives(size, length):
    """All ranks to the bit the same; the numbers are small, so that each order gives one sum."""

    def body(peers):
        array = np.arange(length, dtype=np.float32) + peers.rank
        header = pack_header(Kind.DATA, 0, 1, bytes(16), array.nbytes)
        halving_all_reduce(peers, header, array, np.add)
        return array

    expected = size * np.arange(length, dtype=np.float32) + size * (size - 1) / 2
    for array in on_narrow_peers(size, body):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("num_bytes", "size", "expected"),
    [
        (1 << 20, 2, False),
        (256 << 10, 8, False),
        (1 << 20, 64, True),
        (4 << 20, 512, True),
        (64 << 20, 64, False),  # its parts hide the hops of a ring
        (1 << 20, 33, False),  # the 33rd rank would send and get back all of it
        (1 << 20, 500, True),
    ],
)
def test_halves_are_for_arrays_of_middle_length_among_many_ranks(num_bytes, size, expected):
    assert prefers_halves(num_bytes, size) == expected


@given(st.integers(2, 40))
def test_partners_are_mutual_and_each_has_heard_of_all_in_the_end(size):
    partners_of = [partners(rank, size) for rank in range(size)]
    num_active = sum(1 for exchanges in partners_of if exchanges)
    heard = {rank: {rank, rank + num_active} for rank in range(num_active)}  # with its guest
    for number in range(max(map(len, partners_of))):
        groups = {rank: partners_of[rank][number] for rank in heard}
        assert all(rank in groups[peer] for rank, group in groups.items() for peer in group)
        heard = {rank: heard[rank].union(*map(heard.get, groups[rank])) for rank in heard}
    assert all(everyone >= set(range(size)) for everyone in heard.values())


@pytest.mark.parametrize("size", [5, 8, 13])
def test_a_rank_needs_few_links(size):
    """Two for each doubling of the number of ranks, whatever is called."""
    asked = [set() for _ in range(size)]

    def body(communicator):
        for length in (8, 50_000):
            array = np.ones(length)
            communicator.all_reduce(array, f"sum of {length}")
            communicator.reduce_scatter(array, f"parts of {length}")
            communicator.all_gather(array, f"all {length}")
            for root in range(size):
                communicator.broadcast(array, f"from {root}", root)
        communicator.split(communicator.rank % 2, 0).barrier("parts")
        communicator.barrier("end")

    on_narrow_links(size, body, 0, asked)
    limit = 2 * (size - 1).bit_length()
    assert max(map(len, asked)) <= limit + 2  # parts have neighbours of their own


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
