"""Gradients of gradients: backward, computed with tensors, which records itself.

A vjp is code over arrays, and tensors stand where arrays do. Run with a tensor for its gradient, it
gives tensors that remember how they came about, on which backward can be run once more, and again.
A vjp that was written for speed (into buffers, by rows, from what forward saved) says in that case
by which ordinary operations its result is defined (`by_definition`), or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from .backward import reachable
from .indexed_slices import IndexedSlices, Patch
from .indexing import place
from .tensor import Tensor, lift, operand, record
from .tensor_like import Array


def recorded_backward(
    root: Tensor, seed: Tensor, keep: Collection[Tensor] = (), ends: Collection[Tensor] = ()
) -> dict[Tensor, Tensor]:
    """The gradient of `root` for every leaf below it, as tensors with a graph of their own.

    Args:
        root: A tensor that requires a gradient.
        seed: The gradient of `root`, of its shape and dtype.
        keep: Tensors between the leaves and `root` whose gradients are wanted too.
        ends: Tensors at which to stop as at leaves.

    Returns:
        The leaves and ends that were reached, and those of `keep`, each with its gradient. That of
        rows is a whole array here.
    """
    kept = frozenset(keep)
    gradients = {root: seed}
    nodes, _ = reachable(root, ends)
    for node in nodes:
        gradient = gradients.get(node) if node in kept else gradients.pop(node, None)
        if gradient is None:
            continue
        parts = node.vjp(gradient, (None,) * len(node.inputs))  # type: ignore[misc]
        for tensor, part in zip(node.inputs, parts, strict=True):
            if tensor.requires_grad and part is not None:
                part = _whole(part, tensor.data)
                gradients[tensor] = gradients[tensor] + part if tensor in gradients else part
    return gradients


def _whole(part: Any, like: Array) -> Tensor:
    if isinstance(part, IndexedSlices):
        part = place(part.values, part.indices, part.dense_shape, may_repeat=True)
    elif isinstance(part, Patch):
        part = place(part.values, part.index, like.shape, part.may_repeat)
    elif not isinstance(part, Tensor):
        part = Tensor(part)
    return part if part.data.dtype == like.dtype else part.astype(like.dtype)


def by_definition(
    define: Callable[..., Any], g: Tensor, inputs: tuple[Tensor, ...], arrays: tuple[Array, ...]
) -> list[Tensor | None]:
    """What a vjp gives for `g`, with a graph, from another way of computing the same result.

    Args:
        define: The operation by operations whose vjps record themselves.
        g: The gradient of the result.
        inputs: What the operation was called with.
        arrays: The values that these had.
    """
    ends = tuple(
        record(a, (operand(g, x, a),), lambda g, outs: (g,)) if x.requires_grad else lift(a)
        for x, a in zip(inputs, arrays, strict=True)
    )
    found = recorded_backward(define(*ends), g, ends=ends)
    return [found.get(end) for end in ends]


def first_order_only(g: Any, name: str) -> None:
    """Refuse a gradient of a gradient in the vjp of `name`.

    Raises:
        RuntimeError: `g` is a tensor.
    """
    if type(g) is Tensor:
        raise RuntimeError(
            f"the second-order gradient of {name} is not supported; compute what needs the "
            f"gradient of a gradient without it, or call gradient() behind the blocks of all tapes "
            f"or under no_grad() where no gradient of a gradient is wanted"
        )


def seed_of(data: Array, given: Any) -> Tensor:
    """The gradient of a result to begin with: what was given, or ones."""
    if given is None:
        return Tensor(np.ones_like(data))
    if not isinstance(given, Tensor):
        given = Tensor(np.asarray(given, data.dtype, like=data))
    if given.shape != data.shape:
        raise ValueError(
            f"the gradient to begin with must have the shape of its target, {data.shape}, got "
            f"{given.shape}"
        )
    return given if given.dtype == data.dtype else given.astype(data.dtype)
