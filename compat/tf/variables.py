"""Variables of TensorFlow 1: `get_variable` and its initializers."""

from __future__ import annotations

from typing import Any

from ... import strategies
from ...nn import initializers
from ...strategies import Variable, VariableAggregation, VariableSynchronization
from .arguments import refuse
from .conversion import integers


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Find the variable of this name in the current model, or create it.

    Args:
        name, shape, dtype, trainable, constraint, synchronization, aggregation: See
            `paceline.get_variable`.
        initializer: As there, or the name of an initializer, such as "zeros".
        collections, caching_device, partitioner, use_resource: Have no effect.
        regularizer, custom_getter, validate_shape: Must be left at their defaults.

    Raises:
        ValueError: The variable exists with another shape or dtype, or an argument that has no
            meaning here is given.
    """
    refuse(
        "get_variable",
        ("regularizer", regularizer, None, "add regularizer(variable) to the loss"),
        ("custom_getter", custom_getter, None, "use tf.variable_creator_scope"),
        ("validate_shape", validate_shape, True, "variables keep their shapes"),
    )
    if isinstance(initializer, str):
        initializer = initializers.get(initializer)
    is_synchronized = synchronization != VariableSynchronization.ON_READ
    return strategies.get_variable(
        name,
        None if shape is None else integers(shape),
        dtype,
        initializer,
        is_synchronized if trainable is None else trainable,
        synchronization,
        aggregation,
        constraint=constraint,
    )


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, dtype: Any = None
) -> initializers.RandomNormal:
    """`RandomNormal`, whose deviation is 1 by default, and not Keras's 0.05."""
    return initializers.RandomNormal(mean, stddev, seed)


def truncated_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, dtype: Any = None
) -> initializers.TruncatedNormal:
    """`TruncatedNormal`, whose deviation is 1 by default, and not Keras's 0.05."""
    return initializers.TruncatedNormal(mean, stddev, seed)


def random_uniform_initializer(
    minval: float = 0.0, maxval: float | None = None, seed: int | None = None, dtype: Any = None
) -> initializers.RandomUniform:
    """`RandomUniform` from 0 to 1 by default, and not Keras's -0.05 to 0.05."""
    return initializers.RandomUniform(minval, 1.0 if maxval is None else maxval, seed)
