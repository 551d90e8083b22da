"""Recurrent layers: over the steps of sequences (batch, steps, features)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from ...autodiff import (
    RECURRENT_ACTIVATIONS,
    Array,
    GRURecurrence,
    LSTMRecurrence,
    Recurrence,
    SimpleRecurrence,
    by_host,
    random_factors,
    recurrent,
)
from ...strategies import call_initializer
from .. import activations, initializers
from ..arguments import check_decay, check_no_activity_regularizer, count
from ..masks import beside
from ..policies import to_dtype
from .dropout import RandomLayer
from .options import (
    Constraint,
    Initializer,
    LayerOptions,
    Regularizer,
    WeightOf,
    weight_options,
)
from .spatial import check_sequences

Activation = str | Callable[[Any], Any] | None


class RecurrentOptions(LayerOptions, total=False):
    """The keyword arguments that recurrent layers share; see `LSTM`."""

    kernel_initializer: Initializer
    recurrent_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Regularizer
    recurrent_regularizer: Regularizer
    bias_regularizer: Regularizer
    activity_regularizer: None
    kernel_constraint: Constraint
    recurrent_constraint: Constraint
    bias_constraint: Constraint
    dropout: float
    recurrent_dropout: float
    return_sequences: bool
    return_state: bool
    go_backwards: bool
    stateful: bool
    unroll: bool
    zero_output_for_mask: bool
    seed: int | None


class _Recurrent(RandomLayer):
    """The states of a `Recurrence` that goes over the inputs."""

    kernel = WeightOf()
    recurrent_kernel = WeightOf()
    bias = WeightOf()

    def __init__(
        self,
        units: int,
        recurrence: Recurrence,
        use_bias: bool,
        *,
        kernel_initializer: Initializer = "glorot_uniform",
        recurrent_initializer: Initializer = "orthogonal",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        recurrent_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        kernel_constraint: Constraint = None,
        recurrent_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_no_activity_regularizer(self.name, activity_regularizer)
        if stateful:
            raise ValueError(
                f"layer {self.name!r} cannot be stateful, since replicas share batches out anew at "
                f"each step: ask for the states with return_state=True, and hand them to the next "
                f"call as initial_state"
            )
        check_decay("dropout", dropout)
        check_decay("recurrent_dropout", recurrent_dropout)
        self.units = count("units", units)
        self.recurrence = recurrence
        self.use_bias = use_bias
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.zero_output_for_mask = zero_output_for_mask
        self._kernel_options = weight_options(
            kernel_initializer, kernel_regularizer, kernel_constraint
        )
        self._recurrent_options = weight_options(
            recurrent_initializer, recurrent_regularizer, recurrent_constraint
        )
        self._bias_options = weight_options(bias_initializer, bias_regularizer, bias_constraint)

    @property
    def num_states(self) -> int:
        """How many states there are, each (batch, units)."""
        return self.recurrence.num_states

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        initial_state: Any = None,
    ) -> Any:
        if isinstance(inputs, (list, tuple)):  # Keras's [inputs, *states]
            inputs, *initial_state = inputs
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        sequences: Any = to_dtype(inputs, self.compute_dtype)
        check_sequences(self.name, sequences)
        counts = None if mask is None else beside(mask, sequences, bool)
        if counts is not None and counts.shape != sequences.shape[:2]:
            raise ValueError(
                f"layer {self.name!r} takes a mask of shape {sequences.shape[:2]}, (batch, steps), "
                f"it was given {counts.shape}"
            )
        initial = self._initial(sequences, initial_state)
        states = self._states(sequences, counts, initial, training)
        outputs = states[:, 0]
        if counts is not None and (self.zero_output_for_mask or initial_state is not None):
            shown = self._steps_first(counts)
            if not self.zero_output_for_mask:
                # As in Keras: before the first step that counts the output is zero, no state.
                shown = np.cumsum(shown, axis=0) > 0
            outputs = outputs * shown[..., np.newaxis].astype(outputs.dtype)
        found = np.swapaxes(outputs, 0, 1) if self.return_sequences else outputs[-1]
        if not self.return_state:
            return found
        return [found, *(states[-1, k] for k in range(self.num_states))]

    def _states(self, sequences: Any, counts: Array | None, initial: Any, training: bool) -> Any:
        """All states after each step, steps first."""
        kernel, recurrent_kernel, biases = self._make_weights_for(sequences.shape[-1])
        batch = len(sequences)
        if training and self.dropout:  # one draw for all steps of an example
            sequences = sequences * self._kept(
                (batch, 1, sequences.shape[-1]), self.dropout, sequences
            )
        kept = None
        if training and self.recurrent_dropout:
            kept = self._kept((batch, self.units), self.recurrent_dropout, sequences)
        gates = np.matmul(self._steps_first(sequences), kernel)
        gates = gates if biases is None else gates + biases[0]
        own = None if biases is None or len(biases) == 1 else biases[1]
        mask = None if counts is None else self._steps_first(counts)
        return recurrent(self.recurrence, gates, recurrent_kernel, own, initial, mask, kept)

    def _steps_first(self, sequences: Any) -> Any:
        """(steps, batch, …), in the order in which they are gone through."""
        ordered = np.swapaxes(sequences, 0, 1)
        return np.flip(ordered, 0) if self.go_backwards else ordered

    def _make_weights_for(self, num_features: int) -> tuple[Any, Any, Any]:
        width = self.recurrence.num_gates * self.units
        kernel = self.add_weight("kernel", (num_features, width), **self._kernel_options)
        own = self.add_weight("recurrent_kernel", (self.units, width), **self._recurrent_options)
        if not self.use_bias:
            return kernel, own, None
        shape = self.bias_shape(width)
        bias = self.add_weight("bias", shape, **self._bias_options)
        return kernel, own, (bias,) if len(shape) == 1 else (bias[0], bias[1])

    def bias_shape(self, width: int) -> tuple[int, ...]:
        """The shape of the bias, for gates of that width in all."""
        return (width,)

    def _initial(self, sequences: Any, given: Any) -> Any:
        """The states before the first step, (states, batch, units)."""
        shape = (len(sequences), self.units)
        if given is None:
            zeros = np.zeros((self.num_states, *shape), sequences.dtype)
            return np.asarray(zeros, like=sequences.like())
        states = list(given) if isinstance(given, (list, tuple)) else [given]
        shapes = [np.shape(state) for state in states]
        if shapes != [shape] * self.num_states:
            raise ValueError(
                f"layer {self.name!r} takes {self.num_states} initial state(s) of shape {shape}, "
                f"it was given {shapes}"
            )
        return np.stack([to_dtype(state, self.compute_dtype) for state in states])

    @by_host
    def _kept(self, shape: tuple[int, ...], rate: float, like: Any) -> Array:
        """Zeros for a share of places, and 1 / (1 - rate) for the others."""
        return random_factors(self.generator(), rate, shape, like.data)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """That of the inputs, for sequences; else none."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        found = mask if self.return_sequences else None
        return [found, *[None] * self.num_states] if self.return_state else found

    def num_outputs(self) -> int | None:
        return 1 + self.num_states if self.return_state else None


