"""Recurrent networks over whole sequences, as one operation each.

A loop over the steps computes all states, and keeps what backward wants of each; a loop the other
way carries the gradient back. As nodes of their own the handful of operations of each step would
cost several times as much, in Python and in small arrays.

The product of the inputs with their kernel is not in here: for all steps together it is one matrix
product, made before. So are the gradients of the recurrent weights, behind the loop.

Arrays of steps are (steps, batch, …). In what comes in and goes out of the products of matrices the
gates lie side by side, (batch, gates · units); between them each gate and each state is an array of
its own, (gates, batch, units), which elementwise functions go through in a third of the time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import sum_of_rows
from .dense import ACTIVATIONS
from .higher_order import first_order_only
from .linear_algebra import as_rows
from .numerics import keep_where
from .piecewise_constant import plain
from .tensor import Tensor, lift_array, record
from .tensor_like import Array

InPlace = tuple[Callable[[Array], Any], Callable[[Array, Array], Any]]

_MORE: dict[str, InPlace] = {
    "linear": (lambda y: y, lambda g, y: g),
    "exponential": (lambda y: np.exp(y, out=y), lambda g, y: np.multiply(g, y, out=g)),
    "softplus": (
        lambda y: np.logaddexp(0, y, out=y),
        lambda g, y: np.multiply(g, -np.expm1(-y), out=g),
    ),
    "softsign": (
        lambda y: np.divide(y, 1 + np.absolute(y), out=y),
        lambda g, y: np.multiply(g, np.square(1 - np.absolute(y)), out=g),
    ),
    "elu": (
        lambda y: np.maximum(y, np.expm1(np.minimum(y, 0)), out=y),
        lambda g, y: np.multiply(g, np.minimum(y, 0) + 1, out=g),
    ),
    "hard_sigmoid": (
        lambda y: np.clip(0.2 * y + 0.5, 0, 1, out=y),
        lambda g, y: keep_where(0.2 * g, (y > 0) & (y < 1), out=g),
    ),
}
RECURRENT_ACTIVATIONS: dict[str, InPlace] = ACTIVATIONS | _MORE
"""Those whose derivative can be computed from their value, in place: see `dense.ACTIVATIONS`."""


class Recurrence(ABC):
    """What a recurrent network does at a step.

    Attributes:
        num_gates: How many arrays of the width of a state it makes of inputs and recurrent kernel.
        num_states: How many states it has; the first is the output.
        num_saved: How many arrays of that width backward wants of a step.
    """

    num_gates: int
    num_states = 1
    num_saved: int

    @abstractmethod
    def forward(
        self, z: Array, h: Array, state: Array, w: Array, b: Array | None, saved: Array, new: Array
    ) -> None:
        """One step.

        Args:
            z: (gates, batch, units): what the inputs add to the gates.
            h: (batch, units): the last output, as the recurrent kernel `w` and bias `b` see it.
            state: (states, batch, units): the states so far.
            saved, new: To be filled: with what backward wants, and with the new states.
        """

    @abstractmethod
    def backward(
        self, g: Array, h: Array, state: Array, w: Array, saved: Array, dz: Array
    ) -> tuple[Array, Array]:
        """The gradients by `h` and by `state`, where `g` is that by the new states.

        Args:
            dz: (batch, gates · units), to be filled with the gradient by `z`.
        """

    def weight_gradients(self, h: Array, saved: Array, dz: Array) -> tuple[Array, Array]:
        """The gradients by `w` and `b`, of all steps: `h` and `dz` as rows, `saved` by steps."""
        return np.matmul(h.T, dz), sum_of_rows(dz)


@dataclass(frozen=True)
class SimpleRecurrence(Recurrence):
    """`h = activation(z + h @ w)`."""

    activation: str = "tanh"
    num_gates = 1
    num_saved = 1

    def forward(
        self, z: Array, h: Array, state: Array, w: Array, b: Array | None, saved: Array, new: Array
    ) -> None:
        np.add(z[0], np.matmul(h, w), out=saved[0])
        RECURRENT_ACTIVATIONS[self.activation][0](saved)
        new[...] = saved

    def backward(
        self, g: Array, h: Array, state: Array, w: Array, saved: Array, dz: Array
    ) -> tuple[Array, Array]:
        dz[...] = g[0]
        RECURRENT_ACTIVATIONS[self.activation][1](dz, saved[0])
        return np.matmul(dz, w.T), np.zeros_like(g)


@dataclass(frozen=True)
class LSTMRecurrence(Recurrence):
    """Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000).

    Gates: input, forget, candidate, output, as in Keras. States: output and cell.
    """

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    num_gates = 4
    num_states = 2
    num_saved = 5

    def forward(
        self, z: Array, h: Array, state: Array, w: Array, b: Array | None, saved: Array, new: Array
    ) -> None:
        activate = RECURRENT_ACTIVATIONS[self.activation][0]
        open_gate = RECURRENT_ACTIVATIONS[self.recurrent_activation][0]
        np.add(_by_gate(np.matmul(h, w), 4), z, out=saved[:4])
        open_gate(saved[:2])
        activate(saved[2])
        open_gate(saved[3])
        i, f, candidate, o, squashed = (saved[k] for k in range(5))
        cell = new[1]
        np.multiply(f, state[1], out=cell)
        cell += i * candidate
        squashed[...] = cell
        activate(squashed)
        np.multiply(o, squashed, out=new[0])

    def backward(
        self, g: Array, h: Array, state: Array, w: Array, saved: Array, dz: Array
    ) -> tuple[Array, Array]:
        derive = RECURRENT_ACTIVATIONS[self.activation][1]
        derive_gate = RECURRENT_ACTIVATIONS[self.recurrent_activation][1]
        i, f, candidate, o, squashed = (saved[k] for k in range(5))
        dgates = np.empty((4, *h.shape), g.dtype, like=g)
        np.multiply(g[0], squashed, out=dgates[3])
        dcell = g[0] * o
        derive(dcell, squashed)
        dcell += g[1]
        np.multiply(dcell, candidate, out=dgates[0])
        np.multiply(dcell, state[1], out=dgates[1])
        np.multiply(dcell, i, out=dgates[2])
        derive_gate(dgates[:2], saved[:2])
        derive(dgates[2], candidate)
        derive_gate(dgates[3], o)
        _by_gate(dz, 4)[...] = dgates
        dstate = np.zeros_like(g)
        np.multiply(dcell, f, out=dstate[1])
        return np.matmul(dz, w.T), dstate


@dataclass(frozen=True)
class GRURecurrence(Recurrence):
    """Cho et al. (2014). Gates: update, reset, candidate, as in Keras.

    Args:
        reset_after: Whether the reset gate is applied behind the product with the recurrent kernel
            (as in cuDNN, with a bias of its own), or before it.
    """

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    reset_after: bool = True
    num_gates = 3
    num_saved = 4

    def forward(
        self, z: Array, h: Array, state: Array, w: Array, b: Array | None, saved: Array, new: Array
    ) -> None:
        num_first = 3 if self.reset_after else 2
        products = np.matmul(h, w[:, : num_first * h.shape[1]])
        if b is not None:
            products += b
        by_gate = _by_gate(products, num_first)
        np.add(by_gate[:2], z[:2], out=saved[:2])
        RECURRENT_ACTIVATIONS[self.recurrent_activation][0](saved[:2])
        update, reset, candidate, inner = (saved[k] for k in range(4))
        if self.reset_after:
            inner[...] = by_gate[2]
            np.multiply(reset, inner, out=candidate)
        else:
            np.multiply(reset, h, out=inner)
            np.matmul(inner, w[:, 2 * h.shape[1] :], out=candidate)
        candidate += z[2]
        RECURRENT_ACTIVATIONS[self.activation][0](candidate)
        np.subtract(state[0], candidate, out=new[0])
        new[0] *= update
        new[0] += candidate

    def backward(
        self, g: Array, h: Array, state: Array, w: Array, saved: Array, dz: Array
    ) -> tuple[Array, Array]:
        units = h.shape[1]
        update, reset, candidate, inner = (saved[k] for k in range(4))
        dgates = np.empty((3, *h.shape), g.dtype, like=g)
        np.multiply(g[0], state[0] - candidate, out=dgates[0])
        dcandidate = np.multiply(g[0], 1 - update, out=dgates[2])
        RECURRENT_ACTIVATIONS[self.activation][1](dcandidate, candidate)
        to_candidate = w[:, 2 * units :].T
        if self.reset_after:
            np.multiply(dcandidate, inner, out=dgates[1])
            dh = np.matmul(dcandidate * reset, to_candidate)
        else:
            dinner = np.matmul(dcandidate, to_candidate)
            np.multiply(dinner, h, out=dgates[1])
            dh = dinner * reset
        RECURRENT_ACTIVATIONS[self.recurrent_activation][1](dgates[:2], saved[:2])
        _by_gate(dz, 3)[...] = dgates
        dh += np.matmul(dz[:, : 2 * units], w[:, : 2 * units].T)
        return dh, g * update

    def weight_gradients(self, h: Array, saved: Array, dz: Array) -> tuple[Array, Array]:
        units = h.shape[1]
        first, last = slice(None, 2 * units), slice(2 * units, 3 * units)
        if self.reset_after:
            of_products = dz.copy()
            of_products[:, last] *= as_rows(saved[:, 1])
            return super().weight_gradients(h, saved, of_products)
        parts = np.matmul(h.T, dz[:, first]), np.matmul(as_rows(saved[:, 3]).T, dz[:, last])
        return np.concatenate(parts, axis=1), sum_of_rows(dz)


def _by_gate(rows: Array, num_gates: int) -> Array:
    """(batch, gates · units) as a view (gates, batch, units)."""
    num, width = rows.shape
    return rows.reshape(num, num_gates, width // num_gates).transpose(1, 0, 2)


def recurrent(
    recurrence: Recurrence,
    z: Any,
    w: Any,
    b: Any,
    initial: Any,
    mask: Array | None = None,
    kept: Array | None = None,
) -> Tensor:
    """The states of a recurrent network after each step.

    Args:
        recurrence: What it does at a step.
        z: (steps, batch, gates · units): what the inputs add to the gates.
        w: (units, gates · units): the recurrent kernel.
        b: (gates · units,): the recurrent bias, or None.
        initial: (states, batch, units): the states before the first step.
        mask: (steps, batch), False where an example's states stay as they are; None for nowhere.
        kept: (batch, units): what the last output is multiplied by before the recurrent kernel, at
            all steps, for dropout.

    Returns:
        (steps, states, batch, units).
    """
    inputs = tuple(lift_array(value) for value in (z, w, initial, *(() if b is None else (b,))))
    gates, kernel, first, *bias = [tensor.data for tensor in inputs]
    kept, mask = plain(kept), plain(mask)
    steps, num_gates = len(gates), recurrence.num_gates
    states = np.empty((steps + 1, *first.shape), gates.dtype, like=gates)
    saved = np.empty((steps, recurrence.num_saved, *first.shape[1:]), gates.dtype, like=gates)
    states[0] = first
    for step in range(steps):
        old, new, of_step = states[step], states[step + 1], _by_gate(gates[step], num_gates)
        h = old[0] if kept is None else old[0] * kept
        recurrence.forward(of_step, h, old, kernel, (*bias, None)[0], saved[step], new)
        if mask is not None:
            new[...] = np.where(mask[step][:, np.newaxis], new, old)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            first_order_only(g, "recurrent")
        dz = np.empty(gates.shape, gates.dtype, like=gates)
        carried = np.zeros(first.shape, gates.dtype, like=gates)
        for step in reversed(range(steps)):
            carried += g[step]
            old = states[step]
            h = old[0] if kept is None else old[0] * kept
            passed = None
            if mask is not None:
                counts = mask[step][:, np.newaxis]
                passed, carried = np.where(counts, 0, carried), np.where(counts, carried, 0)
            dh, carried = recurrence.backward(carried, h, old, kernel, saved[step], dz[step])
            carried[0] += dh if kept is None else dh * kept
            if passed is not None:
                carried += passed
        outputs = states[:-1, 0] if kept is None else states[:-1, 0] * kept
        dw, db = recurrence.weight_gradients(as_rows(outputs), saved, as_rows(dz))
        return (dz, dw, carried, db)[: len(inputs)]

    return record(states[1:], inputs, vjp)
