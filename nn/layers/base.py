"""`Layer`: a function of arrays that finds its weights by its name."""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, TypedDict

import numpy as np

from ...autodiff import Array, Tensor, lift, no_grad
from ...strategies import (
    Membership,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_replica_context,
    get_strategy,
    get_variable,
)
from .. import initializers
from ..serialization import Config, Serializable
from .symbolic import SymbolicTensor, is_symbolic

Shape: TypeAlias = "tuple[int, ...]"
Initializer: TypeAlias = "str | Callable[..., Any]"
Regularizer: TypeAlias = "str | Callable[[Any], Tensor] | None"

_FLOAT32 = np.dtype(np.float32)
_noted: ContextVar[list[str] | None] = ContextVar("paceline_inference_calls", default=None)
"""Where to note the names of layers that are called as outside training, if anybody wants to know:
to find a `training=True` that was forgotten."""


@contextmanager
def noting_inference_calls() -> Iterator[list[str]]:
    """Within it, in this thread, layers that train otherwise than they predict note their names.

    Yields:
        The names of those that were called without training: in the order of the calls.
    """
    names: list[str] = []
    token = _noted.set(names)
    try:
        yield names
    finally:
        _noted.reset(token)


class LayerOptions(TypedDict, total=False):
    """The keyword arguments that every layer has."""

    name: str | None
    trainable: bool
    dtype: Any
    input_shape: Shape | None


