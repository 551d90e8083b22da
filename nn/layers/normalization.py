"""Batch and layer normalization."""

from __future__ import annotations

import logging
from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, record
from ...observe import log_once
from ...strategies import (
    ReplicaContext,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_replica_context,
)
from .. import regularizers
from ..arguments import check_fraction
from .base import Initializer, Layer, LayerOptions, Regularizer, to_dtype


class _Normalization(Layer):
    """`gamma · (inputs - mean) / √(variance + epsilon) + beta` along the last axis.

    float16 is computed in float32, since squares overflow in it from 256 on.
    """

    def __init__(
        self,
        axis: int,
        epsilon: float,
        center: bool,
        scale: bool,
        beta_initializer: Initializer,
        gamma_initializer: Initializer,
        beta_regularizer: Regularizer,
        gamma_regularizer: Regularizer,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.axis = axis
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self._beta_options = beta_initializer, regularizers.get(beta_regularizer)
        self._gamma_options = gamma_initializer, regularizers.get(gamma_regularizer)

    def prepare(self, inputs: Any) -> tuple[Tensor, Variable | None, Variable | None]:
        """The inputs in the dtype to compute in, gamma and beta."""
        wide = to_dtype(to_dtype(inputs, self.dtype), np.result_type(self.dtype, np.float32))
        shape = wide.shape[-1:]
        if self.axis not in (-1, wide.ndim - 1):
            raise ValueError(
                f"layer {self.name!r} normalizes over the last axis only (axis=-1), not "
                f"axis={self.axis} of inputs of shape {wide.shape}; move that axis to the end with "
                f"np.moveaxis"
            )
        gamma = self.add_weight("gamma", shape, None, *self._gamma_options) if self.scale else None
        beta = self.add_weight("beta", shape, None, *self._beta_options) if self.center else None
        return wide, gamma, beta

    def normalized(
        self, centered: Any, variance: Any, gamma: Variable | None, beta: Variable | None
    ) -> Tensor:
        """The outputs, of inputs less their mean."""
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
        axis: The axis of the channels; only the last is supported.
        momentum: How much of the moving means is kept at each step.
        epsilon: Added to the variance.
        center, scale: Whether there are a beta and a gamma.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer:
            See `nn.initializers`.
        beta_regularizer, gamma_regularizer: See `nn.regularizers`.
        synchronized: Whether the statistics are taken over all replicas, which then meet here in
            each step, forward and backward. Workers at parameter servers do not: there it is over
            those of one worker.
        **options: See `Layer`. With `trainable=False` the layer uses its moving means in training
            too.
    """

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
        *,
        synchronized: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = beta_initializer, gamma_initializer
        penalties = beta_regularizer, gamma_regularizer
        super().__init__(axis, epsilon, center, scale, *initializers, *penalties, **options)
        check_fraction("momentum", momentum)
        self.momentum = momentum
        self.synchronized = synchronized
        self._moving_initializers = moving_mean_initializer, moving_variance_initializer

    def call(self, inputs: Any, training: bool) -> Tensor:
        inputs, gamma, beta = self.prepare(inputs)
        moving_mean, moving_variance = self._moving(inputs.shape[-1:])
        uses_batch = training and self.trainable
        batch = self._of_batch(inputs) if uses_batch else None
        if uses_batch and batch is None:
            _leave_as_they_are(moving_mean, moving_variance)
        if batch is None:
            centered = inputs - moving_mean.value()
            variance = moving_variance.value()
            return self.normalized(centered, variance, gamma, beta)
        mean, centered, variance, is_common = batch
        # Of the values, outside the graph: what moves for later batches is no part of this loss.
        for moving, now in ((moving_mean, mean), (moving_variance, variance)):
            new = self.momentum * moving.value().data + (1 - self.momentum) * now.data
            if is_common:
                moving.assign_common(new)
            else:
                moving.assign(new)
        return self.normalized(centered, variance, gamma, beta)

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

    def _of_batch(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, bool] | None:
        """The mean, the inputs less the mean, the variance, and whether all replicas have these.

        None without examples, on any replica where replicas are synchronized.
        """
        axes = tuple(range(inputs.ndim - 1))
        replica = get_replica_context() if self.synchronized else None
        if replica is not None:
            extended = replica.strategy.extended
            num_others = extended.job.num_trainers - extended.num_workers
            if num_others:
                log_once(
                    logging.WARNING,
                    "Synchronized batch normalization is over the replicas of this worker only: %d "
                    "other worker(s), at parameter servers, do not meet within a step.",
                    num_others,
                )
        if replica is None or replica.strategy.extended.num_replicas == 1:
            if not inputs.size:
                return None
            mean = inputs.mean(axis=axes)
            centered: Tensor = inputs - mean
            return mean, centered, np.square(centered).mean(axis=axes), False
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
        return mean, centered, squares / num_all, True


class LayerNormalization(_Normalization):
    """`gamma · (inputs - mean) / √(variance + epsilon) + beta` over the last axis of each example.

    Ba et al. (2016). Weights: gamma and beta, each (d,) for inputs (..., d). For the arguments see
    `BatchNormalization`; only the last axis is supported.
    """

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer = "zeros",
        gamma_initializer: Initializer = "ones",
        beta_regularizer: Regularizer = None,
        gamma_regularizer: Regularizer = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = beta_initializer, gamma_initializer
        penalties = beta_regularizer, gamma_regularizer
        super().__init__(axis, epsilon, center, scale, *initializers, *penalties, **options)

    def call(self, inputs: Any) -> Tensor:
        inputs, gamma, beta = self.prepare(inputs)
        centered = inputs - inputs.mean(axis=-1, keepdims=True)
        variance = np.square(centered).mean(axis=-1, keepdims=True)
        return self.normalized(centered, variance, gamma, beta)


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
