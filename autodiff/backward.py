"""Backward: carry a gradient from one tensor to the leaves of its graph (reverse-mode autodiff)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from .indexed_slices import IndexedSlices, Patch
from .tensor import Tensor
from .tensor_like import Array

Gradient: TypeAlias = "Array | IndexedSlices"
OnReady: TypeAlias = Callable[[Tensor, Gradient], None]

_PARTIAL = frozenset((IndexedSlices, Patch))


def backward(
    root: Tensor,
    seed: Array | None = None,
    into: Mapping[Tensor, Array] | None = None,
    on_ready: OnReady | None = None,
    keep: Collection[Tensor] = (),
) -> dict[Tensor, Gradient]:
    """Compute the gradient of `root` for every leaf below it.

    Args:
        root: A tensor that requires a gradient; where it is no scalar, the gradient of its sum is
            computed.
        seed: The gradient of `root` itself, of its shape; ones by default. An array of its dtype
            is owned by the call, which may overwrite it.
        into: Buffers of the leaves' shapes and dtypes. The gradient of a leaf that has one is
            written into it (not added to what is there); other leaves get fresh arrays.
        on_ready: Called as soon as the gradient of a leaf is complete, while others are still to
            come. Leaves that the gradient never reaches are not reported.
        keep: Tensors between the leaves and `root` whose gradients are wanted too.

    Returns:
        The leaves that were reached (and those of `keep`), each with its buffer, a fresh array, or
        `IndexedSlices` where only rows of it were read: these never go into the buffer.
    """
    if not root.requires_grad:
        raise ValueError(
            "there is nothing to differentiate: the loss depends on no variable "
            "(was it computed under no_grad, through stop_gradient, or from .numpy() values?)"
        )
    if root.go_backward is not None and into and on_ready is not None and not keep:
        found: dict[Tensor, Gradient] | None = root.go_backward(seed, into, on_ready)
        if found is not None:
            return found
    nodes, uses_left = reachable(root)
    run = _Run(root, seed, into or {}, uses_left, on_ready)
    kept = frozenset(keep)
    for node in nodes:
        if node.go_backward is not None and node is not root and not kept and run.is_left_to(node):
            # What is left is the way back from it, which it may know how to go at once.
            seed = run.gradients.pop(node)
            return run.gradients | backward(node, seed, into, on_ready)
        run.step(node, node in kept)
    return run.gradients


class _Run:
    """The gradients on their way through one graph."""

    __slots__ = ("gradients", "into", "on_ready", "uses_left")

    def __init__(
        self,
        root: Tensor,
        seed: Array | None,
        into: Mapping[Tensor, Array],
        uses_left: dict[Tensor, int],
        on_ready: OnReady | None,
    ) -> None:
        self.gradients: dict[Tensor, Gradient] = {}
        self.into = into
        self.uses_left = uses_left
        self.on_ready = on_ready
        self.add(root, _seed(root.data, seed), into.get(root))
        if root.vjp is None:  # the root is itself a leaf
            uses_left[root] = 1
            self.finish(root)

    def is_left_to(self, node: Tensor) -> bool:
        """Whether all gradients but that of `node` are those of leaves, and complete."""
        left = self.uses_left
        return all(tensor is node or left.get(tensor) == 0 for tensor in self.gradients)

    def step(self, node: Tensor, keep: bool) -> None:
        """Carry the gradient of `node` on to its inputs."""
        inputs, gradients = node.inputs, self.gradients
        parts: Sequence[Any] = (None,) * len(inputs)
        outs: Sequence[Array | None] = parts
        gradient = gradients.pop(node, None)  # its memory is free again after this node
        if gradient is not None:  # else reachable, but no vjp on the way gave it anything
            if keep:
                gradients[node] = gradient.copy()  # type: ignore[union-attr]
            if self.into:
                outs = self.buffers(inputs)
            parts = node.vjp(gradient, outs)  # type: ignore[misc]
        for tensor, part, out in zip(inputs, parts, outs):  # noqa: B905 (hot; `parts` is a vjp's)
            if not tensor.requires_grad:
                continue
            if part is None:
                pass
            elif part is out:  # a leaf's first one, written where it belongs
                gradients[tensor] = part
            else:
                self.add(tensor, part, out)
            if tensor.vjp is None:
                self.finish(tensor)

    def buffers(self, inputs: tuple[Tensor, ...]) -> list[Array | None]:
        """The buffer of each input whose gradient begins here, once where a leaf occurs twice."""
        into, gradients = self.into, self.gradients
        outs: list[Array | None] = []
        for tensor in inputs:
            out = None if tensor in gradients else into.get(tensor)
            if out is not None:
                for other in outs:
                    if other is out:
                        out = None
            outs.append(out)
        return outs

    def add(self, tensor: Tensor, part: Any, out: Array | None) -> None:
        """Add one contribution to the gradient of `tensor`; the first one may have its buffer."""
        gradients = self.gradients
        if type(part) in _PARTIAL:
            self.add_partial(tensor, part)
        elif tensor in gradients:
            total = self.dense(tensor, gradients[tensor])
            gradients[tensor] = np.add(total, part, out=total)
        elif out is not None:
            out[...] = part
            gradients[tensor] = out
        elif part.dtype is tensor.data.dtype and not isinstance(part, np.generic):
            # The common case, by identity: dtypes of one kind are one object, and == costs more.
            gradients[tensor] = part
        else:
            gradients[tensor] = np.asarray(part, tensor.data.dtype, like=tensor.data)

    def add_partial(self, tensor: Tensor, part: IndexedSlices | Patch) -> None:
        """The same for a contribution to some elements only; only rows of leaves stay sparse."""
        total = self.gradients.get(tensor)
        if type(part) is Patch or tensor.vjp is not None:
            total = self.dense(tensor, total)
        self.gradients[tensor] = part if total is None else part.add_to(total)

    def dense(self, tensor: Tensor, total: Gradient | None) -> Array:
        """The gradient so far as a whole array that can be added to."""
        if total is not None and not isinstance(total, IndexedSlices):
            return total
        data = tensor.data
        zeros = self.into.get(tensor) if tensor.vjp is None else None
        if zeros is None:
            zeros = np.zeros(data.shape, data.dtype, like=data)
        else:
            zeros[...] = 0
        return zeros if total is None else total.add_to(zeros)

    def finish(self, leaf: Tensor) -> None:
        """Count one use of `leaf` as done, and report it after the last one."""
        left = self.uses_left[leaf] = self.uses_left[leaf] - 1
        if left == 0 and self.on_ready is not None:
            gradient = self.gradients.get(leaf)
            if gradient is not None:
                self.on_ready(leaf, gradient)


def _seed(data: Array, given: Any) -> Array:
    """The gradient of the root, whose values are `data`, to begin with."""
    if given is None:
        seed = np.empty_like(data)
        seed.fill(1)
        return seed
    seed = np.asarray(given, data.dtype, like=data)
    if seed.shape != data.shape:
        raise ValueError(
            f"the seed of backward must have the shape of its root, {data.shape}, got {seed.shape}"
        )
    return seed


def reachable(
    root: Tensor, ends: Collection[Tensor] = ()
) -> tuple[list[Tensor], dict[Tensor, int]]:
    """The operations below `root`, newest first, and how often each leaf is used by them.

    A tensor is made after its inputs, so that newest first is an order in which every gradient is
    complete before it is carried on. Below `ends` it does not look.
    """
    nodes: list[Tensor] = []
    uses: dict[Tensor, int] = {}
    seen = {root}
    if ends:
        seen.update(ends)
    stack = [root] if root.vjp is not None else []
    while stack:
        node = stack.pop()
        nodes.append(node)
        for tensor in node.inputs:
            if not tensor.requires_grad:
                continue
            if tensor.vjp is None:
                if tensor.changed_at > node.order:
                    raise _changed(tensor)
                uses[tensor] = uses.get(tensor, 0) + 1
            elif tensor not in seen:
                seen.add(tensor)
                stack.append(tensor)
    nodes.sort(key=attrgetter("order"), reverse=True)
    return nodes, uses


def _changed(leaf: Tensor) -> RuntimeError:
    return RuntimeError(
        f"{leaf.label} was changed in place after the loss was computed from it, so that its "
        f"gradient can no longer be computed; compute all gradients before the first update (one "
        f"train op for several losses: optimizers.group), or with GradientTape(persistent=True), "
        f"or compute the loss anew"
    )


def leaves(root: Tensor) -> list[Tensor]:
    """The leaves that `root` depends on and that require a gradient."""
    return list(reachable(root)[1])
