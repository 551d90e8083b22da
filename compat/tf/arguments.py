"""Arguments of TensorFlow that have another name here, no effect, or no counterpart.

A function that `compat` defines has TensorFlow 2's arguments in its own signature. The tables here
say the rest: names of arguments of functions that other packages define, and spellings of
TensorFlow 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

_FEATURES = {"features": "x"}
_DIM = {"dim": "axis"}

RENAMED: Mapping[str, Mapping[str, str]] = {
    "tf.argmax": {"dimension": "axis"},
    "tf.argmin": {"dimension": "axis"},
    "tf.cond": {"fn1": "true_fn", "fn2": "false_fn"},
    "tf.convert_to_tensor": {"preferred_dtype": "dtype_hint"},
    "tf.count_nonzero": {
        "input_tensor": "input",
        "reduction_indices": "axis",
        "keep_dims": "keepdims",
    },
    "tf.custom_gradient": {"f": "function"},
    "tf.device": {"device_name_or_function": "device_name"},
    "tf.expand_dims": _DIM,
    "tf.gfile.Copy": {"oldpath": "src", "newpath": "dst"},
    "tf.gfile.DeleteRecursively": {"dirname": "path"},
    "tf.gfile.Exists": {"filename": "path"},
    "tf.gfile.Glob": {"filename": "pattern"},
    "tf.gfile.IsDirectory": {"dirname": "path"},
    "tf.gfile.ListDirectory": {"dirname": "path"},
    "tf.gfile.MakeDirs": {"dirname": "path"},
    "tf.gfile.MkDir": {"dirname": "path"},
    "tf.gfile.Remove": {"filename": "path"},
    "tf.gfile.Rename": {"oldname": "src", "newname": "dst"},
    "tf.gfile.Stat": {"filename": "path"},
    "tf.gfile.Walk": {"in_order": "topdown"},
    "tf.math.l2_normalize": _DIM,
    "tf.nest.is_nested": {"seq": "structure"},
    "tf.nn.elu": _FEATURES,
    "tf.nn.gelu": _FEATURES,
    "tf.nn.log_softmax": {"logits": "x", **_DIM},
    "tf.nn.relu": _FEATURES,
    "tf.nn.selu": _FEATURES,
    "tf.nn.softmax": _DIM,
    "tf.nn.softmax_cross_entropy_with_logits": _DIM,
    "tf.nn.softmax_cross_entropy_with_logits_v2": _DIM,
    "tf.nn.softplus": _FEATURES,
    "tf.nn.softsign": _FEATURES,
    "tf.nn.weighted_cross_entropy_with_logits": {"targets": "labels"},
    "tf.norm": {"keep_dims": "keepdims"},
    "tf.ones_like": {"tensor": "input"},
    "tf.squeeze": {"squeeze_dims": "axis"},
    "tf.stop_gradient": {"input": "value"},
    "tf.string_to_number": {"string_tensor": "input"},
    "tf.variable_creator_scope": {"variable_creator": "creator"},
    "tf.zeros_like": {"tensor": "input"},
}
"""By the function: the name of an argument there → its name here."""

NO_EFFECT: Mapping[str, tuple[str, ...]] = {
    "tf.cond": ("strict",),
    "tf.ones_like": ("optimize",),
    "tf.stop_gradient": ("name",),
    "tf.zeros_like": ("optimize",),
    **{
        f"tf.nn.{name}": ("name",)
        for name in (
            "elu",
            "gelu",
            "hard_sigmoid",
            "log_softmax",
            "relu",
            "selu",
            "sigmoid",
            "softplus",
            "softsign",
            "tanh",
        )
    },
}
"""By the function: arguments that say how a graph is to be made, or how fast it is to run."""

NOT_TAKEN: Mapping[str, str] = {
    "tf.distribute.ReplicaContext.replica_id_in_sync_group": "strategies make replica contexts; "
    "tf.distribute.get_replica_context() gives the one at hand",
    "tf.distribute.StrategyExtended.container_strategy": "strategies make it; strategy.extended "
    "is it",
    "tf.estimator.SessionRunContext.original_args": "a training run makes it for its hooks",
    "tf.train.SessionRunContext.original_args": "a training run makes it for its hooks",
}
"""Arguments that calls of users do not have, by function and name, and the reason."""


def refuse(function: str, *arguments: tuple[str, Any, Any, str]) -> None:
    """Refuse arguments that would change a result and are not supported.

    Args:
        function: The name of the function.
        arguments: For each its name, its value, the default, and what to do instead.

    Raises:
        ValueError: A value is not the default.
    """
    for name, value, default, instead in arguments:
        if value is not default and value != default:
            raise ValueError(f"{function}: {name} must be {default!r}, got {value!r}; {instead}")


def adapted(name: str, function: Any) -> Any:
    """The function with all names of arguments that the tables say, or itself if they say none.

    Args:
        name: Its full name in TensorFlow 2; "tf.math.argmax" and the like are those of `tf`.
        function: What stands for it here.
    """
    keys = name, name.replace("tf.math.", "tf.").replace("tf.linalg.", "tf.")
    key = next((key for key in keys if key in RENAMED or key in NO_EFFECT), None)
    return function if key is None else _adapted(key, function)


@cache  # a name that is looked up twice is one function
def _adapted(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
    renamed, no_effect = RENAMED.get(key, {}), NO_EFFECT.get(key, ())
    own = inspect.signature(function).parameters  # without those of a module that adapted it
    renamed = {old: new for old, new in renamed.items() if old not in own}
    no_effect = tuple(name for name in no_effect if name not in own)
    return with_arguments(function, renamed, no_effect) if renamed or no_effect else function


def adapt_all(names: dict[str, Any], prefix: str) -> None:
    """`adapted` for all functions that a module defines, whose names these are."""
    for name, value in list(names.items()):
        is_own = inspect.isfunction(value) and value.__module__ == names["__name__"]
        if is_own and not name.startswith("_"):
            names[name] = adapted(f"{prefix}.{name}", value)


def with_arguments(
    function: Callable[..., Any], renamed: Mapping[str, str], no_effect: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """The function with further names of its arguments, and with arguments of no effect."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return function(*args)
        # An old spelling that is None was not given: TensorFlow's defaults say so.
        for old, new in renamed.items():
            if old in kwargs and (value := kwargs.pop(old)) is not None:
                if new in kwargs and kwargs[new] is not None:
                    raise TypeError(f"{function.__name__}: {old} and {new} mean the same; pass one")
                kwargs[new] = value
        for name in no_effect:
            kwargs.pop(name, None)
        return function(*args, **kwargs)

    own = inspect.signature(function).parameters
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (*renamed, *no_effect)
        if name not in own
    ]
    call.__signature__ = inspect.Signature([*own.values(), *further])  # type: ignore[attr-defined]
    return call