class SimpleRNN(_Recurrent):
    """`h = activation(x @ kernel + h @ recurrent_kernel + bias)` at each step.

    Weights: kernel (d, units), recurrent_kernel (units, units), bias (units,). For the arguments
    see `LSTM`.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = "tanh",
        use_bias: bool = True,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        recurrence = SimpleRecurrence(_name_of(activation))
        super().__init__(units, recurrence, use_bias, **options)


class LSTM(_Recurrent):
    """Long short-term memory: Hochreiter and Schmidhuber (1997).

    Inputs (batch, steps, d) give outputs (batch, units), those of the last step. Weights: kernel
    (d, 4 · units), recurrent_kernel (units, 4 · units), bias (4 · units,), for input gate, forget
    gate, candidate and output gate. Called with `initial_state=[h, c]` it begins with these. Steps
    that a mask leaves out change nothing.

    Args:
        units: The width of outputs and states.
        activation, recurrent_activation: Of the candidate and the cell; of the gates. Names or
            functions of `nn.activations` whose derivative follows from their value: tanh, sigmoid,
            relu, linear, hard_sigmoid, softsign, elu, exponential, softplus.
        use_bias: Whether there is a bias.
        unit_forget_bias: Whether the forget gate's bias begins with ones.
        kernel_initializer, recurrent_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: See `nn.regularizers`.
        activity_regularizer: Only None is supported.
        kernel_constraint, recurrent_constraint, bias_constraint: See `nn.constraints`.
        dropout: The share of inputs that are dropped in training, the same at all steps.
        recurrent_dropout: The same of the last output, before the recurrent kernel.
        return_sequences: Whether outputs are those of all steps, (batch, steps, units).
        return_state: Whether the result is a list: the outputs, then the last states.
        go_backwards: Whether it begins with the last step; outputs are in that order.
        stateful: Only False is supported.
        unroll: Means nothing here.
        zero_output_for_mask: Whether outputs of steps that a mask leaves out are zeros; else they
            are those of the step before.
        seed: Of the dropout; see `Dropout`.
        **options: See `Layer`.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = "tanh",
        recurrent_activation: Activation = "sigmoid",
        use_bias: bool = True,
        unit_forget_bias: bool = True,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        recurrence = LSTMRecurrence(_name_of(activation), _name_of(recurrent_activation))
        if unit_forget_bias:
            first = initializers.get(options.get("bias_initializer", "zeros"))
            options["bias_initializer"] = _ForgetLittle(first)
        super().__init__(units, recurrence, use_bias, **options)


class GRU(_Recurrent):
    """Gated recurrent unit: Cho et al. (2014).

    Weights: kernel (d, 3 · units), recurrent_kernel (units, 3 · units), and bias (2, 3 · units),
    one for each of them; without `reset_after` (3 · units,). They are for update gate, reset gate
    and candidate.

    Args:
        reset_after: Whether the reset gate comes behind the product with the recurrent kernel, as
            in cuDNN, or before it.
        units, activation, recurrent_activation, use_bias, **options: See `LSTM`.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = "tanh",
        recurrent_activation: Activation = "sigmoid",
        use_bias: bool = True,
        reset_after: bool = True,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        names = _name_of(activation), _name_of(recurrent_activation)
        super().__init__(units, GRURecurrence(*names, reset_after), use_bias, **options)
        self.reset_after = reset_after

    def bias_shape(self, width: int) -> tuple[int, ...]:
        return (2, width) if self.reset_after else (width,)


class _ForgetLittle:
    """A bias whose second quarter, that of the forget gate, begins with ones."""

    def __init__(self, others: Callable[..., Any]) -> None:
        self._others = others

    def __call__(self, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Array:
        values = np.array(call_initializer(self._others, shape, dtype, rng))
        units = shape[0] // 4
        values[units : 2 * units] = 1
        return values


def _name_of(activation: Activation) -> str:
    """What `RECURRENT_ACTIVATIONS` calls a layer's argument."""
    name = getattr(activations.get(activation), "__name__", "")
    if name not in RECURRENT_ACTIVATIONS:
        raise ValueError(
            f"recurrent layers take the activations {', '.join(RECURRENT_ACTIVATIONS)}, not "
            f"{activation!r}"
        )
    return name
