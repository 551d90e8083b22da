"""Embeddings: rows of a table for whole numbers."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, lift, operation, traceable
from ..arguments import check_no_activity_regularizer, count
from ..masks import masked
from ..shapes import check_range, whole_numbers
from .base import Layer
from .options import Constraint, Initializer, LayerOptions, Regularizer, WeightOf, weight_options


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
        activity_regularizer: Only None is supported.
        embeddings_constraint: See `nn.constraints`.
        mask_zero: Whether an index of 0 is filling: the outputs carry a mask that leaves it out.
        input_length: Keras's short form of `input_shape=(input_length,)`.
        **options: See `Layer`; `weights=[table]` for values of one's own.
    """

    supports_masking = True
    embeddings = WeightOf()
    _casts_inputs = False  # numbers of rows above 2048 would be others in float16

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Initializer = "uniform",
        embeddings_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        embeddings_constraint: Constraint = None,
        mask_zero: bool = False,
        input_length: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        if input_length is not None:
            options.setdefault("input_shape", (input_length,))
        super().__init__(**options)
        check_no_activity_regularizer(self.name, activity_regularizer)
        self.mask_zero = mask_zero
        self.input_dim = count("input_dim", input_dim)
        self.output_dim = count("output_dim", output_dim)
        self._table_options = weight_options(
            embeddings_initializer, embeddings_regularizer, embeddings_constraint
        )

    def call(self, inputs: Any) -> Tensor:
        shape = (self.input_dim, self.output_dim)
        table = self.add_weight("embeddings", shape, **self._table_options)
        indices = self._checked(inputs)
        rows = np.take(table, indices, axis=0)  # not of its value, which may be far away
        array = indices.like() if isinstance(indices, Tensor) else indices
        if not isinstance(array, np.ndarray):  # a GPU takes any index, and gives some row for it
            is_row = np.logical_and(indices >= 0, indices < self.input_dim)
            rows = np.where(is_row[..., None], rows, np.nan)
        return masked(rows, indices != 0) if self.mask_zero else rows

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None, without `mask_zero`: indices have no mask of their own."""
        return np.not_equal(lift(inputs), 0) if self.mask_zero else None

    @operation
    def _checked(self, inputs: Any) -> Array:
        """Indices as integers, all of them rows of the table: NumPy would count -1 from the end."""
        whole = whole_numbers(lift(inputs).data)
        if whole is None:
            raise ValueError(f"layer {self.name!r} takes whole numbers, its inputs hold others")
        indices = whole
        if isinstance(indices, np.ndarray):
            check_range(f"the inputs of layer {self.name!r}", indices, self.input_dim)
        return traceable(indices)
