"""Heads: from logits to a loss, predictions, metrics and a training step."""

from .binary_class import BinaryClassHead
from .head import Head
from .multi import MultiHead
from .multi_class import MultiClassHead, binary_or_multi_class_head
from .multi_label import MultiLabelHead
from .regression import LogisticRegressionHead, PoissonRegressionHead, RegressionHead
from .weighted import WeightColumn

__all__ = [
    "BinaryClassHead",
    "Head",
    "LogisticRegressionHead",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "PoissonRegressionHead",
    "RegressionHead",
    "WeightColumn",
    "binary_or_multi_class_head",
]
