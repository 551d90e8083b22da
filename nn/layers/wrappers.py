"""Layers around another layer: for each step of sequences, or in both directions."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from ...autodiff import lift
from ..arguments import check_choice
from .base import Layer
from .options import LayerOptions

_MODES = ("sum", "mul", "concat", "ave")


class TimeDistributed(Layer):
    """A layer applied to each step: inputs (batch, steps, …) as batch · steps examples of it."""

    supports_masking = True

    def __init__(self, layer: Layer, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.layer = _checked(self.name, layer)

    def call(self, inputs: Any, training: bool = False) -> Any:
        inputs = lift(inputs)
        batch, steps = inputs.shape[:2]
        apart = inputs.reshape(batch * steps, *inputs.shape[2:])
        outputs = self.layer(apart, training=training)
        width = math.prod(outputs.shape[1:])
        return outputs.reshape(batch, steps, *outputs.shape[1:]) if width else outputs


class Bidirectional(Layer):
    """A recurrent layer forwards, and another like it backwards; the outputs are put together.

    Args:
        layer: A recurrent layer, which goes forwards.
        merge_mode: "concat", "sum", "mul", "ave", or None for a list of both.
        weights: The arrays that its weights begin with.
        backward_layer: The other one, with `go_backwards` and else the same options; by default it
            is made from those of `layer`.
        **options: See `Layer`.
    """

    supports_masking = True

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: list[Any] | None = None,
        backward_layer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(weights=weights, **options)
        if merge_mode is not None:
            check_choice("merge_mode", merge_mode, _MODES)
        self.merge_mode = merge_mode
        self.forward_layer = _checked(self.name, layer)
        self.backward_layer = _reversed(layer) if backward_layer is None else backward_layer
        for one in (self.forward_layer, self.backward_layer):
            # As in Keras: each direction would hold its last output at another end.
            one.zero_output_for_mask = one.return_sequences
        both = self.forward_layer, self.backward_layer
        if both[0].go_backwards or not both[1].go_backwards:
            raise ValueError(
                f"layer {self.name!r} needs a layer that goes forwards, and one with "
                f"go_backwards=True"
            )

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        initial_state: Any = None,
    ) -> Any:
        states: list[Any] = [None, None]
        if initial_state is not None:
            half = len(initial_state) // 2
            states = [initial_state[:half], initial_state[half:]]
        pair = (self.forward_layer, self.backward_layer)
        found = [
            layer(inputs, mask=mask, training=training, initial_state=state)
            for layer, state in zip(pair, states, strict=True)
        ]
        if not self.forward_layer.return_state:
            return self._merged(*found)
        outputs = self._merged(found[0][0], found[1][0])
        parts = outputs if isinstance(outputs, list) else [outputs]
        return [*parts, *found[0][1:], *found[1][1:]]

    def _merged(self, forward: Any, backward: Any) -> Any:
        if self.forward_layer.return_sequences:  # which the other gives from the last on
            backward = np.flip(backward, 1)
        if self.merge_mode == "concat":
            return np.concatenate([forward, backward], axis=-1)
        if self.merge_mode == "mul":
            return forward * backward
        if self.merge_mode is None:
            return [forward, backward]
        return (forward + backward) / (2 if self.merge_mode == "ave" else 1)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """That of the inputs, for sequences; else none."""
        found = mask if self.forward_layer.return_sequences else None
        num_merged = 2 if self.merge_mode is None else 1
        num_outputs = self.num_outputs()
        if num_outputs is None:
            return found
        return [found] * num_merged + [None] * (num_outputs - num_merged)

    def num_outputs(self) -> int | None:
        num_merged = 2 if self.merge_mode is None else 1
        if not self.forward_layer.return_state:
            return None if num_merged == 1 else num_merged
        return num_merged + 2 * int(self.forward_layer.num_states)


def _reversed(layer: Layer) -> Any:
    """Another layer with the same options, which goes backwards."""
    config = layer.get_config()
    name = f"backward_{config.pop('name', layer.name)}"
    return type(layer).from_config({**config, "go_backwards": True, "name": name})


def _checked(wrapper: str, layer: Any) -> Any:
    if not isinstance(layer, Layer):
        raise TypeError(f"layer {wrapper!r} wraps a layer, it was given {layer!r}")
    return layer
