"""Networks of fully connected layers over feature columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

from ... import summary
from ...autodiff import Tensor
from ...nn import activations, layers
from ...nn.arguments import check_decay, count
from ...nn.losses import Reduction
from ..estimator import Estimator
from ..feature_column import DenseColumn, DenseFeatures
from ..feature_column.base import dense_columns
from ..run_config import RunConfig
from ..warm_start import WarmStartSettings
from .heads import Head, RegressionHead, WeightColumn, binary_or_multi_class_head
from .model import OptimizerArgument, Part, model_fn_of

Activation: TypeAlias = "str | Callable[[Any], Any] | None"

_MOMENTUM_OF_STATISTICS = 0.999
"""TensorFlow's, of the moving means of batch normalization."""


@final
class DNNPart(Part):
    """Logits that a network computes of dense columns.

    Each hidden layer is fully connected, with an activation, then dropout and batch normalization
    where there are such.

    Args:
        hidden_units: The width of each hidden layer.
        columns: What the first of them reads.
        activation_fn: The hidden layers' activation.
        dropout: The share of a hidden layer's outputs that training drops; None for none.
        batch_norm: Whether hidden layers are normalized over the batch.
        argument, optimizer, learning_rate: See `Part`.

    Raises:
        TypeError, ValueError: See `Part`; or another argument is out of range.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        columns: Sequence[DenseColumn],
        activation_fn: Activation,
        dropout: float | None,
        batch_norm: bool,
        argument: str,
        optimizer: OptimizerArgument,
        learning_rate: float,
    ) -> None:
        super().__init__("dnn", argument, optimizer, learning_rate)
        check_decay("dropout", dropout or 0.0)
        self._columns = columns
        self._hidden_units = [count("a number of hidden_units", n) for n in hidden_units]
        self._activation = activations.get(activation_fn)
        self._dropout = dropout
        self._batch_norm = batch_norm

    def logits(self, features: Mapping[str, Any], units: int, training: bool) -> Tensor:
        net: Any = DenseFeatures(self._columns, name="dnn/input_layer")(features)
        for i, width in enumerate(self._hidden_units):
            name = f"dnn/hiddenlayer_{i}"
            net = layers.Dense(width, self._activation, name=name)(net)
            if self._dropout:
                net = layers.Dropout(self._dropout, name=f"dnn/dropout_{i}")(net, training)
            if self._batch_norm:
                norm = layers.BatchNormalization(
                    momentum=_MOMENTUM_OF_STATISTICS, name=f"{name}/batchnorm_{i}"
                )
                net = norm(net, training)
            summary.histogram(f"{name}/activation", net)
        outputs: Tensor = layers.Dense(units, name="dnn/logits")(net)
        summary.histogram("dnn/logits/activation", outputs)
        return outputs


class DNNEstimator(Estimator):
    """A network of fully connected layers with a head of one's own.

    Variables: "dnn/hiddenlayer_<i>/kernel" and "…/bias", "dnn/logits/kernel" and "…/bias", with
    batch normalization "dnn/hiddenlayer_<i>/batchnorm_<i>/…", and of embedding columns
    "dnn/input_layer/<column>/embedding_weights".

    Args:
        head: Makes a loss, predictions and metrics of the logits.
        hidden_units: The width of each hidden layer.
        feature_columns: What to read: dense columns, at least one.
        model_dir, config, warm_start_from: See `Estimator`.
        optimizer: The name of an optimizer, whose learning rate is then 0.05; an optimizer; or a
            function of no argument that makes one.
        activation_fn: The hidden layers' activation: a name or function, see `nn.activations`.
        dropout: The share of each hidden layer's outputs that training drops; None for none.
        batch_norm: Whether hidden layers are normalized over the batch, after activation and
            dropout.

    Raises:
        ValueError: No column, or an unknown optimizer, or a number out of range.
        TypeError: Something is no head, dense column or optimizer.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Sequence[int],
        feature_columns: Sequence[DenseColumn],
        model_dir: str | os.PathLike[str] | None = None,
        optimizer: OptimizerArgument = "Adagrad",
        activation_fn: Activation = "relu",
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        batch_norm: bool = False,
    ) -> None:
        columns = dense_columns("feature_columns", feature_columns)
        shape = (hidden_units, columns, activation_fn, dropout, batch_norm)
        part = DNNPart(*shape, "optimizer", optimizer, 0.05)
        super().__init__(
            model_fn_of(head, [part]), model_dir, config, warm_start_from=warm_start_from
        )


class DNNClassifier(DNNEstimator):
    """A network that tells two or more classes apart.

    Args:
        n_classes: At least 2; of two there is one logit.
        weight_column: The name of a feature with a weight for each example.
        label_vocabulary: The words that labels are; they are numbers by default.
        loss_reduction: See `Head`.
        hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout, config,
            warm_start_from, batch_norm: See `DNNEstimator`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[DenseColumn],
        model_dir: str | os.PathLike[str] | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerArgument = "Adagrad",
        activation_fn: Activation = "relu",
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(
            binary_or_multi_class_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
        )


class DNNRegressor(DNNEstimator):
    """A network that predicts numbers, with the squared error.

    Args:
        label_dimension: The number of values to predict for each example.
        weight_column: The name of a feature with a weight for each example.
        loss_reduction: See `Head`.
        hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout, config,
            warm_start_from, batch_norm: See `DNNEstimator`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[DenseColumn],
        model_dir: str | os.PathLike[str] | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerArgument = "Adagrad",
        activation_fn: Activation = "relu",
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
        loss_reduction: Reduction | str = Reduction.SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
        )
