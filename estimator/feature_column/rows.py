"""Rows of a table for the categories of each example, and what is made of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autodiff import Array, Tensor, operation, record
from ...nn.arguments import check_choice

COMBINERS = ("mean", "sum", "sqrtn")


def check_combiner(argument: str, combiner: str) -> str:
    """The combiner.

    Raises:
        ValueError: There is none of that name.
    """
    return check_choice(argument, combiner, COMBINERS)


@operation
def combined_rows(
    table: Any,
    ids: np.ndarray,
    weights: np.ndarray | None,
    combiner: str,
    max_norm: float | None = None,
) -> Tensor:
    """For each example the sum of its categories' rows, or a mean of them.

    The gradient covers only the rows that were read. An example without categories gets zeros, as
    from TensorFlow's `safe_embedding_lookup_sparse`.

    Args:
        table: A variable (number of categories, d).
        ids: (batch, width) row numbers; -1 is none.
        weights: (batch, width) factors; None for 1. In a mean those that are not positive count as
            no category.
        combiner: "sum" of the weighted rows; "mean": that over the sum of the weights; "sqrtn":
            over the square root of the sum of their squares.
        max_norm: Rows that are longer (L2) are shortened to it first.

    Returns:
        (batch, d), of the table's dtype.
    """
    if weights is not None and combiner != "sum":
        ids = np.where(weights > 0, ids, -1)
    # By place within the examples and not by example: so each place has an example once at most.
    places, examples = np.nonzero(ids.T >= 0)
    rows: Any = np.take(table, ids[examples, places], axis=0)
    if max_norm is not None:
        squares = np.sum(np.square(rows), axis=1, keepdims=True)
        # Of the squares, whose root has a gradient at the bound, but none at zero.
        rows = rows * (max_norm / np.sqrt(np.maximum(squares, max_norm**2)))
    factors = _factors(ids, weights, combiner)
    if factors is not None:
        chosen = factors[examples, places, None].astype(rows.dtype)
        rows = rows * np.asarray(chosen, like=rows.data)
    ends = np.searchsorted(places, np.arange(ids.shape[1]), side="right")
    return _sum_by_example(rows, examples, ends, len(ids))


@operation
def counts(ids: np.ndarray, weights: np.ndarray | None, num_buckets: int) -> np.ndarray:
    """(batch, num_buckets) how often each example has each category, or the sum of its weights."""
    examples, places = np.nonzero(ids >= 0)
    cells = examples * num_buckets + ids[examples, places]
    chosen = None if weights is None else weights[examples, places]
    found = np.bincount(cells, chosen, minlength=len(ids) * num_buckets)
    return found.reshape(len(ids), num_buckets).astype(np.float32)


def _factors(ids: np.ndarray, weights: np.ndarray | None, combiner: str) -> np.ndarray | None:
    """(batch, width) what rows are multiplied by; None for 1."""
    is_there = ids >= 0
    if weights is None:
        if combiner == "sum" or ids.shape[1] == 1:
            return None
        weights = is_there.astype(np.float32)
    weights = np.where(is_there, weights, np.float32(0))
    if combiner == "sum":
        return weights
    total = weights.sum(axis=1) if combiner == "mean" else np.sqrt(np.square(weights).sum(axis=1))
    return weights / np.where(total > 0, total, np.float32(1))[:, None]


def _sum_by_example(
    rows: Tensor, examples: np.ndarray, ends: np.ndarray, num_examples: int
) -> Tensor:
    """(num_examples, d) sums of rows.

    Args:
        rows: (number of rows, d).
        examples: To which example each row belongs.
        ends: Where the rows of each place end; within a place no example comes twice.
    """
    data = rows.data
    sums: Array = np.zeros((num_examples, data.shape[1]), data.dtype, like=data)
    here = np.asarray(examples, like=data)
    start = 0
    for end in ends.tolist():
        sums[here[start:end]] += data[start:end]
        start = end
    return record(sums, (rows,), lambda g, outs: (g[here],))
