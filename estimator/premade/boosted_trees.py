"""Gradient-boosted trees behind an Estimator's face: grown by LightGBM, kept as plain arrays."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, ClassVar, TypedDict, Unpack, final

import numpy as np

from ...autodiff import Tensor, backward
from ...nn.arguments import check_choice, check_not_negative, count
from ...nn.losses import Reduction
from ...nn.metrics import to_host
from ...nn.optimizers import TrainOp
from ...strategies import (
    COUNTER,
    Variable,
    current_store,
    get_or_create_global_step,
    get_variable,
)
from ...training import (
    ModeKeys,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from ..estimator import Estimator
from ..feature_column import DenseColumn, DenseFeatures
from ..feature_column.base import dense_columns
from ..run_config import RunConfig
from ..specs import EstimatorSpec
from .heads import Head, RegressionHead, WeightColumn, binary_or_multi_class_head
from .together import replica_of_all
from .tree_ensemble import MOST_NODES, TreeEnsemble
from .tree_growing import Growth, require_lightgbm

_logger = logging.getLogger("paceline")
_NUM_TREES = "boosted_trees/num_trees"


class TreeOptions(TypedDict, total=False):
    """What `BoostedTreesEstimator` takes by name; its docstring says what they are."""

    n_trees: int
    max_depth: int
    learning_rate: float
    l1_regularization: float
    l2_regularization: float
    tree_complexity: float
    min_node_weight: float
    config: RunConfig | None
    center_bias: bool
    pruning_mode: str
    quantile_sketch_epsilon: float
    train_in_memory: bool


class BoostedTreesEstimator(Estimator):
    """Trees that correct each other, with a head of one's own; needs the extra `trees` to train.

    Each tree (for each logit) grows along the derivatives of the head's loss on
    `n_batches_per_layer` global batches: give it as many as hold all data once. A step takes one
    batch. Training ends with the tree `n_trees`, or with its data or steps; batches that are left
    then make no tree, which a warning says. All replicas and workers send each other their
    examples' inputs and derivatives and so grow the tree that one would; where parameter servers
    keep the trees there must be one worker.

    Args:
        feature_columns: Dense columns: numeric, bucketized, indicator.
        n_batches_per_layer: The number of global batches that a tree sees. (In TensorFlow each
            layer of a tree sees as many of its own.)
        head: Gives the loss of an example, by "sum_over_batch_size", and metrics.
        model_dir, config: See `Estimator`.
        weight_column: Must be None: a head knows its own.
        n_trees: How many, for each logit.
        max_depth: In [1, 16].
        learning_rate: The factor of each tree.
        l1_regularization, l2_regularization: Of the values of leaves, ≥ 0.
        tree_complexity: With pruning_mode "pre": the least by which a split lowers the loss.
        min_node_weight: The least sum of second derivatives in a leaf.
        center_bias: Must be False.
        pruning_mode: "none" or "pre".
        quantile_sketch_epsilon: 1 / the number of values between which a split may lie.
        train_in_memory: Accepted for TensorFlow's signature: it is always so.

    Raises:
        ValueError: An argument is out of range, or asks for what there is not.
    """

    def __init__(
        self,
        feature_columns: Sequence[DenseColumn],
        n_batches_per_layer: int,
        head: Head,
        model_dir: str | os.PathLike[str] | None = None,
        weight_column: None = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        train_in_memory: bool = True,
    ) -> None:
        if weight_column is not None:
            raise ValueError("weight_column is given to the head, not to BoostedTreesEstimator")
        if center_bias:
            raise ValueError("center_bias=True is not available; leave it out")
        check_choice("pruning_mode", pruning_mode, ("none", "pre"))
        if (pruning_mode == "pre") != (tree_complexity > 0):
            raise ValueError(
                f"tree_complexity above 0 and pruning_mode='pre' go together, they are "
                f"{tree_complexity} and {pruning_mode!r}"
            )
        if not 0 < quantile_sketch_epsilon <= 0.5:
            raise ValueError(
                f"quantile_sketch_epsilon must be in (0, 0.5], it is {quantile_sketch_epsilon}"
            )
        for name, value in (
            ("learning_rate", learning_rate),
            ("l1_regularization", l1_regularization),
            ("l2_regularization", l2_regularization),
            ("min_node_weight", min_node_weight),
        ):
            check_not_negative(name, value)
        growth = Growth(
            _checked_depth(max_depth, n_trees, head),
            learning_rate,
            l1_regularization,
            l2_regularization,
            2 * tree_complexity,  # LightGBM's gain is twice the change of the loss
            min_node_weight,
            round(1 / quantile_sketch_epsilon),
        )
        self._columns = dense_columns("feature_columns", feature_columns)
        model = _Model(head, self._columns, n_batches_per_layer, n_trees, growth)
        super().__init__(model.model_fn, model_dir, config)

    def experimental_feature_importances(
        self, normalize: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Names of columns and how much their splits have lowered the loss, the largest first.

        Args:
            normalize: Whether importances add up to 1.

        Raises:
            ValueError: There is no checkpoint.
        """
        names = [c.name for c in self._columns for _ in range(c.num_elements)]
        feature = self.get_variable_value("boosted_trees/feature")
        gain = self.get_variable_value("boosted_trees/gain")
        is_inner = feature >= 0
        of_input = np.bincount(feature[is_inner], gain[is_inner], minlength=len(names))
        of_column = dict.fromkeys(names, 0.0)
        for name, value in zip(names, of_input.tolist(), strict=True):
            of_column[name] += value
        ranked = sorted(of_column, key=lambda name: -of_column[name])
        importances = np.array([of_column[name] for name in ranked])
        total = importances.sum() if normalize else 1.0
        return np.array(ranked), importances / (total or 1.0)