class Layer(Serializable, ABC):
    """A function of arrays with named weights.

    A layer is cheap to make: it holds its options, and asks for its weights when it is called. They
    are variables named "<layer>/<weight>", found or created in the store of the calling model. A
    `model_fn` that makes its layers anew for each step thus gets the same weights each time. So
    does one that uses a layer from outside, whose weights are then those of the training or
    evaluation under way.

    To write one, set the options in `__init__` and compute in `call`, which asks for the weights
    there. A layer may hold other layers as attributes, also in lists; their weights are among its
    own.

    >>> class Scale(Layer):
    ...     def call(self, inputs):
    ...         return inputs * self.add_weight("factor", inputs.shape[-1:], initializer="ones")
    >>> Scale()(np.array([[1.0, 2.0]], np.float32)).numpy()
    array([[1., 2.]], dtype=float32)

    Args:
        name: Made unique in the model with a number where it is taken; by default the class's name
            in snake case: "dense", "dense_1".
        trainable: Whether optimizers change its weights.
        dtype: Of the weights, float32 by default. Layers with weights convert their inputs to it;
            the others leave floats as they are and convert only whole numbers.
        input_shape: The shape of one example, without the batch. With it the weights are known
            before the first call, unless a length in it is None. `Sequential` reads that of its
            first layer.
    """

    _default_name = "layer"
    _call_takes_training = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._default_name = _snake_case(cls.__name__)
        # Once for a class: to look at the signature takes longer than most layers.
        cls._call_takes_training = "training" in inspect.signature(cls.call).parameters

    def __init__(
        self,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        input_shape: Shape | None = None,
    ) -> None:
        self._membership: Membership[dict[str, Variable]] = Membership(
            self, name or self._default_name, lambda name: {}
        )
        self.name = self._membership.name
        self.trainable = trainable
        self.dtype = _FLOAT32 if dtype is None else np.dtype(dtype)
        self.input_shape = None if input_shape is None else tuple(input_shape)
        self._called = False
        self._regularizers: dict[str, Callable[[Any], Tensor]] = {}

    @abstractmethod
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's outputs, as `call(inputs)` or `call(inputs, training)`."""

    def __call__(self, inputs: Any, training: bool = False) -> Any:
        """The layer's outputs for a batch of inputs, as a tensor.

        Args:
            inputs: An array or tensor; batch first, channels last. With an `Input`, or what layers
                have made of it, the result is symbolic: see `Model`.
            training: Whether this is a training step: dropout drops, batch normalization uses and
                collects the statistics of the batch.
        """
        if is_symbolic(inputs):
            return SymbolicTensor(self, (inputs,), {"training": True} if training else {})
        self._called = True
        if self._call_takes_training:
            noted = None if training else _noted.get()
            # A frozen layer is meant to be called so; one of layers only hands it on to them.
            if noted is not None and self.trainable and not self.sublayers:
                noted.append(self.name)
            return self.call(inputs, training)
        return self.call(inputs)

    def add_weight(
        self,
        name: str,
        shape: Shape = (),
        dtype: Any = None,
        initializer: Initializer = "glorot_uniform",
        regularizer: Callable[[Any], Tensor] | None = None,
        trainable: bool = True,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> Variable:
        """Find this layer's weight of that name, or create it.

        Args:
            name: Its last name: the variable is "<layer>/<name>".
            shape: What the inputs call for; a weight that exists must have it.
            dtype: The layer's by default.
            initializer, regularizer: See `nn.initializers` and `nn.regularizers`.
            trainable: False for weights that the layer itself changes. A layer whose own
                `trainable` is False has no trainable weights.
            synchronization, aggregation: See `Variable`.

        Raises:
            ValueError: The weight exists with another shape.
        """
        full_name = f"{self.name}/{name}"
        # First what this object has found before; then what another one of its name has made, where
        # a model_fn makes its layers anew for each step; a new variable only where neither is.
        weights = self._membership.here(self)
        weight = weights.get(name)
        if weight is None:
            weight = current_store().variables.get(full_name)
        if weight is None:
            weight = get_variable(
                full_name,
                shape,
                dtype or self.dtype,
                initializers.get(initializer),
                trainable and self.trainable,
                synchronization,
                aggregation,
            )
        elif weight.shape != tuple(shape):
            raise ValueError(
                f"layer {self.name!r} has a {name} of shape {weight.shape}, these inputs call for "
                f"one of shape {tuple(shape)}; feed inputs like those the layer was made with, "
                f"or give a second layer its own name"
            )
        weights[name] = weight
        if regularizer is not None:
            self._regularizers[name] = regularizer
        return weight

    @property
    def _weights(self) -> dict[str, Variable]:
        """Those of its own, in the model that used it last."""
        return self._membership.latest

    def make_weights(self) -> None:
        """Create all weights before the first call, where the shape of the inputs is known.

        The layer is run once on zeros, so that whatever it holds is created as by a real call.
        """
        if self._called:
            return
        replica = get_replica_context()
        places = get_strategy().extended.variable_devices
        device = places[0] if replica is None else replica.device
        inputs = self._zeros(device.put)
        if inputs is not None:
            with no_grad():
                self(inputs)

    def _zeros(self, put: Callable[[np.ndarray], Any]) -> Any:
        """Inputs of one example on a device; None where their shape is not known."""
        if self.input_shape is None or None in self.input_shape:
            return None
        return put(np.zeros((1, *self.input_shape), self.dtype))

    @property
    def sublayers(self) -> list[Layer]:
        """The layers that this one holds as attributes, in the order in which they were set."""
        return list(_layers_in(vars(self).values()))

    def graph(self) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
        """The inputs, and all that is computed of them, in order; None where nobody can know."""
        return None

    @property
    def weights(self) -> list[Variable]:
        """All weights, those of sublayers included.

        Before the first call there are none, unless the layer has an `input_shape`.
        """
        self.make_weights()
        own = list(self._weights.values())
        return own + [weight for layer in self.sublayers for weight in layer.weights]

    variables = weights

    def restore_later(self, find: Callable[[str], Array | None]) -> None:
        """Ask `find(name)` what weights that do not exist yet begin with; for checkpoints."""
        current_store().restore_later(find)

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that optimizers change."""
        self.make_weights()
        own = [w for w in self._weights.values() if w.trainable and self.trainable]
        below = self.sublayers if self.trainable else []
        return own + [weight for layer in below for weight in layer.trainable_weights]

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that optimizers leave alone."""
        trainable = {id(weight) for weight in self.trainable_weights}
        return [weight for weight in self.weights if id(weight) not in trainable]

    @property
    def losses(self) -> list[Tensor]:
        """The penalties of the weights that have a regularizer, as scalar tensors."""
        self.make_weights()
        own = [
            penalty(self._weights[name].tensor()) for name, penalty in self._regularizers.items()
        ]
        return own + [loss for layer in self.sublayers for loss in layer.losses]

    def get_weights(self) -> list[np.ndarray]:
        """The values of `weights`, as copies in host memory."""
        return [weight.numpy() for weight in self.weights]

    def set_weights(self, values: list[Any]) -> None:
        """Assign one array to each of `weights`, in their order."""
        weights = self.weights
        if len(values) != len(weights):
            raise ValueError(
                f"layer {self.name!r} has {len(weights)} weights and was given {len(values)} values"
            )
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value)

    def get_config(self) -> Config:
        # As the layer is now: its name was counted up, say, and it may have been frozen since.
        return super().get_config() | self.taken({"name": self.name, "trainable": self.trainable})

    def count_params(self) -> int:
        """The number of numbers in its weights.

        Raises:
            ValueError: They are not known before the first call.
        """
        weights = self.weights
        has_order = not self.sublayers or self.graph() is not None
        if not self._called and not (weights and has_order):
            raise ValueError(
                f"the weights of {self!r} are made by its first call: call it with a batch, or "
                f"give the first layer an input_shape"
            )
        return sum(math.prod(weight.shape) for weight in weights)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def to_dtype(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of `dtype`, through which a gradient flows back."""
    tensor = lift(inputs)
    return tensor if tensor.data.dtype == dtype else tensor.astype(dtype)


def to_floats(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of floats: floats as they are, anything else converted to `dtype`."""
    tensor = lift(inputs)
    return tensor if tensor.data.dtype.kind == "f" else tensor.astype(dtype)


def _layers_in(values: Iterable[Any]) -> Iterator[Layer]:
    """The layers among some values and, one level down, in lists, tuples and dicts among them."""
    seen: set[int] = set()
    for value in values:
        members: Iterable[Any] = (value,)
        if isinstance(value, list | tuple):
            members = value
        elif isinstance(value, dict):
            members = value.values()
        for member in members:
            if isinstance(member, Layer) and id(member) not in seen:
                seen.add(id(member))
                yield member


def _snake_case(name: str) -> str:
    """Keras's name for a class: MaxPooling2D becomes max_pooling2d."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
