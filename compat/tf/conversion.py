"""Values as tensors with TensorFlow's dtypes: Python's floats are float32, its integers int32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any

import numpy as np

from ...autodiff import Tensor, TensorLike, is_array
from ...inputs import nest
from ...nn.layers import SymbolicTensor, symbolic_in
from ...strategies import DistributedValues
from ...training import name_value

_NARROW = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}


def convert(value: Any, dtype: Any = None) -> Any:
    """A tensor (or variable) as it is, anything else as a tensor.

    Args:
        value: A number, text, an array, or nested lists of these or of tensors.
        dtype: What to convert to. By default arrays keep theirs; numbers and lists become float32
            and int32.
    """
    if not isinstance(value, TensorLike):
        value = Tensor(_array(value, dtype))
    if dtype is None or value.dtype == np.dtype(dtype):
        return value
    return cast(value, dtype)


def _array(value: Any, dtype: Any) -> Any:
    if isinstance(value, SymbolicTensor):
        return np.asarray(value)  # which says that there are no values yet
    if hasattr(value, "__array_ufunc__"):
        return value
    if isinstance(value, list | tuple) and any(isinstance(v, TensorLike) for v in value):
        return np.stack([convert(v) for v in value]).data
    array = np.asarray(value, dtype)
    chosen = dtype is not None or has_dtype(value)
    return array if chosen else array.astype(_NARROW.get(array.dtype, array.dtype), copy=False)


def has_dtype(value: Any) -> bool:
    """Whether the value, or the innermost item of its lists, chose its own dtype."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype")


def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor:
    """`x` in another dtype. Gradients flow through it between floating dtypes."""
    tensor, wanted = convert(x).tensor(), np.dtype(dtype)
    if wanted.kind != "f" and tensor.requires_grad:
        return Tensor(tensor.data.astype(wanted))
    cast_to: Tensor = as_tensor(tensor.astype(wanted))
    return cast_to


def conjugate(x: Any) -> Any:
    """The conjugates of complex numbers, through which no gradient flows; others as they are.

    Raises:
        TypeError: A gradient would have to.
    """
    tensor = x.tensor()
    if tensor.dtype.kind != "c":
        return x
    return np.conj(tensor) if tensor.requires_grad else Tensor(np.conj(tensor.data))


def plain(value: Any) -> np.ndarray:
    """The values as an array, outside the graph."""
    array: np.ndarray = convert(value).numpy()
    return array


def operands(*values: Any) -> list[Any]:
    """Operands of one operation: a Python number takes the dtype of an array that it meets."""
    if any(hasattr(value, "dtype") for value in values):
        return [v if isinstance(v, int | float) else convert(v) for v in values]
    return [convert(value) for value in values]


def as_tensor(value: Any) -> Any:
    """The result of an operation: arrays and numbers as tensors, anything else as it is."""
    return Tensor(value) if is_array(value) else value


def constants_as_tensors(structure: Any) -> Any:
    """What a `tf.function` returns: arrays and numbers in it as tensors, those of replicas too.

    A Python number that all replicas returned is one constant.
    """

    def leaf(value: Any) -> Any:
        if isinstance(value, DistributedValues):
            first = value.values[0]
            if isinstance(first, int | float) and all(v is first for v in value.values):
                return convert(first)
            return type(value)([constants_as_tensors(v) for v in value.values])
        if is_array(value) or isinstance(value, int | float):
            return convert(value)
        return value

    return nest.map_structure(leaf, structure)


def on_symbolic(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be used in functional models as well: of symbolic tensors one more.

    In a `model_fn` hooks may ask for what it gives by the `name` that it is called with.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if symbolic_in((args, kwargs)):
            return SymbolicTensor(call, args, kwargs)
        found = function(*args, **kwargs)
        if kwargs.get("name") is not None:
            name_value(kwargs["name"], found)
        return found

    return call


def accept_symbolic(names: dict[str, Any]) -> None:
    """The same for all functions that a module defines, whose names these are."""
    for name, value in list(names.items()):
        is_own = isfunction(value) and value.__module__ == names["__name__"]
        if is_own and not name.startswith("_"):
            names[name] = on_symbolic(value)


def integers(values: Any) -> tuple[int, ...]:
    """A shape, or another sequence of whole numbers, of which some may be tensors."""
    if isinstance(values, TensorLike | np.ndarray):
        values = np.asarray(values).tolist()
    return tuple(int(v) for v in values) if isinstance(values, Sequence) else (int(values),)


def axes(axis: Any) -> Any:
    """An axis or several, as NumPy takes them."""
    return axis if axis is None or isinstance(axis, int) else one_or_all(integers(axis))


def one_or_all(numbers: tuple[int, ...]) -> Any:
    return numbers[0] if len(numbers) == 1 else numbers
