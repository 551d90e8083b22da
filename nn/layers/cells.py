"""Recurrent networks of cells: of one's own, or several on top of each other.

`LSTM(8)` gives what `RNN(LSTMCell(8))` gives, many times faster: it is one operation for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor
from ..masks import beside
from ..policies import to_dtype
from .base import Layer
from .options import LayerOptions
from .recurrent import GRU, LSTM, SimpleRNN
from .spatial import check_sequences


class RNN(Layer):
    """A cell that goes over the steps of sequences (batch, steps, features).

    Args:
        cell: A layer `cell(inputs, states) -> outputs, new states`, both states as lists, whose
            `state_size` is the width of each state, or a list of them; or a list of such cells, of
            which each takes the outputs of the one before.
        return_sequences, return_state, go_backwards: See `LSTM`.
        **options: See `Layer`.
    """

    supports_masking = True

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.cell = StackedRNNCells(cell) if isinstance(cell, (list, tuple)) else cell
        if not hasattr(self.cell, "state_size"):
            raise TypeError(
                f"cell must be a layer with a state_size, called as cell(inputs, states), not "
                f"{cell!r}"
            )
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards

    @property
    def num_states(self) -> int:
        """How many states the cell has."""
        return len(_listed(self.cell.state_size))

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        initial_state: Any = None,
    ) -> Any:
        sequences: Any = to_dtype(inputs, self.compute_dtype)
        check_sequences(self.name, sequences)
        order = range(sequences.shape[1])
        states: list[Any] = self._initial(sequences) if initial_state is None else [*initial_state]
        output: Any = None
        outputs = []
        for step in reversed(order) if self.go_backwards else order:
            new_output, new = self.cell(sequences[:, step], states, training=training)
            if mask is None:
                output, states = new_output, _listed(new)
            else:
                counts = beside(mask, sequences)[:, step, np.newaxis]
                last = 0.0 if output is None else output
                output = np.where(counts, new_output, last)
                pairs = zip(_listed(new), states, strict=True)
                states = [np.where(counts, after, before) for after, before in pairs]
            outputs.append(output)
        found = np.stack(outputs, axis=1) if self.return_sequences else output
        return [found, *states] if self.return_state else found

    def _initial(self, sequences: Tensor) -> list[Any]:
        batch = len(sequences)
        sizes = _listed(self.cell.state_size)
        zeros = [np.zeros((batch, size), sequences.dtype) for size in sizes]
        return [np.asarray(array, like=sequences.like()) for array in zeros]

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """That of the inputs, for sequences; else none."""
        found = mask if self.return_sequences else None
        return [found, *[None] * self.num_states] if self.return_state else found

    def num_outputs(self) -> int | None:
        return 1 + self.num_states if self.return_state else None


class StackedRNNCells(Layer):
    """Cells of which each takes the outputs of the one before, as one cell."""

    def __init__(self, cells: Sequence[Any], **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.cells = list(cells)

    @property
    def state_size(self) -> list[int]:
        """The widths of the states of all cells, one behind the other."""
        return [size for cell in self.cells for size in _listed(cell.state_size)]

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        rest, new = list(states), []
        for cell in self.cells:
            num_states = len(_listed(cell.state_size))
            inputs, changed = cell(inputs, rest[:num_states], training=training)
            new += _listed(changed)
            del rest[:num_states]
        return inputs, new


class _Cell:
    """A recurrent layer as a cell: one step of it."""

    units: int
    num_states: int

    @property
    def state_size(self) -> list[int]:
        """The width of each state."""
        return [self.units] * self.num_states

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        if isinstance(states, (list, tuple)) and len(states) == 1 and self.num_states == 1:
            states = states[0]
        sequences = np.expand_dims(inputs, 1)
        output, *new = super().call(sequences, None, training, states)  # type: ignore[misc]
        return output, new

    def num_outputs(self) -> int | None:
        return None


class SimpleRNNCell(_Cell, SimpleRNN):  # type: ignore[misc]
    """One step of a `SimpleRNN`: `cell(inputs, states)` gives outputs and a list of states."""

    def __init__(self, units: int, *args: Any, **options: Any) -> None:
        super().__init__(units, *args, **options, return_state=True)


class LSTMCell(_Cell, LSTM):  # type: ignore[misc]
    """One step of an `LSTM`: `cell(inputs, [h, c])` gives outputs and `[h, c]`."""

    def __init__(self, units: int, *args: Any, **options: Any) -> None:
        super().__init__(units, *args, **options, return_state=True)


class GRUCell(_Cell, GRU):  # type: ignore[misc]
    """One step of a `GRU`: `cell(inputs, states)` gives outputs and a list of states."""

    def __init__(self, units: int, *args: Any, **options: Any) -> None:
        super().__init__(units, *args, **options, return_state=True)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
