"""Activation functions as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor, lift, softmax
from .. import activations
from ..arguments import check_not_negative, check_number
from ..masks import beside
from ..policies import to_dtype, to_floats
from .base import Layer
from .options import Constraint, Initializer, LayerOptions, Regularizer, WeightOf, weight_options


class Activation(Layer):
    """An activation function as a layer.

    Args:
        activation: A name or function, see `nn.activations`.
        **options: See `Layer`.
    """

    supports_masking = True

    def __init__(
        self, activation: str | Callable[[Any], Any], **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Tensor:
        return self.activation(to_floats(inputs, self.compute_dtype))


class ReLU(Layer):
    """`max(x, 0)`, cut off at `max_value` and with a slope below `threshold`: see `nn.relu`."""

    supports_masking = True

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        check_not_negative("max_value", 0 if max_value is None else max_value)
        check_not_negative("negative_slope", negative_slope)
        check_not_negative("threshold", threshold)
        self.max_value = max_value
        self.negative_slope = negative_slope
        self.threshold = threshold

    def call(self, inputs: Any) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """x where it is positive, else `alpha · x`."""

    supports_masking = True

    def __init__(self, alpha: float = 0.3, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        check_not_negative("alpha", alpha)
        self.alpha = alpha

    def call(self, inputs: Any) -> Tensor:
        return activations.leaky_relu(to_floats(inputs, self.compute_dtype), self.alpha)


class ELU(Layer):
    """x where it is positive, else `alpha · (exp(x) - 1)`."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        check_number("alpha", alpha)
        self.alpha = alpha

    def call(self, inputs: Any) -> Tensor:
        return activations.elu(to_floats(inputs, self.compute_dtype), self.alpha)


class Softmax(Layer):
    """`exp(x)`, scaled to sum to 1 along `axis`.

    What a mask, given as `layer(inputs, mask=mask)` in the inputs' shape, leaves out gets 0.
    """

    supports_masking = True

    def __init__(self, axis: int | Sequence[int] = -1, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.axis = axis if isinstance(axis, int) else tuple(axis)

    def call(self, inputs: Any, mask: Any = None) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        return softmax(inputs if mask is None else hidden_where(inputs, mask), self.axis)


class ThresholdedReLU(Layer):
    """x where it is above `theta`, else 0."""

    supports_masking = True

    def __init__(self, theta: float = 1.0, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        check_not_negative("theta", theta)
        self.theta = theta

    def call(self, inputs: Any) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        return lift(np.where(inputs > self.theta, inputs, 0.0))


class PReLU(Layer):
    """x where it is positive, else `alpha · x` with a trained alpha: He et al. (2015).

    Weight: alpha, in the shape of one example, but for the shared axes.

    Args:
        alpha_initializer, alpha_regularizer, alpha_constraint: See `nn.initializers`,
            `nn.regularizers` and `nn.constraints`.
        shared_axes: Along which all have one alpha; (1, 2) for one per channel of images.
        **options: See `Layer`.
    """

    supports_masking = True
    alpha = WeightOf()

    def __init__(
        self,
        alpha_initializer: Initializer = "zeros",
        alpha_regularizer: Regularizer = None,
        alpha_constraint: Constraint = None,
        shared_axes: int | Sequence[int] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self._alpha_options = weight_options(alpha_initializer, alpha_regularizer, alpha_constraint)
        shared = () if shared_axes is None else shared_axes
        self.shared_axes = (shared,) if isinstance(shared, int) else tuple(shared)

    def call(self, inputs: Any) -> Tensor:
        inputs = to_dtype(inputs, self.compute_dtype)
        shape = list(inputs.shape[1:])
        for axis in self.shared_axes:
            shape[axis - 1] = 1
        alpha = self.add_weight("alpha", tuple(shape), **self._alpha_options)
        return np.maximum(inputs, 0.0) + alpha * np.minimum(inputs, 0.0)


def hidden_where(scores: Tensor, mask: Any) -> Tensor:
    """Scores before a softmax that gives 0 to what the mask leaves out.

    As in Keras the largest number is taken off them, and not infinity: where all is left out, none
    of the results is a number otherwise.
    """
    far = -1e9 if scores.dtype.itemsize > 2 else -3e4
    return scores + np.where(beside(mask, scores), 0.0, far).astype(scores.dtype)
