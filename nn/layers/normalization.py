"""Batch and layer normalization."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, effect, fused, normalize, record
from ...observe import log_once
from ...strategies import (
    ReplicaContext,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_replica_context,
)
from ..arguments import check_fraction, count
from ..policies import to_dtype, to_floats
from .base import Layer
from .options import Constraint, Initializer, LayerOptions, Regularizer, WeightOf, weight_options


class _Normalization(Layer):
    """`gamma · (inputs - mean) / √(variance + epsilon) + beta`.

    float16 is computed in float32, since squares overflow in it from 256 on.
    """

    supports_masking = True
    _casts_weights = False  # a mean that moves by little would stand still
    gamma = WeightOf()
    beta = WeightOf()

    def __init__(
        self,
        axis: int | Sequence[int],
        epsilon: float,
        center: bool,
        scale: bool,
        beta_initializer: Initializer,
        gamma_initializer: Initializer,
        beta_regularizer: Regularizer,
        gamma_regularizer: Regularizer,
        beta_constraint: Constraint,
        gamma_constraint: Constraint,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.axis = axis if isinstance(axis, int) else tuple(axis)
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self._beta_options = weight_options(beta_initializer, beta_regularizer, beta_constraint)
        self._gamma_options = weight_options(gamma_initializer, gamma_regularizer, gamma_constraint)

    def to_wide(self, inputs: Any) -> Tensor:
        """The inputs in the dtype to compute in."""
        return to_dtype(to_dtype(inputs, self.dtype), np.result_type(self.dtype, np.float32))

    def axes(self, ndim: int) -> tuple[int, ...]:
        """`axis` as positions from 0, of inputs with so many axes."""
        given = (self.axis,) if isinstance(self.axis, int) else self.axis
        if any(not -ndim <= axis < ndim for axis in given):
            raise ValueError(
                f"layer {self.name!r} has axis={self.axis}, its inputs have {ndim} axes"
            )
        return tuple(sorted(axis % ndim for axis in given))

    def gamma_and_beta(self, shape: tuple[int, ...]) -> tuple[Variable | None, Variable | None]:
        """The weights, each of that shape."""
        gamma = self.add_weight("gamma", shape, **self._gamma_options) if self.scale else None
        beta = self.add_weight("beta", shape, **self._beta_options) if self.center else None
        return gamma, beta

    def normalized(self, centered: Any, variance: Any, gamma: Any, beta: Any) -> Tensor:
        """The outputs, of inputs less their mean; gamma and beta broadcast to them."""
        factor = 1.0 / np.sqrt(variance + self.epsilon)
        if gamma is not None:
            factor = factor * gamma
        outputs = centered * factor
        return to_dtype(outputs if beta is None else outputs + beta, self.dtype)


class BatchNormalization(_Normalization):
    """`gamma · (inputs - mean) / √(variance + epsilon) + beta`, for every channel.

    Ioffe and Szegedy (2015). In training the mean and variance are those of the batch, over all
    axes but the last; elsewhere they are moving means of them. Weights: gamma, beta, moving_mean,
    moving_variance, each (channels,).

    Every replica normalizes by its own batch, and moves its own means; read outside replicas (and
    so saved) they are the mean over the replicas. With `synchronized` the statistics are those of
    the global batch, to the last example: N replicas compute what one would. A batch without
    examples has no statistics and leaves the moving means alone. float16 is computed in float32,
    as in Keras. The variance is that of the batch itself (divided by n, as in Keras 3), in the
    moving mean too.

    Args:
        axis: The axis of the channels: 1 where they come first.
        momentum: How much of the moving means is kept at each step.
        epsilon: Added to the variance.
        center, scale: Whether there are a beta and a gamma.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer:
            See `nn.initializers`.
        beta_regularizer, gamma_regularizer: See `nn.regularizers`.
        beta_constraint, gamma_constraint: See `nn.constraints`.
        synchronized: Whether the statistics are taken over all replicas, which then meet here in
            each step, forward and backward. Workers at parameter servers do not: there it is over
            those of one worker.
        **options: See `Layer`. With `trainable=False` the layer uses its moving means in training
            too.
    """

    moving_mean = WeightOf()
    moving_variance = WeightOf()

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer = "zeros",
        gamma_initializer: Initializer = "ones",
        moving_mean_initializer: Initializer = "zeros",
        moving_variance_initializer: Initializer = "ones",
        beta_regularizer: Regularizer = None,
        gamma_regularizer: Regularizer = None,
        beta_constraint: Constraint = None,
        gamma_constraint: Constraint = None,
        *,
        synchronized: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = beta_initializer, gamma_initializer
        limits = beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint
        super().__init__(axis, epsilon, center, scale, *initializers, *limits, **options)
        check_fraction("momentum", momentum)
        self.momentum = momentum
        self.synchronized = synchronized
        self._moving_initializers = moving_mean_initializer, moving_variance_initializer

    def call(self, inputs: Any, training: bool) -> Any:
        wide = self.to_wide(inputs)
        (axis,) = self.axes(wide.ndim)
        if axis == wide.ndim - 1:
            return self._of_channels_last(wide, training)
        moved: Any = np.moveaxis(wide, axis, -1)  # type: ignore[type-var]
        return np.moveaxis(self._of_channels_last(moved, training), -1, axis)  # type: ignore[type-var]

    def _of_channels_last(self, inputs: Any, training: bool) -> Tensor:
        gamma, beta = self.gamma_and_beta(inputs.shape[-1:])
        moving_mean, moving_variance = self._moving(inputs.shape[-1:])
        uses_batch = training and self.trainable
        meets_others = uses_batch and self._meets_others()
        if uses_batch and not meets_others and inputs.size:
            axes = tuple(range(inputs.ndim - 1))
            outputs, mean, variance = normalize(inputs, axes, self.epsilon, gamma, beta)
            self._move(moving_mean, mean)
            self._move(moving_variance, variance)
            return to_dtype(outputs, self.dtype)
        common = self._of_all(inputs) if meets_others else None
        if uses_batch and common is None:
            _leave_as_they_are(moving_mean, moving_variance)
        if common is None:
            centered = inputs - moving_mean.value()
            return self.normalized(centered, moving_variance.value(), gamma, beta)
        mean_of_all, centered, variance_of_all = common
        self._move(moving_mean, mean_of_all, is_common=True)
        self._move(moving_variance, variance_of_all, is_common=True)
        return self.normalized(centered, variance_of_all, gamma, beta)

    @effect
    def _move(self, moving: Variable, now: Tensor | Array, is_common: bool = False) -> None:
        # Of the values, outside the graph: what moves for later batches is no part of this loss.
        assign = moving.assign_common if is_common else moving.assign
        held, now = moving.tensor().data, now.data if isinstance(now, Tensor) else now
        now = now.reshape(moving.shape)
        if isinstance(held, np.ndarray):
            assign(self.momentum * held + (1 - self.momentum) * now)
        else:
            assign(fused(_average, held, now, numbers=(self.momentum, 1 - self.momentum)))

    def _moving(self, shape: tuple[int, ...]) -> list[Variable]:
        names = ("moving_mean", "moving_variance")
        return [
            self.add_weight(
                name,
                shape,
                initializer=initializer,
                trainable=False,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.MEAN,
            )
            for name, initializer in zip(names, self._moving_initializers, strict=True)
        ]

    def _meets_others(self) -> bool:
        """Whether the calling replica has to meet others, for the statistics of their batches."""
        replica = get_replica_context() if self.synchronized else None
        if replica is None:
            return False
        extended = replica.strategy.extended
        num_others = extended.job.num_trainers - extended.num_workers
        if num_others:
            log_once(
                logging.WARNING,
                "Synchronized batch normalization is over the replicas of this worker only: %d "
                "other worker(s), at parameter servers, do not meet within a step.",
                num_others,
            )
        return extended.num_replicas > 1

    @effect
    def _of_all(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """The mean over all replicas, the inputs less the mean, and the variance.

        None where no replica has an example.
        """
        replica = get_replica_context()
        assert replica is not None
        axes = tuple(range(inputs.ndim - 1))
        weight = float(inputs.shape[0]) if current_store().averages_replicas else 1.0
        num_values = inputs.size // inputs.shape[-1]
        num_all = float(replica.all_reduce("SUM", np.float64(num_values)))
        if not num_all:
            return None
        # Mean first, then squares around it: Σx² / n - mean² needs one meeting instead of two, but
        # its digits cancel where the mean is large.
        total = sum_over_replicas(inputs.sum(axis=axes), replica, weight)
        mean = total / num_all
        centered = inputs - mean
        squares = sum_over_replicas(np.square(centered).sum(axis=axes), replica, weight)
        return mean, centered, squares / num_all


class LayerNormalization(_Normalization):
    """`gamma · (inputs - mean) / √(variance + epsilon) + beta` over the last axis of each example.

    Ba et al. (2016). Weights: gamma and beta, each (d,) for inputs (..., d).

    Args:
        axis: The axis, or axes, over which each example's mean and variance are; gamma and beta
            have their lengths.
        epsilon, center, scale, beta_initializer, gamma_initializer, beta_regularizer,
            gamma_regularizer, beta_constraint, gamma_constraint, **options: See
            `BatchNormalization`.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer = "zeros",
        gamma_initializer: Initializer = "ones",
        beta_regularizer: Regularizer = None,
        gamma_regularizer: Regularizer = None,
        beta_constraint: Constraint = None,
        gamma_constraint: Constraint = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = beta_initializer, gamma_initializer
        limits = beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint
        super().__init__(axis, epsilon, center, scale, *initializers, *limits, **options)

    def call(self, inputs: Any) -> Tensor:
        wide = self.to_wide(inputs)
        axes = self.axes(wide.ndim)
        gamma, beta = self.gamma_and_beta(tuple(wide.shape[axis] for axis in axes))
        if axes != (wide.ndim - 1,):
            lengths = tuple(n if axis in axes else 1 for axis, n in enumerate(wide.shape))
            gamma, beta = (None if w is None else np.reshape(w, lengths) for w in (gamma, beta))  # type: ignore
        outputs, _, _ = normalize(wide, axes, self.epsilon, gamma, beta)
        return to_dtype(outputs, self.dtype)