class BoostedTreesClassifier(BoostedTreesEstimator):
    """Boosted trees that tell classes apart.

    Args:
        n_classes: At least 2; of more than two each has trees of its own.
        weight_column: The name of a feature with a weight for each example.
        label_vocabulary: The words that labels are; they are numbers by default.
        feature_columns, n_batches_per_layer, model_dir: See `BoostedTreesEstimator`.
        **options: Its further arguments, from `n_trees` on.
    """

    def __init__(
        self,
        feature_columns: Sequence[DenseColumn],
        n_batches_per_layer: int,
        model_dir: str | os.PathLike[str] | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        **options: Unpack[TreeOptions],
    ) -> None:
        super().__init__(
            feature_columns,
            n_batches_per_layer,
            binary_or_multi_class_head(n_classes, weight_column, label_vocabulary),
            model_dir,
            **options,
        )


class BoostedTreesRegressor(BoostedTreesEstimator):
    """Boosted trees that predict numbers, by the squared error.

    Args:
        label_dimension: The number of values to predict for each example.
        weight_column: The name of a feature with a weight for each example.
        feature_columns, n_batches_per_layer, model_dir: See `BoostedTreesEstimator`.
        **options: Its further arguments, from `n_trees` on.
    """

    def __init__(
        self,
        feature_columns: Sequence[DenseColumn],
        n_batches_per_layer: int,
        model_dir: str | os.PathLike[str] | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        **options: Unpack[TreeOptions],
    ) -> None:
        super().__init__(
            feature_columns,
            n_batches_per_layer,
            RegressionHead(label_dimension, weight_column),
            model_dir,
            **options,
        )


