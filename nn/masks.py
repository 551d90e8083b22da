"""Which positions of a batch count: a mask that goes with a tensor from layer to layer to loss.

It stays with the tensor, in a slot that is unset on all others; results of operations have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autodiff import Array, Tensor, TensorLike, effect, lift, operation, snapshot, traceable


def mask_of(values: Any) -> Array | None:
    """The mask that goes with `values`: booleans, False where it is padding; None where all count.

    It has the leading axes of `values`: (n, steps) for values of shape (n, steps, units).
    """
    return getattr(values, "mask", None) if isinstance(values, Tensor) else None


def with_mask(values: Any, mask: Array | None) -> Tensor:
    """The tensor `values` itself, from now on with this mask."""
    if mask is not None:
        _attach(mask, values)
    tensor: Tensor = values
    return tensor


@effect
def _attach(mask: Array, values: Any) -> None:
    values.mask = mask


def masks_of(inputs: Any) -> Any:
    """The mask of a tensor; of a list of tensors a list of masks, or None where none has one."""
    if type(inputs) is Tensor:
        return getattr(inputs, "mask", None)
    if isinstance(inputs, (list, tuple)):
        masks = [mask_of(part) for part in inputs]
        return None if all(mask is None for mask in masks) else masks
    return mask_of(inputs)


def masked(outputs: Any, mask: Any) -> Any:
    """The same values with a mask; for a list of tensors, a list of masks, of which any is None.

    One mask for a list is that of the first. A new tensor: a layer may have returned what it was
    given, which others read with another mask.
    """
    if isinstance(outputs, (list, tuple)) and not isinstance(mask, (list, tuple)):
        mask = [mask, *[None] * (len(outputs) - 1)]  # what comes behind is of another shape
    if isinstance(mask, (list, tuple)):
        return type(outputs)(masked(*pair) for pair in zip(outputs, mask, strict=True))
    return outputs if mask is None else with_mask(snapshot(lift(outputs)), _array(mask))


@operation
def beside(mask: Any, like: Any, dtype: Any = None) -> Array:
    """A mask as an array where the tensor `like` lies, in its own dtype or another one."""
    array = mask.tensor().data if isinstance(mask, TensorLike) else mask
    return traceable(np.asarray(array, dtype, like=lift(like).data))


@operation
def _array(mask: Any) -> Array:
    return traceable(lift(mask).data)
