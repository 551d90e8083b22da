"""`Sequential`: layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ...autodiff import Tensor, conv2d_relu_max_pool2d, relu
from ..layers import Conv2D, Input, Layer, MaxPooling2D, SymbolicTensor
from ..serialization import serialize
from .functional import bound_inputs, with_given_mask
from .model import Model
from .trainable import require_unique_names

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

    lists_inputs = False
    _input: Input | None = None
    _chain: list[SymbolicTensor] | None = None

    def __init__(self, layers: Iterable[Layer | Input] = (), name: str | None = None) -> None:
        entries = list(layers)
        super().__init__(name=name)
        self._take_input(entries)
        self.layers = [_checked(entry) for entry in entries if type(entry) is not Input]
        require_unique_names(self.name, self.layers)
        self._stages = _stages(self.layers)
        self._create_weights()

    def add(self, layer: Layer | Input) -> None:
        """Put one more layer at the end."""
        if isinstance(layer, Input):
            if self.layers:
                raise ValueError(f"Input must come first, {self.name!r} has layers already")
            self._take_input([layer])
            return
        if not self.layers and self.example_shape is None:
            self._take_input([layer])
        require_unique_names(self.name, [*self.layers, _checked(layer)])
        self.layers.append(layer)
        self._stages = _stages(self.layers)
        self._called, self._chain = False, None
        self._create_weights()

    def call(self, inputs: Any, training: bool = False, mask: Any = None) -> Any:
        outputs = inputs if mask is None else with_given_mask(inputs, mask)
        if isinstance(inputs, Mapping) and (chain := self.graph()) is not None:
            (outputs,) = bound_inputs(self.name, chain[0][0], inputs).values()
        for stage in self._stages:
            outputs = stage(outputs, training=training)
        return outputs

    def get_config(self) -> dict[str, Any]:
        if type(self).__init__ is not Sequential.__init__:
            return super().get_config()
        own = self.layers[0].example_shape if self.layers else None
        first = [self._first()] if self.example_shape and not own else []
        return {"name": self.name, "layers": serialize([*first, *self.layers])}

    def graph(self) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
        if self.example_shape is None:
            return None
        if self._chain is None:
            self._chain = [self._first()]
            for layer in self.layers:
                self._chain.append(layer(self._chain[-1]))
        return self._chain[:1], self._chain[1:]

    def ends(self) -> tuple[Any, Any] | None:
        """The input, and what the last layer gives; None where the input's shape is not known."""
        self.graph()
        return None if self._chain is None else (self._chain[0], self._chain[-1])

    def _take_input(self, entries: list[Layer | Input]) -> None:
        if not entries:
            return
        first = entries[0]
        if isinstance(first, Input):
            self._input = first
            self.example_shape = first.example_shape
        else:
            self.example_shape = _checked(first).example_shape

    def _first(self) -> Input:
        """The `Input` that it was given, or one like what the first layer takes."""
        if self._input is not None:
            return self._input
        assert self.example_shape is not None
        return Input(self.example_shape, f"{self.layers[0].name}_input" if self.layers else None)


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


def _checked(entry: Any) -> Layer:
    if isinstance(entry, Layer):
        return entry
    raise TypeError(
        f"Sequential takes layers, with an Input only in front; it was given {entry!r} "
        f"(wrap a function as Activation(function))"
    )