@final
class _Model:
    """The `model_fn` of boosted trees.

    Args:
        head, columns, num_batches, num_trees: See `BoostedTreesEstimator`.
        growth: How a tree grows.
    """

    _COLLECTED: ClassVar = "batches for the next of the boosted trees"

    def __init__(
        self,
        head: Head,
        columns: Sequence[DenseColumn],
        num_batches: int,
        num_trees: int,
        growth: Growth,
    ) -> None:
        self._head, self._columns, self._growth = head, columns, growth
        self._num_batches = count("n_batches_per_layer", num_batches)
        self._num_trees = num_trees

    def model_fn(self, features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        inputs = self._inputs(features)
        ensemble = TreeEnsemble(
            self._num_trees, self._head.logits_dimension, self._growth.max_depth
        )
        exact = np.asarray(ensemble.logits(to_host(inputs)), like=inputs.data)
        logits = Tensor(exact.astype(np.float32))
        if mode is not ModeKeys.TRAIN:
            return self._head.create_estimator_spec(features, mode, logits, labels)
        require_lightgbm()
        first_step = get_variable(_FIRST_STEP, (), np.int64, 0, **COUNTER)
        collected: _Collected = current_store().find_or_create(self._COLLECTED, dict)
        if ensemble.num_grown < self._num_trees:
            derivatives = _derivatives(self._head, labels, exact, features)
            batch = (to_host(inputs), *derivatives)
            self._take(ensemble, first_step, collected, batch)
        return EstimatorSpec(
            mode,
            loss=self._head.loss(labels, logits, features, mode),
            train_op=TrainOp([], [get_or_create_global_step()]),
            training_hooks=[_EndHook(self._num_trees, collected)],
        )

    def _inputs(self, features: Any) -> Tensor:
        """(batch, number of inputs) what the columns give.

        Raises:
            ValueError: One of them learns something, by a gradient that trees do not have.
        """
        layer = DenseFeatures(self._columns, name="input_layer")
        inputs: Tensor = layer(features)
        if layer.trainable_variables:
            names = ", ".join(variable.name for variable in layer.trainable_variables)
            raise ValueError(
                f"boosted trees take columns that learn nothing themselves, as numeric, bucketized "
                f"and indicator columns; one has {names}"
            )
        return inputs

    def _take(
        self,
        ensemble: TreeEnsemble,
        first_step: Variable,
        collected: _Collected,
        batch: tuple[np.ndarray, ...],
    ) -> None:
        """Send a batch to all replicas, and let the next tree grow if it was the last for it."""
        replica = replica_of_all("BoostedTreesEstimator")
        everyones = [to_host(part) for part in replica.all_gather(batch, axis=0)]
        step = int(get_or_create_global_step().value_in(replica.local_index))
        # A step may turn out not to be made, and then comes again. So batches are kept by their
        # steps, and those of the last tree until the step behind it.
        begin = int(first_step.value_in(replica.local_index))

        def grown(arrivals: list[Any]) -> Any:
            for old in [number for number in collected if number < begin]:
                del collected[old]
            collected[step] = arrivals[0]
            if len(collected) < self._num_batches:
                return None
            columns = zip(*collected.values(), strict=True)
            return self._growth.trees(*[np.concatenate(parts) for parts in columns])

        trees = replica.exchange("the growth of a tree", everyones, grown)
        if trees is not None:
            ensemble.append(trees)
            first_step.assign(step + 1)


_Collected = dict[int, Any]
"""The global batches for the next tree (inputs and derivatives), by their steps."""

_FIRST_STEP = "boosted_trees/first_step"


class _EndHook(SessionRunHook):
    """Ends a run when all trees have grown, and says which batches made none."""

    def __init__(self, num_trees: int, collected: _Collected) -> None:
        self._num_trees, self._collected = num_trees, collected

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if int(run_context.session.run(_NUM_TREES)) == self._num_trees:
            run_context.request_stop()

    def end(self, session: Session) -> None:
        grown, first = session.run([_NUM_TREES, _FIRST_STEP])
        left = sum(step >= first for step in self._collected)
        if left and grown < self._num_trees:
            _logger.warning(
                "The last %d batch(es) have made no tree: a tree grows of n_batches_per_layer, and "
                "%d of %d trees have grown. Give the run more data or steps.",
                left,
                grown,
                self._num_trees,
            )


def _derivatives(
    head: Head, labels: Any, logits: np.ndarray, features: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The first and second derivative of each example's loss along each of its logits.

    The second ones are differences of the first ones, in float64 good to about 1e-7. A loss that
    has none, as the absolute error, is followed along its slope: they are 1.
    """

    def slopes(at: np.ndarray) -> np.ndarray:
        variable = Tensor(at, requires_grad=True)
        found: Any = backward(head.loss(labels, variable, features))
        return to_host(found[variable]) * len(at)

    curvatures = np.empty(logits.shape)
    for logit in range(logits.shape[1]):
        shift = np.zeros(logits.shape[1])
        shift[logit] = _STEP
        shift = np.asarray(shift, like=logits)
        difference = slopes(logits + shift) - slopes(logits - shift)
        curvatures[:, logit] = difference[:, logit] / (2 * _STEP)
    if curvatures.max(initial=0.0) < _NO_CURVATURE:
        curvatures[...] = 1.0
    return slopes(logits), np.maximum(curvatures, _LEAST_CURVATURE)


_STEP = 1e-3
_LEAST_CURVATURE = 1e-16
_NO_CURVATURE = 1e-9


def _checked_depth(max_depth: int, num_trees: int, head: Head) -> int:
    """The depth.

    Raises:
        ValueError: The trees would take too much memory, or the head is not what trees are for.
        TypeError: The head is none.
    """
    if not isinstance(head, Head):
        raise TypeError(f"head must be a Head, such as BinaryClassHead(), it is {head!r}")
    if head.loss_reduction is not Reduction.SUM_OVER_BATCH_SIZE:
        raise ValueError(
            f"a head of boosted trees has loss_reduction='sum_over_batch_size' (trees grow along "
            f"the loss of each example, whatever is reported), it has {head.loss_reduction.value!r}"
        )
    depth = count("max_depth", max_depth)
    trees = count("n_trees", num_trees) * head.logits_dimension
    if depth > _DEEPEST or trees * 2**depth > MOST_NODES:
        raise ValueError(
            f"{trees} trees of max_depth={depth} are too large: max_depth is at most {_DEEPEST}, "
            f"and all trees have at most {MOST_NODES} leaves together"
        )
    return depth


_DEEPEST = 16
