"""Embeddings: rows of a table for whole numbers."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, lift
from .. import regularizers
from ..arguments import count
from ..shapes import check_range, whole_numbers
from .base import Initializer, Layer, LayerOptions, Regularizer


class Embedding(Layer):
    """A trained vector for each whole number in [0, input_dim).

    Inputs (...) of indices give outputs (..., output_dim). Weight: embeddings (input_dim,
    output_dim). The gradient covers only the rows that were read (`IndexedSlices`), so that it
    costs and travels as much as the batch, not as the table. The update goes through the whole
    table all the same, as in Keras, except under SGD without momentum, Adagrad, and optimizers that
    are told `sparse="lazy"`: see `Optimizer`. Ask for that where the table is large.

    Args:
        input_dim: The number of rows.
        output_dim: Their length.
        embeddings_initializer: See `nn.initializers`.
        embeddings_regularizer: See `nn.regularizers`. It makes the gradient dense.
        **options: See `Layer`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Initializer = "uniform",
        embeddings_regularizer: Regularizer = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.input_dim = count("input_dim", input_dim)
        self.output_dim = count("output_dim", output_dim)
        self._table_options = embeddings_initializer, regularizers.get(embeddings_regularizer)

    def call(self, inputs: Any) -> Tensor:
        shape = (self.input_dim, self.output_dim)
        table = self.add_weight("embeddings", shape, None, *self._table_options)
        indices = self._checked(lift(inputs).data)
        return np.take(table, indices, axis=0)  # not of its value, which may be far away

    def _checked(self, indices: Array) -> Array:
        """Indices as integers, all of them rows of the table: NumPy would count -1 from the end."""
        whole = whole_numbers(indices)
        if whole is None:
            raise ValueError(f"layer {self.name!r} takes whole numbers, its inputs hold others")
        indices = whole
        check_range(f"the inputs of layer {self.name!r}", indices, self.input_dim)
        return indices
