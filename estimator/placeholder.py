"""Placeholders: what stands for arrays of later, and what functions compute from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

import numpy as np

from ..autodiff import no_grad
from ..inputs import TensorSpec
from ..nn.layers import SymbolicTensor, in_order, map_symbolic

_SHORT = (2, 3)
"""The lengths of open dimensions in the two samples from which a `SymbolicTensor` learns shapes."""


@final
class Placeholder(SymbolicTensor):
    """Stands for an array that is not there yet.

    Operators, slices, functions of NumPy and those of `compat.tf` note what is to be computed.

    Args:
        spec: The shape and the dtype of the array.
        path: What it is called in errors.
    """

    def __init__(self, spec: TensorSpec, path: str) -> None:
        super().__init__(None)
        self.spec = spec
        self.path = path

    @property
    def name(self) -> str | None:
        """The name that the spec has."""
        return self.spec.name

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """That of the spec."""
        shape: tuple[int | None, ...] | None = self.spec.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the spec."""
        dtype: np.dtype[Any] = self.spec.dtype
        return dtype

    def set_shape(self, shape: Any) -> None:
        """Tell lengths that are open.

        Args:
            shape: Lengths; None stays as it is, also in the place of all of them.

        Raises:
            ValueError: It contradicts what is known.
        """
        if shape is None:
            return
        told = tuple(shape)
        known = (None,) * len(told) if self.shape is None else self.shape
        fits = len(told) == len(known) and all(
            None in pair or pair[0] == pair[1] for pair in zip(told, known, strict=True)
        )
        if not fits:
            raise ValueError(
                f"set_shape: shape must fit that of {self!r}, got {told}; use tf.reshape for "
                f"another shape"
            )
        lengths = tuple(n if m is None else m for n, m in zip(told, known, strict=True))
        self.spec = replace(self.spec, shape=lengths)

    def _sample(self, index: int) -> Any:
        if self.shape is None:
            raise ValueError(f"{self.path} has no known shape; give its TensorSpec one")
        lengths = [_SHORT[index] if n is None else n for n in self.shape]
        return np.broadcast_to(np.zeros((), self.dtype), lengths)

    def __repr__(self) -> str:
        return f"<placeholder {self.path}: shape {self.shape}, dtype {self.dtype}>"


def placeholders_in(outputs: Any) -> list[Placeholder]:
    """The placeholders from which a structure is computed, each once."""
    return [tensor for tensor in in_order(outputs) if isinstance(tensor, Placeholder)]


def function_of(outputs: Any) -> Callable[[Mapping[int, Any]], Any]:
    """What computes a structure of placeholders, of what was made from them, and of constants.

    Returns:
        A function of the arrays by the identity of their placeholders (`id`).

    Raises:
        ValueError: It is made from inputs of a functional model, which nothing feeds here.
    """
    steps = [tensor for tensor in in_order(outputs) if not isinstance(tensor, Placeholder)]
    for step in steps:
        if step.function is None:
            raise ValueError(
                f"{step!r} is an Input of a functional model, which nothing feeds here; compute "
                f"with what get_next() or tf.placeholder() gave"
            )

    def compute(arrays: Mapping[int, Any]) -> Any:
        values = dict(arrays)
        with no_grad():
            for step in steps:
                parts = [list(step.args), step.kwargs]
                args, kwargs = map_symbolic(lambda part: values[id(part)], parts)
                values[id(step)] = step.function(*args, **kwargs)
        return map_symbolic(lambda part: values[id(part)], outputs)

    return compute
