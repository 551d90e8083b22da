"""Attention: means of values, weighted by how well their keys fit a query."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, softmax
from ..arguments import check_choice, check_decay, check_no_activity_regularizer, count
from ..masks import beside, masks_of
from ..policies import to_dtype
from .activation import hidden_where
from .base import Layer
from .dropout import Dropout
from .options import Constraint, Initializer, LayerOptions, Regularizer, weight_options


class _Attention(Layer):
    """Scores, a softmax over them, and the mean of values that it weighs."""

    supports_masking = True

    def __init__(
        self, dropout: float = 0.0, seed: int | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        check_decay("dropout", dropout)
        self.dropout = dropout
        name = f"{self.variables_prefix}/dropout"
        self._drop = Dropout(dropout, seed=seed, name=name) if dropout else None

    def attend(self, scores: Any, value: Any, counts: Any, training: bool) -> tuple[Any, Any, Any]:
        """The weighted means, and the weights before and after dropout.

        Scores and what counts are (…, queries, values).
        """
        shares: Any = softmax(scores if counts is None else hidden_where(scores, counts))
        dropped = shares if self._drop is None else self._drop(shares, training=training)
        return np.matmul(dropped, value), shares, dropped


class _SequenceAttention(_Attention):
    """Attention of a list of query, value and perhaps key, each (batch, steps, features)."""

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        if not isinstance(inputs, (list, tuple)) or len(inputs) not in (2, 3):
            raise ValueError(
                f"layer {self.name!r} takes [query, value] or [query, value, key], not {inputs!r}"
            )
        query, value, *keys = (to_dtype(part, self.compute_dtype) for part in inputs)
        scores = self.scores(query, keys[0] if keys else value)
        of_values = None if mask is None or mask[1] is None else np.expand_dims(mask[1], 1)
        counts = _all_of(scores, of_values, _causal(scores) if use_causal_mask else None)
        outputs, _, dropped = self.attend(scores, value, counts, training)
        if mask is not None and mask[0] is not None:
            of_queries = beside(mask[0], outputs, outputs.dtype)
            outputs = outputs * of_queries[..., np.newaxis]
        return [outputs, dropped] if return_attention_scores else outputs

    def scores(self, query: Any, key: Any) -> Any:
        """How well keys fit queries, (batch, queries, keys)."""
        raise NotImplementedError

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """That of the query."""
        return mask[0]


class Attention(_SequenceAttention):
    """Dot-product attention (Luong et al. 2015): `softmax(query @ keyᵀ) @ value`.

    Called as `layer([query, value])` or `layer([query, value, key])`, of shapes (batch, queries,
    d), (batch, keys, e) and (batch, keys, d); without a key the value is it. The outputs are
    (batch, queries, e).

    Args:
        use_scale: Whether scores are multiplied by a trained number, the weight "scale".
        score_mode: "dot", or "concat" for `Σ tanh(scale · (query + key))` times a trained number.
        dropout: The share of weights that are dropped in training.
        seed: See `Dropout`.
        **options: See `Layer`.
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dropout, seed, **options)
        self.use_scale = use_scale
        self.score_mode = check_choice("score_mode", score_mode, ("dot", "concat"))

    def scores(self, query: Any, key: Any) -> Any:
        scale = self.add_weight("scale", (), initializer="ones") if self.use_scale else None
        if self.score_mode == "concat":
            weight = self.add_weight("concat_score_weight", (), initializer="ones")
            return weight * _sums(query, key, scale)
        products = np.matmul(query, np.swapaxes(key, 1, 2))
        return products if scale is None else products * scale


class AdditiveAttention(_SequenceAttention):
    """Bahdanau's attention (2015): scores are `Σ scale · tanh(query + key)`; see `Attention`."""

    def __init__(
        self,
        use_scale: bool = True,
        dropout: float = 0.0,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dropout, seed, **options)
        self.use_scale = use_scale

    def scores(self, query: Any, key: Any) -> Any:
        shape = (query.shape[-1],)
        scale = self.add_weight("scale", shape) if self.use_scale else 1.0
        both = np.tanh(np.expand_dims(query, 2) + np.expand_dims(key, 1))
        return (scale * both).sum(axis=-1)