class GroupNormalization(_Normalization):
    """Normalization of groups of channels, over all positions of each example: Wu and He (2018).

    Weights: gamma and beta, each (channels,).

    Args:
        groups: How many groups of neighbouring channels; -1 for one of each channel.
        axis: That of the channels.
        epsilon, center, scale, beta_initializer, gamma_initializer, beta_regularizer,
            gamma_regularizer, beta_constraint, gamma_constraint, **options: See
            `BatchNormalization`.
    """

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer = "zeros",
        gamma_initializer: Initializer = "ones",
        beta_regularizer: Regularizer = None,
        gamma_regularizer: Regularizer = None,
        beta_constraint: Constraint = None,
        gamma_constraint: Constraint = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = beta_initializer, gamma_initializer
        limits = beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint
        super().__init__(axis, epsilon, center, scale, *initializers, *limits, **options)
        self.groups = groups if groups == -1 else count("groups", groups)

    def call(self, inputs: Any) -> Any:
        wide: Any = self.to_wide(inputs)
        (axis,) = self.axes(wide.ndim)
        wide = np.moveaxis(wide, axis, -1)
        channels = wide.shape[-1]
        groups = channels if self.groups == -1 else self.groups
        if channels % groups:
            raise ValueError(
                f"layer {self.name!r} splits channels into {groups} groups, there are {channels}"
            )
        places = math.prod(wide.shape[1:-1])
        grouped = np.reshape(wide, (len(wide), places, groups, channels // groups))
        gamma, beta = self.gamma_and_beta((channels,))
        own = (groups, channels // groups)
        gamma, beta = (None if w is None else np.reshape(w, own) for w in (gamma, beta))  # type: ignore
        outputs, _, _ = normalize(grouped, (1, 3), self.epsilon, gamma, beta)
        return np.moveaxis(to_dtype(outputs, self.dtype).reshape(wide.shape), -1, axis)


class UnitNormalization(Layer):
    """Each example, scaled to a norm of 1 along `axis`."""

    supports_masking = True

    def __init__(self, axis: int | Sequence[int] = -1, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.axis = axis if isinstance(axis, int) else tuple(axis)

    def call(self, inputs: Any) -> Any:
        inputs = to_floats(inputs, self.compute_dtype)
        squares = np.square(inputs).sum(axis=self.axis, keepdims=True)
        return inputs / np.sqrt(np.maximum(squares, 1e-12))


def _average(held: Any, now: Any, momentum: float, rest: float) -> Any:
    return momentum * held + rest * now


def _leave_as_they_are(*moving: Variable) -> None:
    """Take part in what other replicas assign, who may share a copy, with nothing to say to it."""
    replica = get_replica_context()
    if replica is not None:
        with replica.standing_in():
            for variable in moving:
                variable.assign(variable.value())


def sum_over_replicas(values: Tensor, replica: ReplicaContext, weight: float = 1.0) -> Tensor:
    """The sum of a tensor over all replicas, through which gradients flow back to all of them.

    All replicas must call it with equal shapes, and all must run backward through it. `weight` is
    what this replica's gradients are multiplied by later, when replicas are averaged. Each
    replica's loss depends on the sum; a gradient from another replica counts with that one's
    weight. With 0, that of a replica without examples, whatever it gets weighs nothing, so that it
    may be any number.
    """

    def vjp(gradient: Array, outs: Any) -> tuple[Array]:
        return (replica.all_reduce("SUM", gradient * weight) / (weight or 1.0),)

    return record(replica.all_reduce("SUM", values.data), (values,), vjp)
