"""One tree, grown by LightGBM along the derivatives of any loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .tree_ensemble import Tree

_VALUES_FOR_THREADS = 2**20
_LEAST_NODE_WEIGHT = 1e-3
"""LightGBM's own default: it takes the rounding of a sum below it for examples."""


@final
@dataclass(frozen=True)
class Growth:
    """How a tree grows.

    Args:
        max_depth: The number of splits from the root to a leaf, at most.
        learning_rate: The factor of the value of each leaf.
        l1, l2: Regularization of leaves' values.
        min_gain: A split that makes the loss smaller by less is not made.
        min_node_weight: The least sum of second derivatives in a leaf.
        max_bins: Between how many values of a feature a split may lie.
    """

    max_depth: int
    learning_rate: float
    l1: float
    l2: float
    min_gain: float
    min_node_weight: float
    max_bins: int

    def trees(self, inputs: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> list[Tree]:
        """A tree for each logit, by Newton's method: Friedman (2001), Chen and Guestrin (2016).

        Args:
            inputs: (batch, num_features) float32.
            slope, curvature: (batch, num_logits) the first and second derivative of each example's
                loss along its logits.
        """
        return [
            self._tree(inputs, slope[:, logit], curvature[:, logit])
            for logit in range(slope.shape[1])
        ]

    def _tree(self, inputs: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> Tree:
        def derivatives(*_: Any) -> tuple[np.ndarray, np.ndarray]:
            return slope.astype(np.float64), curvature.astype(np.float64)

        parameters = {
            "objective": derivatives,
            "max_depth": self.max_depth,
            "num_leaves": max(2, min(2**self.max_depth, len(inputs))),
            "learning_rate": self.learning_rate,
            "lambda_l1": self.l1,
            "lambda_l2": self.l2,
            "min_gain_to_split": self.min_gain,
            "min_sum_hessian_in_leaf": max(self.min_node_weight, _LEAST_NODE_WEIGHT),
            "min_data_in_leaf": 1,
            "min_data_in_bin": 1,
            "max_bin": self.max_bins,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_col_wise": True,
            # On few values threads cost more than they save; for more LightGBM takes all cores,
            # or OMP_NUM_THREADS of them.
            "num_threads": 1 if inputs.size < _VALUES_FOR_THREADS else 0,
            "verbose": -1,
        }
        lightgbm = _lightgbm()
        data = lightgbm.Dataset(inputs, np.zeros(len(inputs)), params={"verbose": -1})
        booster = lightgbm.train(parameters, data, num_boost_round=1)
        tree = Tree.empty(self.max_depth)
        _fill(tree, 0, booster.dump_model()["tree_info"][0]["tree_structure"])
        if not tree.has_splits:  # LightGBM gives such a leaf nothing, and all later ones, too
            tree.value[0] = self._leaf(slope.sum(), curvature.sum())
        return tree

    def _leaf(self, slope: float, curvature: float) -> float:
        """The value of a leaf by the derivatives of the loss of all examples in it."""
        if curvature + self.l2 < _LEAST_NODE_WEIGHT:
            return 0.0  # no Newton's method: what is left of both derivatives is rounding
        beyond_l1 = float(np.sign(slope)) * max(abs(slope) - self.l1, 0.0)
        return -self.learning_rate * beyond_l1 / (curvature + self.l2)


def require_lightgbm() -> None:
    """Refuse to go on without the library.

    Raises:
        ImportError: It is not installed.
    """
    _lightgbm()


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(
            f"boosted trees grow by LightGBM ({error}); pip install 'paceline[trees]' brings it "
            f"(evaluations and predictions need it no more)"
        ) from error
    return lightgbm


def _fill(tree: Tree, node: int, found: dict[str, Any]) -> None:
    """Put what LightGBM says of a node, and of all below it, where the node is."""
    if "split_feature" not in found:
        tree.value[node] = found["leaf_value"]
        return
    threshold = found["threshold"]
    tree.feature[node], tree.threshold[node] = found["split_feature"], threshold
    # Where the data had no missing values, LightGBM takes one for zero.
    is_known = found["missing_type"] == "NaN"
    tree.missing_goes_first[node] = found["default_left"] if is_known else threshold >= 0
    tree.gain[node] = found["split_gain"]
    _fill(tree, 2 * node + 1, found["left_child"])
    _fill(tree, 2 * node + 2, found["right_child"])
