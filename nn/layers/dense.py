"""Fully connected layers, and what they have in common with convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from ...autodiff import Tensor, dense
from ...strategies import Variable
from .. import activations
from ..arguments import check_no_activity_regularizer, count
from ..policies import to_dtype
from .base import Layer
from .options import Constraint, Initializer, LayerOptions, Regularizer, WeightOf, weight_options


class KernelLayer(Layer):
    """A product with a kernel, perhaps a bias, and an activation: see `Dense` and `Conv2D`."""

    kernel = WeightOf()
    bias = WeightOf()
    computes: tuple[Callable[[Any], Any], ...] = ()
    """The activations that the product computes along with itself, told by their names."""

    def __init__(
        self,
        activation: str | Callable[[Any], Any] | None,
        use_bias: bool,
        kernel_initializer: Initializer,
        bias_initializer: Initializer,
        kernel_regularizer: Regularizer,
        bias_regularizer: Regularizer,
        activity_regularizer: None,
        kernel_constraint: Constraint,
        bias_constraint: Constraint,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        check_no_activity_regularizer(self.name, activity_regularizer)
        self.activation = activations.get(activation)
        self.computed = self.activation.__name__ if self.activation in self.computes else None
        self.use_bias = use_bias
        self._kernel_options = weight_options(
            kernel_initializer, kernel_regularizer, kernel_constraint
        )
        self._bias_options = weight_options(bias_initializer, bias_regularizer, bias_constraint)

    def kernel_and_bias(
        self, *shape: int, units: int | None = None, name: str = "kernel"
    ) -> tuple[Variable, Variable | None]:
        """The kernel of that shape, and the bias for its last axis, or for so many units."""
        kernel = self.add_weight(name, shape, **self._kernel_options)
        if not self.use_bias:
            return kernel, None
        bias_shape = shape[-1:] if units is None else (units,)
        return kernel, self.add_weight("bias", bias_shape, **self._bias_options)

    def activated(self, product: Tensor) -> Tensor:
        """The layer's outputs: its activation, unless the product has computed that as well."""
        return product if self.computed else self.activation(product)


class Dense(KernelLayer):
    """`activation(inputs @ kernel + bias)` over the last axis.

    Inputs (..., d) give outputs (..., units). Weights: kernel (d, units), bias (units,).

    Args:
        units: The length of the outputs' last axis.
        activation: A name or function, see `nn.activations`; none by default.
        use_bias: Whether there is a bias.
        kernel_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, bias_regularizer: See `nn.regularizers`.
        activity_regularizer: Only None is supported.
        kernel_constraint, bias_constraint: See `nn.constraints`.
        **options: See `Layer`.
    """

    supports_masking = True
    computes = (activations.relu, activations.sigmoid, activations.tanh)

    def __init__(
        self,
        units: int,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            activity_regularizer,
            kernel_constraint,
            bias_constraint,
            **options,
        )
        self.units = count("units", units)

    def call(self, inputs: Any) -> Tensor:
        inputs = to_dtype(inputs, self.compute_dtype)
        kernel, bias = self.kernel_and_bias(inputs.shape[-1], self.units)
        return self.activated(dense(inputs, kernel, bias, self.computed))
