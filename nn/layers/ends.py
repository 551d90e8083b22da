"""`SymbolicEnds`: what a layer is to a graph of layers: its symbolic inputs, outputs, shapes."""

from __future__ import annotations

from typing import Any

from ...strategies import VariableStore
from ..serialization import Serializable
from .options import Shape
from .symbolic import Hidable, Input, SymbolicTensor, shapes_of


class SymbolicEnds(Serializable):
    """A function that can be called with symbolic tensors, and knows what its first call gave.

    Attributes:
        name: Its name.
        example_shape: The shape of one example of its inputs, without the batch, if it is known.
    """

    name: str
    example_shape: Shape | None = None
    _first_call: tuple[Any, Any] | None = None

    def _symbolic(self, inputs: Any, kwargs: dict[str, Any]) -> Any:
        """What a call will give, where the inputs have no values yet."""
        given = {key: value for key, value in kwargs.items() if value is not None}
        outputs: Any = SymbolicTensor(self, (inputs,), given)
        num_outputs = self.num_outputs()
        if num_outputs is not None:
            outputs = [outputs[i] for i in range(num_outputs)]
        if self._first_call is None:
            self._first_call = inputs, outputs
        return outputs

    def ends(self) -> tuple[Any, Any] | None:
        """The symbolic inputs and outputs of its first symbolic call; None where there was none."""
        return self._first_call

    @Hidable
    def input(self) -> Any:
        """The symbolic inputs of its first symbolic call, or those of a model."""
        return _known(self, "input", self.ends())[0]

    @Hidable
    def output(self) -> Any:
        """The symbolic outputs of its first symbolic call, or those of a model."""
        return _known(self, "output", self.ends())[1]

    @Hidable
    def input_shape(self) -> Any:
        """The shape of `input`, or that which it was made with, with the batch in front."""
        ends = self.ends()
        if ends is None and self.example_shape is not None:
            return (None, *self.example_shape)
        return shapes_of(_known(self, "input_shape", ends)[0])

    @Hidable
    def output_shape(self) -> Any:
        """The shape of `output`, with the batch in front, which is None."""
        return shapes_of(_known(self, "output_shape", self.ends())[1])

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the outputs for inputs of a shape; it makes no weights of this layer.

        Args:
            input_shape: A tuple that begins with the batch, which may be None; for a layer of
                several inputs, a list of them.
        """
        several = isinstance(input_shape, list) and not isinstance(input_shape[0], int | None)
        inputs: Any = [Input(batch_shape=one) for one in input_shape] if several else None
        # Of a copy, in a model of its own: this one may be called with another shape.
        with VariableStore(seed=0).building():
            copy: Any = type(self).from_config(self.get_config())
            return shapes_of(copy(inputs if several else Input(batch_shape=input_shape)))

    def num_outputs(self) -> int | None:
        """How many tensors a call gives as a list; None where it gives one, and no list."""
        return None


def _known(layer: SymbolicEnds, what: str, ends: tuple[Any, Any] | None) -> tuple[Any, Any]:
    if ends is None:
        raise AttributeError(
            f"layer {layer.name!r} has no {what} before it is called with an Input, or with what "
            f"layers have made of one"
        )
    return ends
