"""`tf.math`: functions of tensors element by element, and along axes."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from ... import autodiff
from .arguments import adapt_all
from .conversion import accept_symbolic, as_tensor, axes, cast, convert, integers, operands, plain

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add": np.add,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "divide": np.divide,
    "equal": np.equal,
    "erf": autodiff.erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "is_finite": np.isfinite,
    "is_inf": np.isinf,
    "is_nan": np.isnan,
    "less": np.less,
    "less_equal": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "log_sigmoid": lambda x: -autodiff.softplus(-x),
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.remainder,
    "multiply": np.multiply,
    "negative": np.negative,
    "not_equal": np.not_equal,
    "pow": np.power,
    "real": np.real,
    "reciprocal": lambda x: 1 / x,
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "scalar_mul": np.multiply,
    "sigmoid": autodiff.sigmoid,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": autodiff.softplus,
    "sqrt": np.sqrt,
    "square": np.square,
    "squared_difference": lambda x, y: np.square(x - y),
    "subtract": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "truediv": np.true_divide,
    "xdivy": lambda x, y: np.where(_is_zero(x), 0, x / np.where(_is_zero(x), 1, y)),
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_all": np.all,
    "reduce_any": np.any,
    "reduce_logsumexp": autodiff.logsumexp,
    "reduce_max": np.max,
    "reduce_mean": np.mean,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_std": np.std,
    "reduce_sum": np.sum,
    "reduce_variance": np.var,
}
_OTHERS = (
    "accumulate_n",
    "add_n",
    "argmax",
    "argmin",
    "confusion_matrix",
    "count_nonzero",
    "cumsum",
    "divide_no_nan",
    "in_top_k",
    "l2_normalize",
    "multiply_no_nan",
    "reduce_euclidean_norm",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "softmax",
    "top_k",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sum",
    "zero_fraction",
)
__all__ = [*_ELEMENTWISE, *_REDUCTIONS, *_OTHERS]


_OPERANDS: dict[str, tuple[str, ...]] = {
    "atan2": ("y", "x"),
    "real": ("input",),
    "scalar_mul": ("scalar", "x"),
    "softplus": ("features",),
    "squared_difference": ("x", "y"),
    "xdivy": ("x", "y"),
}
"""The names of operands in TensorFlow that are not x, or x and y of a NumPy function of two."""


def _of_elements(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    names = _OPERANDS.get(name, ("x", "y")[: getattr(function, "nin", 1)])
    either = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [*(Parameter(n, either) for n in names), Parameter("name", either, default=None)]
    signature = Signature(parameters)

    def apply(*args: Any, **named: Any) -> Any:
        if named or len(args) != len(names):
            given = signature.bind(*args, **named).arguments
            args = tuple(given[n] for n in names)
        return as_tensor(function(*operands(*args)))

    apply.__signature__ = signature  # type: ignore[attr-defined]
    return apply


def _of_axes(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool = False,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Any:
        # The last two are spellings of TensorFlow 1.
        axis = axis if reduction_indices is None else reduction_indices
        keepdims = keepdims if keep_dims is None else keep_dims
        x = convert(input_tensor)
        result = as_tensor(function(x, axis=axes(axis), keepdims=keepdims))
        return result if x.dtype.kind not in "iu" else cast(result, x.dtype)

    return reduce


def _is_zero(x: Any) -> Any:
    return np.asarray(x) == 0


for _names, _make in ((_ELEMENTWISE, _of_elements), (_REDUCTIONS, _of_axes)):
    for _name, _function in _names.items():
        globals()[_name] = _make(_name, _function)
        globals()[_name].__name__ = _name


def add_n(inputs: Any, name: str | None = None) -> Any:
    """The sum of tensors of one shape."""
    first, *rest = [convert(x) for x in inputs]
    for other in rest:
        first = first + other
    return first


def accumulate_n(
    inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Any:
    """The sum of tensors of one shape.

    Raises:
        ValueError: The sum has another shape or dtype than those given.
    """
    total = add_n(inputs)
    if shape is not None and total.shape != integers(shape):
        raise ValueError(f"shape must be that of the tensors, {total.shape}, got {integers(shape)}")
    if tensor_dtype is not None and total.dtype != np.dtype(tensor_dtype):
        raise ValueError(f"tensor_dtype must be that of the tensors, {total.dtype}")
    return total


def argmax(
    input: Any, axis: int | None = None, output_type: Any = np.int64, name: str | None = None
) -> Any:
    """The position of the largest value along an axis, by default the first."""
    return cast(np.argmax(convert(input), axis=0 if axis is None else axis), output_type)


def argmin(
    input: Any, axis: int | None = None, output_type: Any = np.int64, name: str | None = None
) -> Any:
    """The position of the smallest value along an axis, by default the first."""
    return as_tensor(np.argmin(plain(input), axis=0 if axis is None else axis).astype(output_type))


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: int | None = None,
    weights: Any = None,
    dtype: Any = np.int32,
    name: str | None = None,
) -> Any:
    """How many of each class (row) were predicted to be of each (column)."""
    rows, columns = plain(labels), plain(predictions)
    n = num_classes or int(max(rows.max(), columns.max())) + 1
    matrix = np.zeros((n, n), dtype)
    np.add.at(matrix, (rows, columns), 1 if weights is None else plain(weights))
    return as_tensor(matrix)


def count_nonzero(
    input: Any,
    axis: Any = None,
    keepdims: bool = False,
    dtype: Any = np.int64,
    name: str | None = None,
) -> Any:
    """How many values are not zero."""
    return cast(np.sum(cast(convert(input) != 0, dtype), axis=axes(axis), keepdims=keepdims), dtype)


def cumsum(
    x: Any,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Sums up to each element, with it unless `exclusive`; from the end if `reverse`."""
    x = convert(x)
    if reverse:
        return np.flip(cumsum(np.flip(x, axis), axis, exclusive), axis)
    sums = np.cumsum(x, axis=axis)
    return as_tensor(sums - x if exclusive else sums)


