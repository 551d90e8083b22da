"""What is legal in a `model_fn` and most likely not meant; looked for in one call of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from ..autodiff import Tensor
from ..strategies import current_store

_logger = logging.getLogger("paceline")


def warn_of_likely_mistakes(
    loss: Tensor | None, num_examples: int, called_for_inference: Sequence[str]
) -> None:
    """Log a warning for each that is found.

    Args:
        loss: What a `model_fn` returned in training.
        num_examples: The number of examples in the batch.
        called_for_inference: Names of layers that were called with `training=False`.
    """
    if called_for_inference:
        _logger.warning(
            "model_fn trains, but calls %s with training=False: dropout drops nothing, and batch "
            "normalization collects no statistics. Pass training=mode == ModeKeys.TRAIN to the "
            "model, or trainable=False to layers that are meant to be frozen.",
            ", ".join(called_for_inference),
        )
    if loss is None:
        return
    if broadcast_over_examples(loss, num_examples):
        _logger.warning(
            "The loss of %d examples compares each of them with every other one, in an array of "
            "shape (%d, %d): NumPy does that to predictions of shape (%d, 1) and labels of shape "
            "(%d,). Reshape one of them, or use a function of paceline.nn.losses, which does.",
            *[num_examples] * 5,
        )
    if _is_wider_than_the_model(loss):
        _logger.warning(
            "The loss is float64 although no variable is, which doubles the time of a step and "
            "changes nothing else: most likely features or labels are; "
            "convert them in input_fn with .astype(np.float32)."
        )


def broadcast_over_examples(loss: Tensor, num_examples: int) -> bool:
    """Whether the loss depends on an outer difference (n, n) of what has one value per example.

    Results of (n, n) are common where n is also a number of features. So an array counts only where
    all that it was computed from has n elements, and is not itself a variable (a bias, say).
    """
    outer = (num_examples, num_examples)
    return num_examples > 1 and any(
        node.data.shape == outer and all(_is_per_example(p, num_examples) for p in node.inputs)
        for node in _inner_nodes(loss)
    )


def _is_per_example(part: Tensor, num_examples: int) -> bool:
    is_variable = part.requires_grad and not part.inputs
    return np.size(part.data) == num_examples and not is_variable


def _inner_nodes(loss: Tensor) -> Iterator[Tensor]:
    """Every tensor that the loss was computed from by way of others, and the loss, once each."""
    found = {id(loss): loss}
    waiting = [loss]
    while waiting:
        node = waiting.pop()
        if not node.inputs:
            continue
        yield node
        new = {id(part): part for part in node.inputs if id(part) not in found}
        found |= new
        waiting += new.values()


def _is_wider_than_the_model(loss: Tensor) -> bool:
    trained = [v.dtype for v in current_store().variables.values() if v.trainable]
    return loss.dtype == np.float64 and bool(trained) and np.dtype(np.float64) not in trained
