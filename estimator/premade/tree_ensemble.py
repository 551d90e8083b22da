"""Regression trees as plain arrays: what a checkpoint holds, and what predictions are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from ...strategies import COUNTER, Variable, get_variable

_LEAF: Final = -1
_VALUES_AT_ONCE: Final = 2**20
MOST_NODES: Final = 2**27
"""Of all trees of a model: a gigabyte of their values."""


@final
@dataclass(frozen=True)
class Tree:
    """A binary tree in which the children of node i are 2i + 1 and 2i + 2.

    Args:
        feature: (nodes,) int32: which feature an inner node looks at; -1 in a leaf.
        threshold: (nodes,) float64: an example with at most this goes to the first child.
        missing_goes_first: (nodes,) bool: whether one without a value does (NaN).
        gain: (nodes,) float64: how much the split makes the loss smaller.
        value: (2 nodes + 1,) float64: what a leaf, which may be below the last inner node, adds to
            a logit.
    """

    feature: np.ndarray
    threshold: np.ndarray
    missing_goes_first: np.ndarray
    gain: np.ndarray
    value: np.ndarray

    @classmethod
    def empty(cls, max_depth: int) -> Tree:
        """A tree of one leaf that adds nothing."""
        n = 2**max_depth - 1
        return cls(
            np.full(n, _LEAF, np.int32),
            np.zeros(n),
            np.zeros(n, bool),
            np.zeros(n),
            np.zeros(2 * n + 1),
        )

    @property
    def has_splits(self) -> bool:
        """Whether the root is no leaf."""
        return bool(self.feature[0] != _LEAF)


@final
class TreeEnsemble:
    """The trees of a model, in variables "boosted_trees/...": a fixed number, not all grown yet.

    Args:
        num_trees: For each logit.
        num_logits: For each example.
        max_depth: Of each tree.
    """

    def __init__(self, num_trees: int, num_logits: int, max_depth: int) -> None:
        self.num_trees, self.num_logits, self._max_depth = num_trees, num_logits, max_depth
        leaf = Tree.empty(max_depth)
        self._variables = {
            name: get_variable(
                f"boosted_trees/{name}",
                (num_trees, num_logits, len(array)),
                array.dtype,
                initializer=np.broadcast_to(array, (num_trees, num_logits, len(array))),
                **COUNTER,
            )
            for name, array in vars(leaf).items()
        }
        self._num_grown: Variable = get_variable(
            "boosted_trees/num_trees", (), np.int64, 0, **COUNTER
        )

    @property
    def num_grown(self) -> int:
        """How many trees there are for each logit."""
        return int(self._num_grown)

    def append(self, trees: list[Tree]) -> None:
        """Add a tree for each logit; all replicas call this alike."""
        for name, variable in self._variables.items():
            values = variable.numpy().copy()
            values[self.num_grown] = [getattr(tree, name) for tree in trees]
            variable.assign(values)
        self._num_grown.assign(self.num_grown + 1)

    def logits(self, inputs: np.ndarray) -> np.ndarray:
        """(batch, num_logits) float64: the sums of the leaves that examples fall into.

        Args:
            inputs: (batch, num_features) floats; NaN is a missing value.
        """
        grown = self.num_grown
        arrays = {
            name: variable.numpy()[:grown].reshape(-1, variable.shape[-1])
            for name, variable in self._variables.items()
        }
        trees = Tree(**arrays)
        rows = max(1, _VALUES_AT_ONCE // max(1, grown * self.num_logits))
        logits = np.zeros((len(inputs), self.num_logits))
        for start in range(0, len(inputs), rows):
            part = slice(start, start + rows)
            leaves = self._leaves(trees, inputs[part])
            logits[part] = leaves.reshape(len(leaves), grown, self.num_logits).sum(axis=1)
        return logits

    def _leaves(self, trees: Tree, inputs: np.ndarray) -> np.ndarray:
        """(batch, trees) the values of the leaves; all trees go down one level at a time."""
        number, row = np.arange(len(trees.feature)), np.arange(len(inputs))[:, None]
        node = np.zeros((len(inputs), len(number)), np.int64)
        for _ in range(self._max_depth):
            feature = trees.feature[number, np.minimum(node, trees.feature.shape[1] - 1)]
            value = inputs[row, np.maximum(feature, 0)].astype(np.float64)
            first = np.where(
                np.isnan(value),
                trees.missing_goes_first[number, node],
                value <= trees.threshold[number, node],
            )
            node = np.where(feature == _LEAF, node, 2 * node + np.where(first, 1, 2))
        leaves: np.ndarray = trees.value[number, node]
        return leaves
