"""`Sequential`: layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ...autodiff import Tensor, conv2d_relu_max_pool2d, relu
from ..layers import Conv2D, Input, Layer, MaxPooling2D, Shape, SymbolicTensor
from ..serialization import serialize
from .functional import require_unique_names
from .model import Model

Stage: TypeAlias = Callable[..., Any]
"""`stage(inputs, training=...)`: a layer, or one function for two neighbours."""


class Sequential(Model):
    """Layers of which each takes the outputs of the one before.

    Where the shape of the inputs is known (an `Input` comes first, or the first layer has an
    `input_shape`) the weights are created at once, else by the first call.

    Args:
        layers: The layers, perhaps with an `Input` in front.
        name: See `Layer`.
    """

    def __init__(self, layers: Iterable[Layer | Input] = (), name: str | None = None) -> None:
        entries = list(layers)
        super().__init__(name=name)
        self.input_shape = _input_shape(entries)
        self.layers = [_checked(entry) for entry in entries if type(entry) is not Input]
        require_unique_names(self.name, self.layers)
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
        require_unique_names(self.name, [*self.layers, _checked(layer)])
        self.layers.append(layer)
        self._stages = _stages(self.layers)
        self._called = False
        self._create_weights()

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = inputs
        for stage in self._stages:
            outputs = stage(outputs, training=training)
        return outputs

    def get_config(self) -> dict[str, Any]:
        if type(self).__init__ is not Sequential.__init__:
            return super().get_config()
        own = self.layers[0].input_shape if self.layers else None
        first = [Input(self.input_shape)] if self.input_shape and not own else []
        return {"name": self.name, "layers": serialize([*first, *self.layers])}

    def graph(self) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
        if self.input_shape is None:
            return None
        tensors: list[SymbolicTensor] = [Input(self.input_shape)]
        for layer in self.layers:
            tensors.append(layer(tensors[-1]))
        return tensors[:1], tensors[1:]


def _stages(layers: list[Layer]) -> list[Stage]:
    """What to call one after the other."""
    stages: list[Stage] = []
    for layer in layers:
        fused = fuse(stages[-1], layer) if stages else None
        if fused is None:
            stages.append(layer)
        else:
            stages[-1] = fused
    return stages


def fuse(first: Stage, second: Layer) -> Stage | None:
    """One function that computes two neighbours faster than they do in turn, or None.

    It finds the same weights and gives the same outputs and gradients.

    So far there is one such pair: a convolution with relu, and a max-pool in which every value is
    in one window at most. The pool then comes before bias and relu, which do not change which value
    is the largest: three of four values of a 2 by 2 window are never written out, nor is their
    gradient.
    """
    if type(first) is not Conv2D or type(second) is not MaxPooling2D or not first.is_plain:
        return None
    apart = second.strides == second.pool_size and second.padding == "valid" and second.is_plain
    if first.activation is not relu or not apart:
        return None

    def stage(inputs: Any, training: bool) -> Tensor:
        arguments = (*first.prepare(inputs), first.strides, first.padding, second.pool_size)
        return conv2d_relu_max_pool2d(*arguments)

    return stage


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
