"""The max-pool behind a convolution, and its way back, a row of pools at a time.

Both halves take the cells of a row of pools, (cells of a pool, columns, batch, channels), from the
convolution's product, or leave them to the next one. Their work is one pass where a loop is
compiled for it. Else NumPy makes it in several, on arrays that are made once for all rows: memory
that is new in each row would begin outside of the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from ..kernels import compiled_loop
from .numerics import keep_where
from .pooling import max_of_cells
from .tensor_like import Array
from .windows import as_runs

OfRow: TypeAlias = Callable[[int], None]
"""What is called with the number of each row of pools in turn."""

_MOST_COMPILED_CELLS = 16
"""The loop over the cells of a pool is written out for each number of them."""


def relu_max_rows(cells: Array, bias: Array, y: Array, winner: Array) -> OfRow:
    """The function that pools a row, of which the convolution has left the cells.

    It writes relu(maximum + bias) to `y[:, row]`, and to `winner[row]` the index of the first cell
    that has the maximum, or the number of cells where relu lets nothing through.

    Bias and relu rise with their argument and are the same for all cells of a pool. So they come
    after the maximum, on a quarter of the elements.

    Args:
        cells: It may be overwritten.
        bias: (channels,).
        y: (batch, rows, columns, channels).
        winner: (rows, columns, batch, channels), whole numbers.
    """
    if len(cells) <= _MOST_COMPILED_CELLS:
        loop = compiled_loop("relu_max", cells, bias, y, constants=(len(cells),))
        if loop is not None:
            return partial(loop, cells, bias, y, winner)
    best, zeros = np.empty_like(cells[0]), np.zeros_like(cells[0])
    biases = zeros + bias  # as a whole row they are added several times faster than broadcast
    shut, marks = np.empty(best.shape, bool, like=best), np.empty_like(winner[0])
    write_maximum = _maximum_of_four if len(cells) == 4 else partial(partial, max_of_cells)
    find = write_maximum(cells, best)
    is_shut, num_cells = shut.view(np.uint8), winner.dtype.type(len(cells))
    runs, rows = as_runs(best, y.transpose(1, 2, 0, 3))

    def pool(row: int) -> None:
        won = winner[row]
        find(won)
        np.add(best, biases, out=best)
        np.maximum(best, zeros, out=best)
        np.less_equal(best, zeros, out=shut)
        np.multiply(is_shut, num_cells, out=marks)
        np.maximum(won, marks, out=won)
        rows[row] = runs

    return pool


def _maximum_of_four(cells: Array, best: Array) -> Callable[[Array], None]:
    """As `max_of_cells` of four, which may be overwritten.

    They play two rounds, as in a cup: fewer passes over the bytes of the winner, longer ones.
    """
    left, right = cells[0::2], cells[1::2]
    first, last = left[0], left[1]
    right_won = np.empty(left.shape, bool, like=cells)
    of_first, of_last = right_won.view(np.uint8)[0], right_won.view(np.uint8)[1]
    last_won = np.empty(best.shape, bool, like=cells)
    was_last, two = last_won.view(np.uint8), np.uint8(2)
    ahead = np.empty(best.shape, np.uint8, like=cells)

    def find(winner: Array) -> None:
        np.greater(right, left, out=right_won)
        np.maximum(left, right, out=left)
        np.greater(last, first, out=last_won)
        np.maximum(first, last, out=best)
        # The index is of_first, or of_last + 2 where the last pair won: without a branch,
        # of_first + last_won * (of_last + 2 - of_first).
        np.add(of_last, two, out=ahead)
        np.subtract(ahead, of_first, out=ahead)
        np.multiply(ahead, was_last, out=ahead)
        np.add(of_first, ahead, out=winner)

    return find


def winner_rows(cells: Array, g: Array, winner: Array) -> OfRow:
    """The function that carries the gradient of a row back to its cells.

    It writes the elements of `g[:, row]` into those of `cells` that won, zeros into the others.

    Args:
        cells: Of any content.
        g: (batch, rows, columns, channels), contiguous.
        winner: What `relu_max_rows` has found.
    """
    loop = compiled_loop("to_winner", cells, g) if len(cells) <= _MOST_COMPILED_CELLS else None
    if loop is not None:
        return partial(loop, cells, g, winner)
    positions = np.arange(len(cells), dtype=winner.dtype, like=winner).reshape(-1, 1, 1, 1)
    own, is_winner = np.empty_like(cells[0]), np.empty(cells.shape, bool, like=cells)
    runs, rows = as_runs(own, g.transpose(1, 2, 0, 3))

    def spread(row: int) -> None:
        runs[...] = rows[row]
        np.equal(winner[row], positions, out=is_winner)
        keep_where(own, is_winner, out=cells)

    return spread
