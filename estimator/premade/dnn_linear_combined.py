"""A linear model and a network that learn together: "wide and deep", Cheng et al. (2016)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...nn.losses import Reduction
from ..estimator import Estimator
from ..feature_column import DenseColumn, FeatureColumn
from ..feature_column.base import any_columns, dense_columns
from ..run_config import RunConfig
from ..warm_start import WarmStartSettings
from .dnn import Activation, DNNPart
from .heads import Head, RegressionHead, WeightColumn, binary_or_multi_class_head
from .linear import LinearPart, linear_rate
from .model import OptimizerArgument, Part, model_fn_of


class DNNLinearCombinedEstimator(Estimator):
    """The sum of a linear model's logits and a network's, with a head of one's own.

    Each of the two has its own columns and optimizer. Variables are those of `LinearEstimator` and
    of `DNNEstimator`.

    Args:
        head: Makes a loss, predictions and metrics of the logits.
        model_dir, config, warm_start_from: See `Estimator`.
        linear_feature_columns: What the linear model reads; without columns there is none.
        linear_optimizer: As of `LinearEstimator`; one that is named has the learning rate
            min(0.005, 1/√(number of columns)).
        dnn_feature_columns: What the network reads; without columns there is none.
        dnn_optimizer: As of `DNNEstimator`; one that is named has the learning rate 0.001.
        dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm: See `DNNEstimator`.
        linear_sparse_combiner: See `LinearEstimator`.

    Raises:
        ValueError: There are no columns at all, or columns of a network without hidden_units, or an
            unknown optimizer.
        TypeError: Something is no head, column or optimizer.
    """

    def __init__(
        self,
        head: Head,
        model_dir: str | os.PathLike[str] | None = None,
        linear_feature_columns: Sequence[FeatureColumn] | None = None,
        linear_optimizer: OptimizerArgument = "Ftrl",
        dnn_feature_columns: Sequence[DenseColumn] | None = None,
        dnn_optimizer: OptimizerArgument = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation = "relu",
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
    ) -> None:
        if not linear_feature_columns and not dnn_feature_columns:
            raise ValueError("give linear_feature_columns, dnn_feature_columns, or both")
        if dnn_feature_columns and not dnn_hidden_units:
            raise ValueError("dnn_feature_columns are given without dnn_hidden_units; give both")
        parts: list[Part] = []
        if dnn_feature_columns:
            deep = dense_columns("dnn_feature_columns", dnn_feature_columns)
            shape = (dnn_hidden_units or (), deep, dnn_activation_fn, dnn_dropout, batch_norm)
            parts.append(DNNPart(*shape, "dnn_optimizer", dnn_optimizer, 0.001))
        if linear_feature_columns:
            wide = any_columns("linear_feature_columns", linear_feature_columns)
            rate = linear_rate(wide, 0.005)
            how = (linear_sparse_combiner, "linear_optimizer", linear_optimizer, rate)
            parts.append(LinearPart(wide, *how))
        super().__init__(
            model_fn_of(head, parts), model_dir, config, warm_start_from=warm_start_from
        )


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A linear model and a network that tell two or more classes apart.

    Args:
        n_classes: At least 2; of two there is one logit.
        weight_column: The name of a feature with a weight for each example.
        label_vocabulary: The words that labels are; they are numbers by default.
        loss_reduction: See `Head`.
        model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
            dnn_hidden_units, dnn_activation_fn, dnn_dropout, config, warm_start_from, batch_norm,
            linear_sparse_combiner: See `DNNLinearCombinedEstimator`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        linear_feature_columns: Sequence[FeatureColumn] | None = None,
        linear_optimizer: OptimizerArgument = "Ftrl",
        dnn_feature_columns: Sequence[DenseColumn] | None = None,
        dnn_optimizer: OptimizerArgument = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation = "relu",
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            binary_or_multi_class_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from,
        )


class DNNLinearCombinedRegressor(DNNLinearCombinedEstimator):
    """A linear model and a network that predict numbers, with the squared error.

    Args:
        label_dimension: The number of values to predict for each example.
        weight_column: The name of a feature with a weight for each example.
        loss_reduction: See `Head`.
        model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
            dnn_hidden_units, dnn_activation_fn, dnn_dropout, config, warm_start_from, batch_norm,
            linear_sparse_combiner: See `DNNLinearCombinedEstimator`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        linear_feature_columns: Sequence[FeatureColumn] | None = None,
        linear_optimizer: OptimizerArgument = "Ftrl",
        dnn_feature_columns: Sequence[DenseColumn] | None = None,
        dnn_optimizer: OptimizerArgument = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation = "relu",
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from,
        )
