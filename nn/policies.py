"""`Policy`: in which precision layers compute, and in which they keep their weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..autodiff import Tensor, lift
from ..inputs import nest
from .masks import masked, masks_of
from .prototypes import forget_prototypes
from .serialization import Serializable

_MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


def dtype_of(dtype: Any) -> np.dtype:
    """A dtype from itself or its name, also "bfloat16", which NumPy alone does not know.

    Raises:
        ImportError: The package `ml_dtypes` is missing.
    """
    if not (isinstance(dtype, str) and dtype == "bfloat16"):
        return np.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(
            "bfloat16 on the host needs the package ml_dtypes; install paceline[bfloat16]"
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


class Policy(Serializable):
    """The dtypes of a layer.

    Under a mixed policy a layer converts its inputs, and its weights where it computes with them,
    to a short dtype; the weights themselves, their gradients and what optimizers keep stay float32.

    Attributes:
        compute_dtype: Of the layer's inputs and outputs.
        variable_dtype: Of its weights.
        is_mixed: Whether the two differ.

    Args:
        name: A dtype by its name, for both; "mixed_float16", or "mixed_bfloat16", which needs the
            package `ml_dtypes` (extra `bfloat16`). NumPy computes slowly with either: on the host
            they are for trying out what a card will do.

    Raises:
        TypeError: No dtype is called so.
        ImportError: `ml_dtypes` is missing.
    """

    is_fixed = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_mixed = name in _MIXED
        self.variable_dtype = np.dtype(np.float32) if self.is_mixed else dtype_of(name)
        self.compute_dtype = dtype_of(_MIXED[name]) if self.is_mixed else self.variable_dtype
        if not self.is_mixed and self.compute_dtype.name == "bfloat16":
            raise TypeError(
                "weights cannot be kept in bfloat16, in which small updates are lost; use the "
                "policy 'mixed_bfloat16', which computes in it"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<Policy {self.name!r}>"


_named = lru_cache(Policy)
_global = [_named("float32")]


def set_global_policy(policy: str | Policy) -> None:
    """Let layers have this policy that are made from now on, in the whole process, without a dtype.

    Under "mixed_float16" the losses that `minimize` gets are scaled, see `LossScaleOptimizer`.
    """
    _global[0] = policy_of(policy)
    forget_prototypes()


def global_policy() -> Policy:
    """That of layers that are given no dtype: float32, if no other was set."""
    return _global[0]


def policy_of(dtype: Any) -> Policy:
    """A policy from itself, its name, or a dtype; that of all for None."""
    if dtype is None:
        return _global[0]
    if isinstance(dtype, Policy):
        return dtype
    return _named(dtype if isinstance(dtype, str) else np.dtype(dtype).name)


def to_dtype(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of `dtype`, through which a gradient flows back."""
    tensor = inputs if type(inputs) is Tensor else _lifted(inputs)
    own = tensor.like().dtype
    return tensor if own is dtype or own == dtype else tensor.astype(dtype)


def to_floats(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of floats: floats as they are, anything else converted to `dtype`."""
    tensor = _lifted(inputs)
    return tensor if tensor.like().dtype.kind == "f" else tensor.astype(dtype)


def _lifted(inputs: Any) -> Tensor:
    if isinstance(inputs, Mapping):
        raise TypeError(
            f"a layer that takes an array was given a dict with the keys {list(inputs)}; give it "
            f"one of the arrays, or make the model with an Input of such a name"
        )
    tensor: Tensor = lift(inputs)
    return tensor


def cast_floats(values: Any, dtype: np.dtype) -> Any:
    """Arrays and tensors of floats, in any structure, in `dtype`; others as they are."""
    return nest.map_structure(lambda value: _cast(value, dtype), values)


def _cast(value: Any, dtype: np.dtype) -> Any:
    tensor = lift(value)
    own = tensor.like().dtype
    if own == dtype or not (own.kind == "f" or own.name == "bfloat16"):
        return value
    cast: Tensor = tensor.astype(dtype)
    mask = masks_of(value)
    return cast if mask is None else masked(cast, mask)
