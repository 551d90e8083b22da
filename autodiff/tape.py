"""`GradientTape`: the familiar spelling for gradients in a loop of one's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from .backward import backward, reachable
from .higher_order import recorded_backward, seed_of
from .indexed_slices import IndexedSlices
from .recording import creation_order, is_recording, no_grad, open_tapes, watched
from .tensor import Tensor, check_floating, lift
from .tensor_like import Array, TensorLike


class GradientTape:
    """The familiar spelling for gradients in a loop of one's own.

    Every operation is remembered anyway, tape or not; the tape gives `gradient` and `watch` a home,
    and inside it a tensor becomes no plain number by `float` (see `watched`).

    Gradients are tensors. In the block of another tape, or of a persistent one, they remember how
    they came about: a gradient of a gradient is taken by two tapes, one inside the other, to any
    depth. Operations of which only the first one is known say so.

    >>> x = Tensor(np.array([1.0, 2.0], np.float32))
    >>> with GradientTape() as outer:
    ...     outer.watch(x)
    ...     with GradientTape() as tape:
    ...         y = np.sum(x * x * x)
    ...     slope = tape.gradient(y, x)
    >>> slope.numpy(), outer.gradient(slope, x).numpy()
    (array([ 3., 12.], dtype=float32), array([ 6., 12.], dtype=float32))

    Args:
        persistent: Whether more than one question may be asked. After an update of the variables it
            answers with the values that they had.
        watch_accessed_variables: Whether trainable variables are watched by being read; if not,
            only what `watch` was called with has a gradient.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self.persistent = persistent
        self._watches_all = watch_accessed_variables
        self._watching = ExitStack()
        self._variables: dict[TensorLike, None] = {}
        self._watched: dict[Tensor, None] = {}
        self._gaps: list[tuple[int, int]] = []
        self._is_used = False

    def __enter__(self) -> GradientTape:
        if self._is_open():
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an already-active "
                "tape."
            )
        self._watching.enter_context(watched())
        open_tapes.set((*open_tapes.get(), self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()
        self._watching.close()

    def _is_open(self) -> bool:
        return any(tape is self for tape in open_tapes.get())

    def _close(self) -> None:
        open_tapes.set(tuple(tape for tape in open_tapes.get() if tape is not self))

    def note(self, variable: TensorLike) -> None:
        """A trainable variable has been read. Called by `lift`."""
        if self._watches_all:
            self._variables[variable] = None

    def watch(self, tensor: Any) -> None:
        """Make tensors that were not computed from others leaves with a gradient.

        Args:
            tensor: One of a floating dtype, or a structure of them. A trainable variable is watched
                anyway.

        Raises:
            TypeError: It has no gradient: whole numbers, an array, a variable that is not trained.
        """
        for one in _flat(tensor):
            self._watch_one(one)

    def _watch_one(self, tensor: Any) -> None:
        if not isinstance(tensor, TensorLike):
            raise TypeError(
                f"a tape watches a tensor, not {type(tensor).__name__}; make one by "
                f"Tensor(array, requires_grad=True)"
            )
        source = tensor.source()
        is_variable = source is not tensor
        if not source.requires_grad and is_variable:
            raise TypeError(
                f"{source.label} is not trainable; watch its value, and compute with that: "
                f"value = variable.value(); tape.watch(value)"
            )
        check_floating(source.data.dtype)
        source.requires_grad = True
        self._watched[source] = None
        if is_variable:
            self._variables[tensor] = None

    def watched_variables(self) -> tuple[Any, ...]:
        """The trainable variables that were read in the block, or watched, in this order."""
        return tuple(self._variables)

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Within it the tape remembers nothing, as behind its block.

        Raises:
            ValueError: The tape is not in its block.
        """
        if not self._is_open():
            raise ValueError("Tape is not recording: stop_recording() belongs into its block.")
        before = open_tapes.get()
        self._close()
        start = next(creation_order)
        try:
            if open_tapes.get():
                yield
            else:
                with no_grad():
                    yield
        finally:
            open_tapes.set(before)
            self._gaps.append((start, next(creation_order)))

    def reset(self) -> None:
        """Forget what was remembered so far: `gradient` is of what is computed from here on."""
        self._variables.clear()
        self._watched.clear()
        self._gaps = [(0, next(creation_order))]
        self._is_used = False

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = "none",
    ) -> Any:
        """The gradient of `target` (of the sum of all its elements) for each of `sources`.

        Args:
            target: A tensor, or a structure of them.
            sources: A tensor or variable, or lists, tuples and dicts of them in any depth.
            output_gradients: The gradient of each target to begin with, of its shape, in the
                structure of `target`; ones by default.
            unconnected_gradients: 'none' or 'zero': what a source gets that no target depends on.

        Returns:
            Gradients in the structure of `sources`: tensors, or `IndexedSlices` where only rows of
            a source were read. In the block of another tape, or of a persistent one, tensors that
            have gradients themselves.

        Raises:
            RuntimeError: A tape that is not persistent was asked before; a variable was changed
                since; or a gradient of a gradient is wanted of an operation that has none.
        """
        fills, records = _fills_with_zeros(unconnected_gradients), self._begin()
        tensors = [_tensor(source) for source in _flat(sources)]
        totals: list[Any] = [None] * len(tensors)
        targets = _flat(target)
        seeds = [None] * len(targets) if output_gradients is None else _flat(output_gradients)
        for one, seed in zip(targets, seeds, strict=True):
            parts = self._gradients(one, seed, tensors, records)
            totals = [_added(total, part) for total, part in zip(totals, parts, strict=True)]
        if fills:
            totals = [
                np.zeros_like(tensor.data) if total is None else total
                for tensor, total in zip(tensors, totals, strict=True)
            ]
        return _like(sources, map(_as_tensor, totals))

    def jacobian(
        self, target: Any, sources: Any, unconnected_gradients: Any = "none", **_: Any
    ) -> Any:
        """The derivative of each element of `target` by each element of each source.

        Backward runs once for each element of `target`. TensorFlow's options for its own way of
        doing so (`parallel_iterations`, `experimental_use_pfor`) are taken and have no effect.

        Returns:
            In the structure of `sources`: shapes (*target.shape, *source.shape), or None.
        """
        fills, records = _fills_with_zeros(unconnected_gradients), self._begin()
        y = _tensor(target)
        tensors = [_tensor(source) for source in _flat(sources)]
        rows = [self._gradients(y, seed, tensors, records) for seed in _units(y.data)]
        found = [
            _stacked([row[i] for row in rows], y.data.shape, x, fills)
            for i, x in enumerate(tensors)
        ]
        return _like(sources, map(_as_tensor, found))

    def batch_jacobian(
        self, target: Any, source: Any, unconnected_gradients: Any = "none", **_: Any
    ) -> Any:
        """The jacobian of each example, where no example depends on another.

        Args:
            target: (n, ...).
            source: (n, ...).

        Returns:
            (n, *target.shape[1:], *source.shape[1:]), or None.
        """
        fills, records = _fills_with_zeros(unconnected_gradients), self._begin()
        y, x = _tensor(target), _tensor(source)
        shape = y.data.shape
        if not shape or shape[:1] != x.data.shape[:1]:
            raise ValueError(
                f"Need first dimension of target shape ({shape}) and source shape "
                f"({x.data.shape}) to match."
            )
        if shape[0] == 0:
            return Tensor(np.zeros((*shape, *x.data.shape[1:]), x.data.dtype, like=x.data))
        seeds = (np.broadcast_to(unit, shape).copy() for unit in _units(y.data[0]))
        rows = [self._gradients(y, seed, [x], records)[0] for seed in seeds]
        found = _stacked(rows, shape[1:], x, fills)
        return None if found is None else _as_tensor(np.moveaxis(found, len(shape) - 1, 0))

    def _begin(self) -> bool:
        """Take a question; whether its answer has to have a gradient itself."""
        if self._is_used and not self.persistent:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                "(or jacobians); make it by GradientTape(persistent=True)"
            )
        self._is_used = True
        if not self.persistent:  # in its own block, too: what follows is not its own
            self._close()
        return is_recording() and bool(open_tapes.get())

    def _gradients(
        self, target: Any, seed: Any, sources: Sequence[Tensor], records: bool
    ) -> list[Any]:
        y = _tensor(target)
        if not y.requires_grad:
            return [None] * len(sources)
        self._refuse_gaps(y)
        if not self._watches_all:
            sources = [x if self._sees(x) else _UNSEEN for x in sources]
        if records:
            found: Any = recorded_backward(y, seed_of(y.data, seed), keep=sources)
        else:
            if seed is not None:  # which backward may overwrite
                seed = np.array(lift(seed).data, y.data.dtype, like=y.data)
            found = backward(y, seed, keep=sources)
            if self.persistent:
                for tensor in found:
                    tensor.share()
        return [found.get(x) for x in sources]

    def _sees(self, x: Tensor) -> bool:
        """Whether x was watched, or was computed from something that was."""
        return x in self._watched or (
            x.vjp is not None and any(leaf in self._watched for leaf in reachable(x)[1])
        )

    def _refuse_gaps(self, y: Tensor) -> None:
        for node in reachable(y)[0] if self._gaps else ():
            if any(start < node.order < end for start, end in self._gaps):
                raise RuntimeError(
                    "the target depends on what was computed while this tape did not record: "
                    "before its reset(), or within stop_recording() while another tape did; "
                    "compute it anew, or take stop_gradient of that part"
                )


_UNSEEN = Tensor(0.0)


class ForwardAccumulator:
    """TensorFlow's forward-mode derivatives, which are not here.

    Raises:
        NotImplementedError: Always, with what to use instead.
    """

    def __init__(self, primals: Any, tangents: Any) -> None:
        raise NotImplementedError(
            "forward-mode derivatives (ForwardAccumulator) are not supported; "
            "GradientTape.jacobian gives the whole matrix, and two nested tapes the product of a "
            "Hessian and a vector: "
            "outer.gradient(np.sum(inner.gradient(loss, x) * vector), x)"
        )


def _tensor(value: Any) -> Tensor:
    """As `lift`, but nothing is read by it: a tape that is open does not note a variable."""
    found: Tensor = value.source() if isinstance(value, TensorLike) else lift(value)
    return found


def _as_tensor(gradient: Any) -> Any:
    """An array as a tensor without a graph; tensors, `IndexedSlices` and None as they are."""
    is_array = gradient is not None and not isinstance(gradient, (Tensor, IndexedSlices))
    return Tensor(gradient) if is_array else gradient


def _flat(structure: Any) -> list[Any]:
    """What lists, tuples and dicts hold, in their order."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in _flat(part)]
    return [structure]


def _like(structure: Any, leaves: Iterator[Any]) -> Any:
    """A structure of the same form from its leaves."""
    if isinstance(structure, dict):
        return {key: _like(part, leaves) for key, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [_like(part, leaves) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return next(leaves)


def _fills_with_zeros(unconnected_gradients: Any) -> bool:
    name = getattr(unconnected_gradients, "value", unconnected_gradients)
    if name not in ("none", "zero"):
        raise ValueError(
            f"unconnected_gradients must be 'none' or 'zero', got {unconnected_gradients!r}"
        )
    return bool(name == "zero")


def _added(total: Any, part: Any) -> Any:
    if total is None or part is None:
        return part if total is None else total
    if isinstance(total, IndexedSlices):
        return total.add_to(part)
    return part.add_to(total) if isinstance(part, IndexedSlices) else total + part


def _units(like: Array) -> Iterator[Array]:
    """For each element an array that is 1 there and 0 elsewhere."""
    for i in range(like.size):
        unit = np.zeros(like.size, like.dtype, like=like)
        unit[i] = 1
        yield unit.reshape(like.shape)


def _stacked(rows: list[Any], shape: tuple[int, ...], x: Tensor, fills: bool) -> Any:
    """(*shape, *x.shape) from what each element of an array of `shape` gave for x."""
    whole = (*shape, *x.data.shape)
    if all(row is None for row in rows):
        return np.zeros(whole, x.data.dtype, like=x.data) if fills or not math.prod(shape) else None
    zeros = np.zeros_like(x.data)
    parts = [
        row.to_dense() if isinstance(row, IndexedSlices) else zeros if row is None else row
        for row in rows
    ]
    return np.stack(parts).reshape(whole)
