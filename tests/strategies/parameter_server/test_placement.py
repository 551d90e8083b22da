"""Which server gets what: partitioners, placements, layouts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.strategies import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
)
from paceline.strategies.parameter_server.placement import (
    Layout,
    Piece,
    VariablePlacer,
    cut_rows,
    placement_of,
)

F32 = np.dtype(np.float32)


def placer(num_servers, placement="round_robin", partitioner=None):
    return VariablePlacer(num_servers, placement_of(placement), partitioner)


def servers_of(layout):
    return [part.server for part in layout.parts]


@pytest.mark.parametrize(
    ("partitioner", "shape", "expected"),
    [
        (FixedShardsPartitioner(3), (10, 4), 3),
        (FixedShardsPartitioner(3), (2, 4), 3),  # cut into two, see cut_rows
        (MinSizePartitioner(64, max_shards=8), (10, 4), 2),  # 160 bytes
        (MinSizePartitioner(64, max_shards=8), (2, 4), 1),
        (MinSizePartitioner(1, max_shards=4), (1000, 4), 4),
        (MaxSizePartitioner(64), (10, 4), 3),  # 4 rows of 16 bytes each
        (MaxSizePartitioner(1), (10, 4), 10),
        (MaxSizePartitioner(64, max_shards=2), (10, 4), 2),
        (MaxSizePartitioner(1 << 20), (), 1),
        (MaxSizePartitioner(1 << 20), (0, 4), 1),
    ],
)
def test_a_partitioner_counts_pieces(partitioner, shape, expected):
    assert partitioner.num_shards(shape, F32) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedShardsPartitioner(0),
        lambda: MinSizePartitioner(0),
        lambda: MinSizePartitioner(1, max_shards=0),
        lambda: MaxSizePartitioner(0),
        lambda: MaxSizePartitioner(1, max_shards=0),
    ],
)
def test_a_partitioner_without_room_is_refused(make):
    with pytest.raises(ValueError, match="must be at least 1, it is 0"):
        make()


@given(num_rows=st.integers(0, 200), num_shards=st.integers(1, 50))
def test_rows_are_cut_evenly_without_gaps(num_rows, num_shards):
    ranges = cut_rows(num_rows, num_shards)
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(num_rows))
    lengths = [stop - start for start, stop in ranges]
    assert max(lengths) - min(lengths) <= 1
    assert len(ranges) == max(1, min(num_rows, num_shards))


def test_st_41_round_robin_goes_from_server_to_server():
    plan = placer(3)
    names = ["a", "b", "c", "d"]
    assert [servers_of(plan.lay_out(n, (4,), F32, None)) for n in names] == [[0], [1], [2], [0]]


def test_by_size_fills_the_emptiest():
    plan = placer(2, "by_size")
    sizes = [8, 2, 2, 2, 4]
    assert [servers_of(plan.lay_out(str(n), (n,), F32, None)) for n in sizes] == [
        [0], [1], [1], [1], [1],
    ]  # fmt: skip


def test_a_function_places_each_piece():
    seen = []

    def place(piece, bytes_placed):
        seen.append((piece, bytes_placed))
        return len(bytes_placed) - 1

    plan = placer(2, place, FixedShardsPartitioner(2))
    assert servers_of(plan.lay_out("table", (5, 3), F32, None)) == [1, 1]
    assert seen == [
        (Piece("table", (3, 3), F32), (0, 0)),
        (Piece("table", (2, 3), F32), (0, 36)),
    ]


def test_a_function_that_names_no_server_is_refused():
    with pytest.raises(ValueError, match="put 'w' on parameter server 2; there are 2"):
        placer(2, lambda piece, placed: 2).lay_out("w", (), F32, None)


def test_a_placement_of_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="placement is 'best'; give 'round_robin', 'by_size'"):
        placement_of("best")


def test_what_is_used_together_lies_together_under_numbers_of_its_own():
    plan = placer(2, partitioner=FixedShardsPartitioner(3))
    table = plan.lay_out("table", (7, 2), F32, None)
    plan.lay_out("other", (4,), F32, None)
    slot = plan.lay_out("adam/table/m", (7, 2), F32, table)
    place = [(p.server, p.start, p.stop) for p in table.parts]
    assert [(p.server, p.start, p.stop) for p in slot.parts] == place
    ids = [part.id for layout in (table, slot) for part in layout.parts]
    assert len(set(ids)) == len(ids)


def test_a_scalar_is_one_row():
    layout = placer(2, partitioner=FixedShardsPartitioner(3)).lay_out("s", (), F32, None)
    assert [(p.start, p.stop) for p in layout.parts] == [(0, 1)]
    array = np.array(5.0)
    assert layout.rows_of(array, layout.parts[0]) is array


def test_a_layout_travels_as_text():
    layout = placer(2, partitioner=FixedShardsPartitioner(3)).lay_out("t", (7, 2), F32, None)
    assert Layout.model_validate_json(layout.model_dump_json()) == layout
