"""`tf.placeholder` for serving receivers: what stands for the inputs of a request."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...estimator.placeholder import Placeholder
from ...inputs import TensorSpec


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Placeholder:
    """What stands for an input of an exported model.

    A `serving_input_receiver_fn` returns it among the `receiver_tensors`, and as a feature, or
    computes features with it. No session feeds it: elsewhere arguments of functions are inputs.

    Args:
        dtype: That of the arrays.
        shape: Its lengths, of which the first is None, for the batch.
        name: The input's name, where it is the only one.
    """
    return Placeholder(TensorSpec(shape, dtype, name), f"tf.placeholder({name or dtype!r})")


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Placeholder:
    """The same with the dtype of `input`; each request must give a value nevertheless."""
    return placeholder(np.asarray(input).dtype, shape, name)
