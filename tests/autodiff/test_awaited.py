"""Rows that lie elsewhere: recorded when they are asked for, fetched when somebody looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import (
    Awaited,
    GradientTape,
    Tensor,
    TensorLike,
    backward,
    distinct_rows,
    no_grad,
)

VALUES = np.arange(10.0).reshape(5, 2)
ROWS = np.array([[3, 1], [3, 0]])


class FarTable(TensorLike):
    """A table whose rows are fetched; `num_fetches` says how often.

    Args:
        tells_distinct: Whether it says which rows it has fetched.
    """

    def __init__(self, tells_distinct: bool = False) -> None:
        self.tells_distinct = tells_distinct
        self.leaf = Tensor(np.broadcast_to(np.zeros(()), VALUES.shape), True, owner=self)
        self.num_fetches = 0

    def tensor(self) -> Tensor:
        return self.leaf

    def read_rows(self, rows: Any) -> tuple[Tensor, Awaited]:
        def fetch() -> Any:
            self.num_fetches += 1
            return VALUES[rows]

        distinct = distinct_rows(rows.reshape(-1)) if self.tells_distinct else None
        return self.leaf, Awaited((*rows.shape, 2), VALUES.dtype, fetch, distinct)


@pytest.fixture
def table() -> FarTable:
    return FarTable()


def test_rows_are_fetched_once_when_somebody_looks(table: FarTable) -> None:
    found = np.take(table, ROWS, axis=0)
    known = (found.shape, found.dtype, found.ndim, found.size, len(found))
    assert known == ((2, 2, 2), np.float64, 3, 8, 2)
    assert table.num_fetches == 0
    np.testing.assert_array_equal(found.numpy(), VALUES[ROWS])
    np.testing.assert_array_equal((found + found).numpy(), 2 * VALUES[ROWS])
    assert table.num_fetches == 1


@pytest.mark.host  # a card asks for the rows of each table at once
def test_their_gradient_is_that_of_rows_at_hand(table: FarTable) -> None:
    here = Tensor(VALUES, requires_grad=True)
    gradients = [backward(np.sum(np.take(rows, ROWS, axis=0) ** 2)) for rows in (table, here)]
    far, near = gradients[0][table.leaf], gradients[1][here]
    np.testing.assert_array_equal(far.to_dense(), near.to_dense())


@pytest.mark.host  # a card asks for the rows of each table at once
def test_who_has_found_out_which_rows_are_distinct_spares_it_the_gradient() -> None:
    told, untold = FarTable(tells_distinct=True), FarTable()
    gradients = [
        backward(np.sum(np.take(table, ROWS, axis=0) ** 3))[table.leaf] for table in (told, untold)
    ]
    for gradient in gradients:
        twice = gradient.with_values(2 * gradient.values).unique()
        np.testing.assert_array_equal(twice.indices, [0, 1, 3])
        np.testing.assert_array_equal(twice.values, 2 * gradients[1].unique().values)


def test_they_are_recorded_where_they_were_asked_for(table: FarTable) -> None:
    with no_grad():
        found = np.take(table, ROWS, axis=0)
    assert not (found * 2.0).requires_grad
    recorded = np.take(table, ROWS, axis=0)
    with no_grad():
        recorded.numpy()
    assert recorded.requires_grad


@pytest.mark.host  # a card asks for the rows of each table at once
def test_a_tape_notes_the_table_and_not_its_rows(table: FarTable) -> None:
    with GradientTape() as tape:
        loss = np.sum(np.take(table, ROWS, axis=0))
    assert tape.watched_variables() == (table,)
    np.testing.assert_array_equal(tape.gradient(loss, table.leaf).to_dense()[:, 0], [1, 1, 0, 2, 0])