def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """`x / y`, and 0 where y is 0."""
    x, y = operands(x, y)
    is_zero = np.asarray(y) == 0
    return as_tensor(np.where(is_zero, 0, x / np.where(is_zero, 1, y)))


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """`x * y`, and 0 where y is 0, whatever x is."""
    x, y = operands(x, y)
    is_zero = np.asarray(y) == 0
    return as_tensor(np.where(is_zero, 0, np.where(is_zero, 0, x) * y))


def in_top_k(targets: Any, predictions: Any, k: int, name: str | None = None) -> Any:
    """Whether fewer than k classes are predicted with more than the true one."""
    scores, rows = plain(predictions), plain(targets)
    of_target = np.take_along_axis(scores, rows[:, None], axis=1)
    return as_tensor((scores > of_target).sum(axis=1) < k)


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None) -> Any:
    """`x` divided by its norm along axes."""
    x = convert(x)
    squares = np.sum(np.square(x), axis=axes(axis), keepdims=True)
    return x / np.sqrt(np.maximum(squares, epsilon))


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Any:
    """The square root of the sum of squares."""
    squares = np.square(convert(input_tensor))
    return as_tensor(np.sqrt(np.sum(squares, axis=axes(axis), keepdims=keepdims)))


def _of_segments(how: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function of rows with the same number, where the largest is known and where it is not."""

    def unsorted(data: Any, segment_ids: Any, num_segments: Any, name: Any = None) -> Any:
        rows = plain(segment_ids)
        return autodiff.segment(convert(data), rows, int(num_segments), how)

    def ordered(data: Any, segment_ids: Any, name: str | None = None) -> Any:
        return unsorted(data, segment_ids, int(np.max(np.asarray(segment_ids))) + 1)

    return unsorted, ordered


unsorted_segment_sum, segment_sum = _of_segments("sum")
unsorted_segment_mean, segment_mean = _of_segments("mean")
unsorted_segment_max, segment_max = _of_segments("max")
unsorted_segment_min, segment_min = _of_segments("min")
unsorted_segment_prod, segment_prod = _of_segments("prod")


def softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Probabilities from logits, along the last axis by default."""
    return autodiff.softmax(convert(logits), -1 if axis is None else axis)


def top_k(
    input: Any,
    k: int = 1,
    sorted: bool = True,
    index_type: Any = np.int32,
    name: str | None = None,
) -> Any:
    """The k largest values along the last axis and their positions, largest first."""
    values, positions = autodiff.top_k(convert(input), int(k))
    return values, as_tensor(positions.astype(index_type))


def zero_fraction(value: Any, name: str | None = None) -> Any:
    """The part of the values that is zero."""
    return as_tensor(np.float32(np.mean(plain(value) == 0)))


accept_symbolic(globals())
adapt_all(globals(), "tf.math")