class MultiHeadAttention(_Attention):
    """Attention in several subspaces: Vaswani et al. (2017).

    Called as `layer(query, value)` or `layer(query, value, key)`, each (batch, steps, features);
    the outputs are (batch, queries, features of the query). Weights: query/kernel (d, num_heads,
    key_dim), key/kernel, value/kernel (…, value_dim), attention_output/kernel (num_heads,
    value_dim, outputs), each with a bias.

    In a call `attention_mask`, (batch, queries, values) or what broadcasts to it, says which values
    count for which query; `use_causal_mask` leaves out those behind it; masks that query and value
    carry count too. `return_attention_scores` makes the result a list with the weights,
    (batch, num_heads, queries, values).

    Args:
        num_heads: The number of subspaces.
        key_dim: The width of queries and keys in each.
        value_dim: That of values; `key_dim` by default.
        dropout: The share of weights that are dropped in training.
        use_bias: Whether the four products have biases.
        output_shape: The width of the outputs, if not that of the query.
        attention_axes: Only the axis of the steps is supported.
        kernel_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, bias_regularizer: See `nn.regularizers`.
        activity_regularizer: Only None is supported.
        kernel_constraint, bias_constraint: See `nn.constraints`.
        seed: See `Dropout`.
        **options: See `Layer`.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: Any = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dropout, seed, **options)
        check_no_activity_regularizer(self.name, activity_regularizer)
        if attention_axes not in (None, 1, (1,), [1]):
            raise ValueError(
                f"layer {self.name!r} attends over axis 1 only, not attention_axes="
                f"{attention_axes!r}; reshape other axes into it or the batch"
            )
        self.num_heads = count("num_heads", num_heads)
        self.key_dim = count("key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else count("value_dim", value_dim)
        self.use_bias = use_bias
        given = (
            output_shape
            if output_shape is None or isinstance(output_shape, int)
            else next(iter(output_shape))
        )
        self.output_width = None if given is None else count("output_shape", given)
        self._kernel_options = weight_options(
            kernel_initializer, kernel_regularizer, kernel_constraint
        )
        self._bias_options = weight_options(bias_initializer, bias_regularizer, bias_constraint)

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool = False,
        use_causal_mask: bool = False,
        mask: Any = None,
    ) -> Any:
        carried = [
            None if mask is None else np.expand_dims(mask, -1),
            _over_values(value),
            _over_values(key),
        ]
        query, value = to_dtype(query, self.compute_dtype), to_dtype(value, self.compute_dtype)
        key = value if key is None else to_dtype(key, self.compute_dtype)
        queries = self._projected("query", query, self.key_dim)
        keys = self._projected("key", key, self.key_dim)
        values = self._projected("value", value, self.value_dim)
        scores = np.matmul(queries / math.sqrt(self.key_dim), np.swapaxes(keys, 2, 3))
        causal = _causal(scores) if use_causal_mask else None
        counts = _all_of(scores, *carried, attention_mask, causal)
        if counts is not None and np.ndim(counts) == 3:
            counts = np.expand_dims(counts, 1)  # the same for all heads
        means, shares, _ = self.attend(scores, values, counts, training)
        side_by_side = np.swapaxes(means, 1, 2)
        outputs = self._put_together(side_by_side, self.output_width or query.shape[-1])
        return [outputs, shares] if return_attention_scores else outputs

    def _projected(self, name: str, inputs: Any, width: int) -> Any:
        """(batch, steps, d) in each subspace: (batch, num_heads, steps, width)."""
        shape = (inputs.shape[-1], self.num_heads, width)
        kernel: Any = self.add_weight(f"{name}/kernel", shape, **self._kernel_options)
        # One product with a matrix, for all heads.
        outputs: Any = np.matmul(inputs, np.reshape(kernel, (shape[0], -1)))
        outputs = outputs.reshape(*inputs.shape[:-1], *shape[1:])
        if self.use_bias:
            outputs = outputs + self.add_weight(f"{name}/bias", shape[1:], **self._bias_options)
        return np.swapaxes(outputs, 1, 2)

    def _put_together(self, means: Any, width: int) -> Any:
        """(batch, steps, num_heads, value_dim) as (batch, steps, width)."""
        shape = (self.num_heads, self.value_dim, width)
        name = "attention_output"
        kernel: Any = self.add_weight(f"{name}/kernel", shape, **self._kernel_options)
        rows = means.reshape(*means.shape[:2], self.num_heads * self.value_dim)
        outputs: Any = np.matmul(rows, np.reshape(kernel, (-1, width)))
        if not self.use_bias:
            return outputs
        return outputs + self.add_weight(f"{name}/bias", (width,), **self._bias_options)


def _sums(query: Any, key: Any, scale: Any) -> Any:
    both = np.expand_dims(query, 2) + np.expand_dims(key, 1)
    return np.tanh(both if scale is None else scale * both).sum(axis=-1)


def _over_values(value: Any) -> Any:
    """The mask that a value or key carries, for all queries."""
    mask = masks_of(value)
    return None if mask is None else np.expand_dims(mask, 1)


def _all_of(scores: Any, *masks: Any) -> Any:
    """What counts by all masks, of which any may be None, beside the scores."""
    given = [beside(mask, scores, bool) for mask in masks if mask is not None]
    return functools.reduce(np.logical_and, given) if given else None


def _causal(scores: Any) -> Array:
    """True up to each query's own place, (1, queries, values)."""
    queries, values = scores.shape[-2:]
    return np.tril(np.ones((1, queries, values), bool))
