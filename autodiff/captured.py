"""A replay whose operations a card does as one graph, queued by one call, and backward likewise.

A CUDA graph is what a stream was given while it was captured, kernel by kernel with its arguments:
launched again, they read and write the same memory. So the batch is copied into arrays that stay,
variables have to lie where they lay, and numbers that Python computes are those of the capture.
Operations have none that could change (see `replay`), but for those that are done `by_host`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, final

import numpy as np

from .backward import OnReady, backward, reachable
from .following import ReplayError
from .placement import placed
from .recording import capturing, creation_order
from .replay import Replay, Step, call
from .tensor import Tensor
from .tensor_like import Array, TensorLike

Capture: TypeAlias = Callable[[Callable[[], object]], Callable[[], None]]
"""`capture(work)` gives what does again what `work` has a card do, which it may call twice."""

_STEPS_BETWEEN = 16
"""Where variables move in each step, not all is to be captured in each step."""


@final
class CapturedReplay:
    """What a replay gives, by graphs where the card's memory is as it was.

    A graph is what comes before anything that the host gives in each step. Who goes backward from
    what it gives, into the same buffers in each step, does that by a graph as well.

    Args:
        replay: Its first output is a loss.
        capture: That of the card on which it computes.

    Raises:
        ReplayError: The host gives something, such as random numbers, before any variable is
            read, or a variable that the step may assign is read by the loss.
    """

    def __init__(self, replay: Replay, capture: Capture) -> None:
        replay.values = [_on_card(value) for value in replay.values]
        self._replay = replay
        self._capture: Capture | None = capture
        self._on_card, self._by_host = _parted(replay)
        taken = [place for step in self._by_host for place in step.operands]
        self._handed_on = {*taken, *replay.outputs[:1]}
        self._graph: _Graph | None = None
        self._age = _STEPS_BETWEEN

    def __call__(self, arrays: Sequence[Array]) -> list[Any]:
        """The outputs for other arrays. The loss is overwritten by the next call."""
        self._age += 1
        if any(isinstance(array, np.ndarray) for array in arrays):
            return self._replay(arrays)  # text, which stays on the host
        if self._graph is not None and not self._graph.is_in_place():
            self._graph = None
        if self._graph is None and self._capture is not None and self._age > _STEPS_BETWEEN:
            self._age = 0
            try:
                self._graph = _Graph(
                    self._replay, self._on_card, self._handed_on, arrays, self._capture
                )
            except Exception as error:  # of CUDA's, CuPy's: what a step asks for cannot be captured
                self._capture = None
                _warn(error)
        if self._graph is None:
            return self._replay(arrays)
        values = self._graph.launch(arrays)
        call(self._by_host, values)
        return [values[place] for place in self._replay.outputs]


def _on_card(value: Any) -> Any:
    """A constant where it is uploaded no more."""
    if type(value) is Tensor and not value.requires_grad:
        return Tensor(value.data)
    return placed(value) if type(value) is np.ndarray else value


def _parted(replay: Replay) -> tuple[list[Step], list[Step]]:
    """What a card does, and what the host does behind it."""
    on_card: list[Step] = []
    by_host: list[Step] = []
    given_by_host: set[int] = set()
    for step in replay.steps:
        if step.is_by_host or not given_by_host.isdisjoint(step.operands):
            by_host.append(step)
            given_by_host.add(step.result)
        else:
            on_card.append(step)
    read = _variables(replay, on_card).keys()
    if not read:
        raise ReplayError("what the host gives, as random numbers, comes before any variable")
    if read & _variables(replay, by_host).keys():
        raise ReplayError("a variable is read on the card, and by what the host does behind that")
    return on_card, by_host


def _variables(replay: Replay, steps: Sequence[Step]) -> dict[int, TensorLike]:
    """Those that steps are given, by their ids."""
    given = [replay.values[place] for step in steps for place in step.operands]
    return {
        id(value): value
        for value in given
        if isinstance(value, TensorLike) and not isinstance(value, Tensor)
    }


def _warn(error: Exception) -> None:
    logging.getLogger("paceline").warning(
        "A step cannot be captured as a CUDA graph, and is queued operation by operation: %s.",
        error,
    )


def _capture(capture: Capture, work: Callable[[], object]) -> Callable[[], None]:
    token = capturing.set(True)
    try:
        return capture(work)
    finally:
        capturing.reset(token)


class _Graph:
    """The operations of a card, on arrays that stay where they are.

    Args:
        replay: Of which they are.
        steps: The operations.
        handed_on: Where results lie from which somebody may go backward.
        arrays: A batch.
        capture: That of the card.
    """

    def __init__(
        self,
        replay: Replay,
        steps: Sequence[Step],
        handed_on: Collection[int],
        arrays: Sequence[Array],
        capture: Capture,
    ) -> None:
        self._inputs = [array.copy() for array in arrays]
        self._values: list[Any] = []

        def work() -> None:
            self._values = replay.beginning(self._inputs)
            call(steps, self._values)

        self._launch = _capture(capture, work)
        nodes: set[Tensor] = set()
        for place in handed_on:
            tensor = self._values[place]
            if isinstance(tensor, Tensor) and tensor.vjp is not None:
                nodes.update(reachable(tensor)[0])
                self._values[place] = CapturedTensor(tensor, capture)
                nodes.add(self._values[place])
        self._nodes = sorted(nodes, key=attrgetter("order"))
        leaves = [variable.source() for variable in _variables(replay, steps).values()]
        self._lay = [(leaf, leaf.data) for leaf in leaves]

    def is_in_place(self) -> bool:
        """Whether all variables lie where they lay."""
        return all(leaf.data is array for leaf, array in self._lay)

    def launch(self, arrays: Sequence[Array]) -> list[Any]:
        """All values in their places; what is there is right when the card has come so far."""
        for own, array in zip(self._inputs, arrays, strict=True):
            own[...] = array
        self._launch()
        for node in self._nodes:  # backward compares it with changes of variables
            node.order = next(creation_order)
        return self._values.copy()


@final
class CapturedTensor(Tensor):
    """A tensor from which the way back is a graph, too.

    Args:
        tensor: It was captured.
        capture: That of its card.
    """

    __slots__ = ("_capture", "_passes", "_tensor")

    def __init__(self, tensor: Tensor, capture: Capture) -> None:
        super().__init__(tensor.data)
        self.requires_grad, self.owner = tensor.requires_grad, tensor.owner
        self.inputs, self.vjp, self.order = tensor.inputs, tensor.vjp, tensor.order
        self._tensor = tensor
        self._capture: Capture | None = capture
        self._passes: dict[int, _Pass] = {}

    def go_backward(
        self, seed: Array | None, into: Mapping[Tensor, Array], on_ready: OnReady
    ) -> dict[Tensor, Any] | None:
        if self._capture is None:
            return None
        found = self._passes.get(id(into))
        if found is None:
            try:
                found = self._passes[id(into)] = _Pass(self._tensor, into, self._capture)
            except Exception as error:  # as above
                self._capture = None
                _warn(error)
                return None
        return found.launch(seed, on_ready)


class _Pass:
    """The way back from a tensor into certain buffers."""

    def __init__(self, tensor: Tensor, into: Mapping[Tensor, Array], capture: Capture) -> None:
        self._into = into  # kept, so that no other has its id
        self._seed = np.ones_like(tensor.data)
        self._found: dict[Tensor, Any] = {}

        def work() -> None:
            self._found = backward(tensor, self._seed, into)

        self._launch = _capture(capture, work)
        # How long somebody reads what has no buffer, as rows of a table, nobody knows here.
        self._is_whole = all(into.get(leaf) is array for leaf, array in self._found.items())

    def launch(self, seed: Array | None, on_ready: OnReady) -> dict[Tensor, Any] | None:
        if not self._is_whole:
            return None
        self._seed[...] = 1 if seed is None else seed  # each time: backward may overwrite it
        self._launch()
        for leaf, gradient in self._found.items():
            on_ready(leaf, gradient)
        return self._found
