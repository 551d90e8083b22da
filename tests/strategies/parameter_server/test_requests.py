"""A step, cut into what each server has to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.collectives.parameter_server import OptimizerSpec
from paceline.strategies import FixedShardsPartitioner
from paceline.strategies.parameter_server.placement import VariablePlacer, placement_of
from paceline.strategies.parameter_server.requests import (
    RowLookup,
    VariableChange,
    split_changes,
)

SGD = OptimizerSpec(rule="sgd")
ADAM = OptimizerSpec(rule="adam")
RATE = (0.1, 1)


def layouts(num_servers, num_shards, *shapes):
    placer = VariablePlacer(
        num_servers, placement_of("round_robin"), FixedShardsPartitioner(num_shards)
    )
    return [
        placer.lay_out(f"v{i}", shape, np.dtype(np.float32), None) for i, shape in enumerate(shapes)
    ]


@given(
    num_rows=st.integers(1, 30),
    num_shards=st.integers(1, 6),
    num_servers=st.integers(1, 3),
    data=st.data(),
)
def test_each_row_goes_to_the_server_that_has_it(num_rows, num_shards, num_servers, data):
    (layout,) = layouts(num_servers, num_shards, (num_rows, 2))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, num_rows - 1)))), np.int64)
    gradient = np.stack([rows, -rows], axis=1).astype(np.float32)
    shares = split_changes([VariableChange(layout, SGD, RATE, (), gradient, rows)], num_servers)
    there = {part.id: part for part in layout.parts}
    seen = []
    for server, share in enumerate(shares):
        for update, numbers, values in zip(
            share.updates, share.arrays[::2], share.arrays[1::2], strict=True
        ):
            part = there[update.id]
            assert part.server == server
            assert update.rows
            assert (values[:, 0] == numbers + part.start).all()
            seen += (numbers + part.start).tolist()
    assert sorted(seen) == rows.tolist()


def test_a_whole_gradient_is_cut_as_its_variable_is():
    (layout,) = layouts(2, 3, (7, 2))
    gradient = np.arange(14, dtype=np.float32).reshape(7, 2)
    shares = split_changes([VariableChange(layout, SGD, RATE, (), gradient)], 2)
    by_id = {
        update.id: array
        for share in shares
        for update, array in zip(share.updates, share.arrays, strict=True)
    }
    parts = [by_id[part.id] for part in layout.parts]
    np.testing.assert_array_equal(np.concatenate(parts), gradient)


def test_variables_of_one_optimizer_share_what_is_said_of_it():
    a, b, c, m = layouts(1, 1, (2,), (3,), (), (2,))
    ones = [np.ones(layout.shape, np.float32) for layout in (a, b, c)]
    changes = [
        VariableChange(a, ADAM, RATE, (m,), ones[0]),
        VariableChange(b, SGD, RATE, (), ones[1]),
        VariableChange(c, SGD, RATE, (), ones[2]),
    ]
    (share,) = split_changes(changes, 1)
    assert share.optimizers == [ADAM, SGD]
    assert [update.optimizer for update in share.updates] == [0, 1, 1]
    assert share.updates[0].slots == (m.parts[0].id,)
    assert share.arrays[2].shape == ()


@pytest.mark.parametrize("rows", [[-1, 2], [0, 7]])
def test_a_row_that_is_not_there_is_named(rows):
    (layout,) = layouts(1, 1, (7, 2))
    with pytest.raises(IndexError, match=rf"'v0' has no row {rows[0] if rows[0] < 0 else 7}; it"):
        RowLookup(layout, np.array(rows))
