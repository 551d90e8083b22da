"""Which positions of a batch count: a mask that goes with a tensor from layer to layer to loss.

It stays with the tensor, in a slot that is unset on all others; results of operations have none.
"""

from __future__ import annotations

from typing import Any

from ..autodiff import Array, Tensor


def mask_of(values: Any) -> Array | None:
    """The mask that goes with `values`: booleans, False where it is padding; None where all count.

    It has the leading axes of `values`: (n, steps) for values of shape (n, steps, units).
    """
    return getattr(values, "mask", None) if isinstance(values, Tensor) else None


def with_mask(values: Any, mask: Array | None) -> Tensor:
    """The tensor `values` itself, from now on with this mask."""
    if mask is not None:
        values.mask = mask
    tensor: Tensor = values
    return tensor
