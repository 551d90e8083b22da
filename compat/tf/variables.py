"""Variables of TensorFlow 1: `get_variable`, `variable_scope` and initializers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ... import strategies
from ...nn import initializers
from ...strategies import Variable, VariableAggregation, VariableSynchronization
from .arguments import refuse
from .conversion import integers


class VariableScope:
    """What `with tf.variable_scope(...) as scope` gives.

    Args:
        name: What is in front of names, without the slash; empty outside of all scopes.
        reuse: Whether what is asked for has been made before.
    """

    def __init__(self, name: str, reuse: bool) -> None:
        self.name = name
        self.reuse = reuse

    def reuse_variables(self) -> None:
        """From now on what is asked for has been made before."""
        self.reuse = True

    def full_name(self, name: str) -> str:
        """A name with that of the scope in front."""
        return f"{self.name}/{name}" if self.name else name


# Each replica is a thread that enters the scopes of its own call of model_fn.
_scope: ContextVar[VariableScope | None] = ContextVar(
    "paceline_compat_variable_scope", default=None
)

AUTO_REUSE = "auto_reuse"


def get_variable_scope() -> VariableScope:
    """The innermost `variable_scope`."""
    return _scope.get() or VariableScope("", reuse=False)


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None = None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Put a name in front of those of variables and of layers that the block names.

    Args:
        name_or_scope: The name, which is put behind that of the scope around; or such a scope.
        default_name: Where there is no name: this one, or with a number if the model has used it.
        reuse: Whether what the block asks for has been made before. Variables are found by their
            names with any; a layer must then be named.
        values, caching_device, partitioner, use_resource, auxiliary_name_scope: Have no effect.
        initializer, regularizer, custom_getter, dtype, constraint: Must be None.

    Raises:
        ValueError: One of these is given, or there is no name.
    """
    instead = "pass it to get_variable, or to the layer"
    refuse(
        "variable_scope",
        ("initializer", initializer, None, instead),
        ("regularizer", regularizer, None, "add a regularizer's value to the loss"),
        ("custom_getter", custom_getter, None, "use tf.variable_creator_scope"),
        ("dtype", dtype, None, instead),
        ("constraint", constraint, None, instead),
    )
    around = get_variable_scope()
    if isinstance(name_or_scope, VariableScope):
        name = name_or_scope.name
    elif name_or_scope is not None:
        name = around.full_name(name_or_scope)
    elif default_name is not None:
        name = strategies.current_store().unique_name(around.full_name(default_name))
    else:
        raise ValueError("variable_scope: name_or_scope or default_name must be given")
    entered = VariableScope(name, bool(reuse) or around.reuse)
    token = _scope.set(entered)
    try:
        yield entered
    finally:
        _scope.reset(token)


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
        name: Its name, behind that of the `variable_scope`.
        shape, dtype, trainable, constraint, synchronization, aggregation: See
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
        get_variable_scope().full_name(name),
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


def glorot_normal_initializer(seed: int | None = None, dtype: Any = None) -> Any:
    """`GlorotNormal`."""
    return initializers.GlorotNormal(seed=seed)


def glorot_uniform_initializer(seed: int | None = None, dtype: Any = None) -> Any:
    """`GlorotUniform`."""
    return initializers.GlorotUniform(seed=seed)


def variance_scaling_initializer(
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    seed: int | None = None,
    dtype: Any = None,
) -> initializers.VarianceScaling:
    """`VarianceScaling`."""
    return initializers.VarianceScaling(scale, mode, distribution, seed)
