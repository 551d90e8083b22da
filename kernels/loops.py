"""The loops, in plain Python: numba compiles them, and without it they run as well, slowly.

They allocate nothing that grows with their arrays. Inner loops go along
contiguous memory and choose by `a if … else b`, so that they become vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Loop: TypeAlias = Callable[..., None]

U = np.uintp


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


def to_winner(cells: Any, g: Any, winner: Any, row: int) -> None:
    """Each element of a row of `g` in the cell that won, zeros in the others."""
    zero = g.dtype.type(0)
    num_cells, columns, batch, channels = cells.shape
    for j in range(columns):
        for cell in range(num_cells):
            for n in range(batch):
                for c in range(channels):
                    won = winner[row, j, n, c] == cell
                    cells[cell, j, n, c] = g[n, row, j, c] if won else zero


def take_widest_vectors() -> None:
    """Where a compiled loop calls it, the loop uses the widest vectors that the processor has.

    Else the compiler takes half of AVX-512's, for the sake of processors that run more slowly with
    them; what is compiled here stands beside OpenBLAS's products, which use them too.
    """


def conv_relu_max(
    height: Any, width: Any, channels: Any, down: Any, right: Any, rows: Any, columns: Any, n: int
) -> Loop:
    """relu(max + bias) of pools over a convolution; see `autodiff/direct_convolution.py`.

    Everything that is known of a layer is a constant, so that the loops over products and cells are
    written out, and what is left is one loop over the filters with all sums in registers. Indices
    are unsigned: of others each is looked at, whether it counts from the end.

    Args:
        height, width, channels: Whole numbers: of the convolution's windows.
        down, right: From one window to the next.
        rows, columns: Of a pool.
        n: How many filters there are.
    """
    num_products, num_cells = height * width * channels, rows * columns
    down, right, width, channels = U(down), U(right), U(width), U(channels)
    rows, columns = U(rows), U(columns)

    def loop(y: Any, images: Any, weights: Any, bias: Any, winner: Any) -> None:
        take_widest_vectors()
        zero = bias.dtype.type(0)
        for e in range(y.shape[0]):
            for i in range(y.shape[1]):
                for j in range(y.shape[2]):
                    for f in range(n):
                        best = zero
                        won = np.int32(0)  # as wide as a float32: both are chosen by one mask
                        for cell in range(num_cells):
                            top = (U(i) * rows + U(cell) // columns) * down
                            left = (U(j) * columns + U(cell) % columns) * right
                            value = zero
                            for p in range(num_products):
                                h = top + U(p) // (width * channels)
                                w = left + U(p) // channels % width
                                value += images[U(e), h, w, U(p) % channels] * weights[p * n + f]
                            more = (value > best) | (cell == 0)
                            won = np.int32(cell) if more else won
                            # What is no number stays, as in `relu_max`.
                            best = value if more | (value != value) else best
                        best = best + bias[f]
                        shut = best <= zero
                        y[e, i, j, f] = zero if shut else best
                        winner[e, i, j, f] = np.int32(num_cells) if shut else won

    return loop


def conv_from_winner(
    height: Any, width: Any, channels: Any, down: Any, right: Any, rows: Any, columns: Any, n: int
) -> Loop:
    """The gradients of weights and bias of `conv_relu_max`, whose numbers these are.

    `sums` has a line for each product of a window and one for the bias, `part` is as large. The sum
    of an example is made apart, since long sums in one precision lose digits.
    """
    num_products, num_cells = height * width * channels, rows * columns
    down, right, width, channels = U(down), U(right), U(width), U(channels)
    rows, columns = U(rows), U(columns)

    def loop(g: Any, images: Any, sums: Any, part: Any, winner: Any) -> None:
        take_widest_vectors()
        zero = g.dtype.type(0)
        for e in range(g.shape[0]):
            part[:] = zero
            for i in range(g.shape[1]):
                for j in range(g.shape[2]):
                    for f in range(n):
                        own = g[e, i, j, f]
                        won = np.int32(winner[e, i, j, f])
                        for p in range(num_products):
                            total = part[p * n + f]
                            for cell in range(num_cells):
                                top = (U(i) * rows + U(cell) // columns) * down
                                left = (U(j) * columns + U(cell) % columns) * right
                                h = top + U(p) // (width * channels)
                                w = left + U(p) // channels % width
                                passed = own if won == np.int32(cell) else zero
                                total += images[U(e), h, w, U(p) % channels] * passed
                            part[p * n + f] = total
                        passed = own if won != np.int32(num_cells) else zero
                        part[num_products * n + f] += passed
            for k in range(sums.size):
                sums[k] += part[k]

    return loop


def keep_positive(g: Any, y: Any) -> None:
    """Zeros into `g` where `y` is not positive.

    In place by name: of two arrays that may be one, the loop for one has no vector instructions.
    """
    zero = g.dtype.type(0)
    for i in range(g.size):
        g[i] = g[i] if y[i] > zero else zero


def max_pool(
    images: Any, y: Any, winner: Any, height: int, width: int, down: int, right: int
) -> None:
    """The maximum of windows, and which of their cells has it; see `autodiff/pooling.py`.

    Args:
        images, y, winner: (rows, columns, anything else).
        height, width: Of a window.
        down, right: From one window to the next.
    """
    rows, columns, length = y.shape
    for i in range(rows):
        for j in range(columns):
            for k in range(length):
                y[i, j, k] = images[i * down, j * right, k]
                winner[i, j, k] = 0
            for cell in range(1, height * width):
                h = i * down + cell // width
                w = j * right + cell % width
                for k in range(length):
                    value = images[h, w, k]
                    best = y[i, j, k]
                    more = value > best
                    winner[i, j, k] = cell if more else winner[i, j, k]
                    y[i, j, k] = value if more | (value != value) else best


def add_to_winner(
    images: Any, g: Any, winner: Any, height: int, width: int, down: int, right: int
) -> None:
    """Add each element of `g` to the cell of `images` that won; as `max_pool`."""
    zero = g.dtype.type(0)
    rows, columns, length = g.shape
    for i in range(rows):
        for cell in range(height * width):
            h = i * down + cell // width
            for j in range(columns):
                w = j * right + cell % width
                for k in range(length):
                    images[h, w, k] += g[i, j, k] if winner[i, j, k] == cell else zero


def add_rows(values: Any, table: Any, rows: Any) -> None:
    """Add each line of `values` to the line of `table` that `rows` names, one after the other."""
    for i in range(rows.size):
        row = rows[i]
        for k in range(values.shape[1]):
            table[row, k] += values[i, k]


def sgd(value: Any, gradient: Any, rate: float) -> None:
    for i in range(value.size):
        value[i] -= rate * gradient[i]


def momentum(value: Any, gradient: Any, velocity: Any, decay: float, rate: float) -> None:
    for i in range(value.size):
        moved = velocity[i] * decay - rate * gradient[i]
        velocity[i] = moved
        value[i] += moved


def nesterov(value: Any, gradient: Any, velocity: Any, decay: float, rate: float) -> None:
    for i in range(value.size):
        change = rate * gradient[i]
        moved = velocity[i] * decay - change
        velocity[i] = moved
        value[i] += decay * moved - change


def adam(
    value: Any,
    gradient: Any,
    m: Any,
    v: Any,
    beta_1: float,
    rest_1: float,
    beta_2: float,
    rest_2: float,
    epsilon: float,
    rate: float,
) -> None:
    """`rest_1` is 1 - `beta_1`; both corrections of bias are in `rate`."""
    for i in range(value.size):
        g = gradient[i]
        mean = m[i] * beta_1 + g * rest_1
        square = v[i] * beta_2 + (g * g) * rest_2
        m[i] = mean
        v[i] = square
        value[i] -= mean / (np.sqrt(square) + epsilon) * rate


def adagrad(value: Any, gradient: Any, accumulator: Any, epsilon: float, rate: float) -> None:
    for i in range(value.size):
        g = gradient[i]
        total = accumulator[i] + g * g
        accumulator[i] = total
        value[i] -= g / np.sqrt(total + epsilon) * rate


def rmsprop(
    value: Any, gradient: Any, rms: Any, rho: float, rest: float, epsilon: float, rate: float
) -> None:
    """`rest` is 1 - `rho`."""
    for i in range(value.size):
        g = gradient[i]
        mean = rms[i] * rho + (g * g) * rest
        rms[i] = mean
        value[i] -= g / np.sqrt(mean + epsilon) * rate


_IMAGES = "float[:,:,::1], float[:,:,::1], "
_READ = "Array(float, 4, 'C', True)"  # it may be read-only

LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "adagrad": (adagrad, "void(float[::1], float[::1], float[::1], float, float)"),
    "adam": (
        adam,
        f"void({'float[::1], ' * 4}float, float, float, float, float, float)",
    ),
    "add_rows": (add_rows, "void(float[:,::1], float[:,::1], Array(i8, 1, 'C', True))"),
    "add_to_winner": (add_to_winner, f"void({_IMAGES}u1[:,:,::1], i8, i8, i8, i8)"),
    "conv_from_winner": (
        conv_from_winner,
        f"void(float[:,:,:,::1], {_READ}, float[::1], float[::1], u1[:,:,:,::1])",
    ),
    "conv_relu_max": (
        conv_relu_max,
        f"void(float[:,:,:,::1], {_READ}, Array(float, 1, 'C', True), float[::1], u1[:,:,:,::1])",
    ),
    "keep_positive": (keep_positive, "void(float[::1], float[::1])"),
    "max_pool": (max_pool, f"void({_IMAGES}u1[:,:,::1], i8, i8, i8, i8)"),
    "momentum": (momentum, "void(float[::1], float[::1], float[::1], float, float)"),
    "nesterov": (nesterov, "void(float[::1], float[::1], float[::1], float, float)"),
    "relu_max": (
        relu_max,
        "void(float[:,:,:,::1], float[::1], float[:,:,:,::1], u1[:,:,:,::1], i8)",
    ),
    "rmsprop": (rmsprop, "void(float[::1], float[::1], float[::1], float, float, float, float)"),
    "sgd": (sgd, "void(float[::1], float[::1], float)"),
    "to_winner": (to_winner, "void(float[:,:,:,::1], float[:,:,:,::1], u1[:,:,:,::1], i8)"),
}
"""Each loop by its name, or the function that makes it of constants, and the types of its
arguments; `float` is float32 or float64."""

PRODUCTS = {"conv_from_winner", "conv_relu_max"}
"""Loops that stand for matrix products: as in BLAS a product and its sum are rounded once."""
