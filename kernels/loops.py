"""The loops, in plain Python: numba compiles them, and without it they run as well, slowly.

They call no NumPy function and allocate nothing that grows with their arrays. Inner loops go along
contiguous memory and choose by `a if … else b`, so that they become vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Loop: TypeAlias = Callable[..., None]


def relu_max(num_cells: int) -> Loop:
    """relu(max + bias) of pools of so many cells; see `autodiff/pooling.py`."""

    def loop(cells: Any, bias: Any, y: Any, winner: Any, row: int) -> None:
        zero = bias.dtype.type(0)
        _, columns, batch, channels = cells.shape
        for j in range(columns):
            for n in range(batch):
                for c in range(channels):
                    best = cells[0, j, n, c]
                    won = 0
                    for cell in range(1, num_cells):
                        value = cells[cell, j, n, c]
                        more = value > best
                        won = cell if more else won
                        # What is no number stays: nothing is greater, and it differs from itself.
                        best = value if more | (value != value) else best
                    best = best + bias[c]
                    shut = best <= zero
                    y[n, row, j, c] = zero if shut else best
                    winner[row, j, n, c] = num_cells if shut else won

    return loop


def to_winner(g: Any, winner: Any, row: int, cells: Any) -> None:
    """Each element of a row of `g` in the cell that won, zeros in the others."""
    zero = g.dtype.type(0)
    num_cells, columns, batch, channels = cells.shape
    for j in range(columns):
        for cell in range(num_cells):
            for n in range(batch):
                for c in range(channels):
                    won = winner[row, j, n, c] == cell
                    cells[cell, j, n, c] = g[n, row, j, c] if won else zero


def keep_positive(g: Any, y: Any, out: Any) -> None:
    """`g` where `y` is positive, else zero."""
    zero = g.dtype.type(0)
    for i in range(g.size):
        out[i] = g[i] if y[i] > zero else zero


LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "keep_positive": (keep_positive, "void(float[::1], float[::1], float[::1])"),
    "relu_max": (
        relu_max,
        "void(float[:,:,:,::1], float[::1], float[:,:,:,::1], u1[:,:,:,::1], i8)",
    ),
    "to_winner": (to_winner, "void(float[:,:,:,::1], u1[:,:,:,::1], i8, float[:,:,:,::1])"),
}
"""Each loop by its name, or the function that makes it of a constant, and the types of its
arguments; `float` is float32 or float64."""
