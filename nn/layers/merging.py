"""Layers that make one tensor of several."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import filled
from ..policies import to_floats
from .base import Layer
from .options import LayerOptions


class _Merge(Layer):
    """One tensor, element by element, of a list of those that broadcast together."""

    supports_masking = True
    fewest, most = 1, 1 << 30

    def call(self, inputs: Any) -> Any:
        return self.merged(self._several(inputs))

    def _several(self, inputs: Any) -> list[Any]:
        num_inputs = len(inputs) if isinstance(inputs, (list, tuple)) else 0
        if not self.fewest <= num_inputs <= self.most:
            given = num_inputs if num_inputs else "something else"
            wanted = "2 tensors" if self.most == 2 else "tensors"
            raise ValueError(
                f"layer {self.name!r} takes a list of {wanted}, it was given {given}: "
                f"{type(self).__name__}()([a, b])"
            )
        return [to_floats(part, self.compute_dtype) for part in inputs]

    def merged(self, inputs: list[Any]) -> Any:
        raise NotImplementedError

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """What counts in one of the inputs; in all, if one of them has no mask."""
        if any(part is None for part in mask):
            return None
        return functools.reduce(np.logical_or, mask)


class Add(_Merge):
    """The sum of a list of tensors."""

    def merged(self, inputs: list[Any]) -> Any:
        return functools.reduce(operator.add, inputs)


class Subtract(_Merge):
    """The first of two tensors less the second."""

    fewest = most = 2

    def merged(self, inputs: list[Any]) -> Any:
        return inputs[0] - inputs[1]


class Multiply(_Merge):
    """The product of a list of tensors, element by element."""

    def merged(self, inputs: list[Any]) -> Any:
        return functools.reduce(operator.mul, inputs)


class Average(_Merge):
    """The mean of a list of tensors, element by element."""

    def merged(self, inputs: list[Any]) -> Any:
        return functools.reduce(operator.add, inputs) / len(inputs)


class Maximum(_Merge):
    """The largest of a list of tensors, element by element."""

    def merged(self, inputs: list[Any]) -> Any:
        return functools.reduce(np.maximum, inputs)


class Minimum(_Merge):
    """The smallest of a list of tensors, element by element."""

    def merged(self, inputs: list[Any]) -> Any:
        return functools.reduce(np.minimum, inputs)


class Concatenate(_Merge):
    """A list of tensors one behind the other along `axis`."""

    def __init__(self, axis: int = -1, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.axis = axis

    def merged(self, inputs: list[Any]) -> Any:
        return np.concatenate(inputs, self.axis)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The masks one behind the other; of steps that count in all, along a later axis."""
        shapes = [np.shape(part) for part in inputs]
        axis = self.axis % len(shapes[0])
        like = next(part for part in mask if part is not None)
        masks = [
            filled(shape[:2], True, np.bool_, like) if part is None else part
            for part, shape in zip(mask, shapes, strict=True)
        ]
        if axis >= masks[0].ndim:
            return functools.reduce(np.logical_and, masks)
        return np.concatenate(masks, axis)


class Dot(_Merge):
    """Products of two tensors, summed along an axis of each, for each example.

    Args:
        axes: The axis to sum along, or one for each of the two; the batch is axis 0.
        normalize: Whether both are scaled to a norm of 1 along it before: the cosine of two
            vectors.
        **options: See `Layer`.
    """

    fewest = most = 2

    def __init__(
        self, axes: int | Sequence[int], normalize: bool = False, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self.axes = (axes, axes) if isinstance(axes, int) else (axes[0], axes[1])
        self.normalize = normalize
        if 0 in self.axes:
            raise ValueError(f"axes must not be 0, the axis of the batch; they are {axes!r}")

    def merged(self, inputs: list[Any]) -> Any:
        moved = [np.moveaxis(part, axis, -1) for part, axis in zip(inputs, self.axes, strict=True)]
        if self.normalize:
            moved = [part / _norms(part) for part in moved]
        first, second = (
            np.reshape(part, (len(part), math.prod(part.shape[1:-1]), part.shape[-1]))
            for part in moved
        )
        products = np.matmul(first, np.swapaxes(second, 1, 2))
        shape = (len(products), *moved[0].shape[1:-1], *moved[1].shape[1:-1])
        return np.reshape(products, shape if len(shape) > 1 else (len(products), 1))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None: what counted is summed up."""
        return None


def _norms(x: Any) -> Any:
    return np.sqrt(np.maximum(np.square(x).sum(axis=-1, keepdims=True), 1e-12))


def add(inputs: Any, **options: Any) -> Any:
    """`Add(**options)(inputs)`; the functions below are the same of the other layers."""
    return Add(**options)(inputs)


def subtract(inputs: Any, **options: Any) -> Any:
    """`Subtract(**options)(inputs)`."""
    return Subtract(**options)(inputs)


def multiply(inputs: Any, **options: Any) -> Any:
    """`Multiply(**options)(inputs)`."""
    return Multiply(**options)(inputs)


def average(inputs: Any, **options: Any) -> Any:
    """`Average(**options)(inputs)`."""
    return Average(**options)(inputs)


def maximum(inputs: Any, **options: Any) -> Any:
    """`Maximum(**options)(inputs)`."""
    return Maximum(**options)(inputs)


def minimum(inputs: Any, **options: Any) -> Any:
    """`Minimum(**options)(inputs)`."""
    return Minimum(**options)(inputs)


def concatenate(inputs: Any, axis: int = -1, **options: Any) -> Any:
    """`Concatenate(axis, **options)(inputs)`."""
    return Concatenate(axis, **options)(inputs)


def dot(inputs: Any, axes: Any, normalize: bool = False, **options: Any) -> Any:
    """`Dot(axes, normalize, **options)(inputs)`."""
    return Dot(axes, normalize, **options)(inputs)
