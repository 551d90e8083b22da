"""`Sequential`: layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...strategies import current_store
from .base import Input, Layer, Shape
from .fusion import fuse


class Sequential(Layer):
    """Layers of which each takes the outputs of the one before.

    Where the shape of the inputs is known (an `Input` comes first, or the first layer has an
    `input_shape`) the weights are created at once, else by the first call.

    Args:
        layers: The layers, perhaps with an `Input` in front.
        name: See `Layer`.
    """

    def __init__(self, layers: Iterable[Layer | Input] = (), name: str | None = None) -> None:
        entries = list(layers)
        super().__init__(name, input_shape=_input_shape(entries))
        self.layers = [_checked(entry) for entry in entries if not isinstance(entry, Input)]
        self._stages = _stages(self.layers)
        self._create_weights()

    def add(self, layer: Layer | Input) -> None:
        """Put one more layer at the end."""
        if isinstance(layer, Input):
            if self.layers:
                raise ValueError(f"Input must come first, {self.name!r} has layers already")
            self.input_shape = layer.shape
            return
        if not self.layers and self.input_shape is None:
            self.input_shape = _checked(layer).input_shape
        self.layers.append(_checked(layer))
        self._stages = _stages(self.layers)
        self._called = False
        self._create_weights()

    def call(self, inputs: Any, training: bool) -> Any:
        outputs = inputs
        for stage in self._stages:
            outputs = stage(outputs, training)
        return outputs

    def _create_weights(self) -> None:
        """Create the weights now, unless this model has made the same layers at an earlier step."""
        if self.input_shape is None or not self.layers:
            return
        resources = current_store().resources
        key = ("sequential", self.name, len(self.layers))
        if resources.get(key) is None:
            self.make_weights()
            resources[key] = self


def _stages(layers: list[Layer]) -> list[Callable[[Any, bool], Any]]:
    """What to call one after the other: layers, or one function for two neighbours."""
    stages: list[Callable[[Any, bool], Any]] = []
    rest = list(layers)
    while rest:
        fused = fuse(rest[0], rest[1]) if len(rest) > 1 else None
        stages.append(fused or rest[0])
        del rest[: 2 if fused else 1]
    return stages


def _input_shape(entries: list[Layer | Input]) -> Shape | None:
    if not entries:
        return None
    first = entries[0]
    return first.shape if isinstance(first, Input) else _checked(first).input_shape


def _checked(entry: Any) -> Layer:
    if isinstance(entry, Layer):
        return entry
    raise TypeError(
        f"Sequential takes layers, with an Input only in front; it was given {entry!r} "
        f"(wrap a function as Activation(function))"
    )
