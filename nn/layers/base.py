"""`Layer`: a function of arrays that finds its weights by its name."""

from __future__ import annotations

import inspect
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ...autodiff import Array, Tensor, no_grad, operation, placed
from ...inputs import nest
from ...strategies import (
    Membership,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    current_store,
    get_variable,
    variables_are_cast,
    variables_cast_to,
)
from .. import constraints, initializers, regularizers
from ..arguments import name_of_class
from ..masks import masks_of
from ..policies import cast_floats, global_policy, policy_of
from ..prototypes import never_changes
from ..serialization import Config
from .calls import INFERENCE_CALLS, TRAINING, taken_by_keyword, with_layers_mask
from .ends import SymbolicEnds
from .options import Constraint, Initializer, Regularizer, Shape, shape_of_one
from .sublayers import objects_in
from .symbolic import SymbolicTensor, is_symbolic

_building = threading.RLock()
_OF_ONE_LAYER: Final = frozenset({"_arguments", "_membership", "name"})
_MISSING: Final = object()
_ARRAYS: Final = frozenset({np.ndarray, Tensor})  # which no symbolic tensor is


class Layer(SymbolicEnds, ABC):
    """A function of arrays with named weights.

    A layer is cheap to make: it holds its options, and asks for its weights when it is called. They
    are variables named "<layer>/<weight>", found or created in the store of the calling model.
    (Where another layer, of an earlier model of the process, say, has variables of that name, a
    number stands behind the layer's.) A `model_fn` that makes its layers anew for each step thus
    gets the same weights each time. So does one that uses a layer from outside, whose weights are
    then those of the training or evaluation under way.

    To write one, set the options in `__init__` and compute in `call`, which asks for the weights
    there; or ask for them in `build(input_shape)`, which runs before the first call. A layer may
    hold other layers as attributes, also in lists; their weights are among its own.

    A layer whose `call` has an argument `mask` gets the mask of its inputs (see `nn.masks`). One
    that sets `supports_masking = True` hands the mask on to its outputs, as `compute_mask` says;
    any other that is given a mask drops it, and says so once.

    >>> class Scale(Layer):
    ...     def call(self, inputs):
    ...         return inputs * self.add_weight("factor", inputs.shape[-1:], initializer="ones")
    >>> Scale()(np.array([[1.0, 2.0]], np.float32)).numpy()
    array([[1., 2.]], dtype=float32)

    Args:
        name: Kept as it is given; two layers of one `Sequential` or `Model(inputs, outputs)` must
            not have the same. By default the class's name in snake case, with a number where it is
            taken: "dense", "dense_1".
        trainable: Whether optimizers change its weights.
        dtype: Of the weights, or a policy of `nn.mixed_precision`, by default the global one:
            float32. Layers with weights convert inputs to it; of what the others get floats stay.
        input_shape: The shape of one example, without the batch. With it the weights are known
            before the first call, unless a length in it is None. `Sequential` reads that of its
            first layer.
        input_dim: Keras's short form of `input_shape=(input_dim,)`.
        batch_input_shape: Keras's form of it with the batch in front.
        weights: The arrays that its weights begin with, in the order of `get_weights`.
    """

    supports_masking = False
    _casts_inputs = _casts_weights = True  # to what it computes in, under a mixed policy
    _default_name = "layer"
    _call_names: tuple[str, ...] = ("training",)
    _takes_training = True
    _takes_mask = False
    _builds = False
    _first_name = "inputs"

    # What few layers have is set on these alone.
    built = False
    _built_in: dict[str, Variable] | None = None
    _first_values: list[Any] | None = None
    _called = False
    _regularizers: Mapping[str, Callable[[Any], Tensor]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._default_name = name_of_class(cls.__name__)
        # Once for a class: to look at the signature takes longer than most layers.
        names = tuple(inspect.signature(cls.call).parameters)[1:]
        cls._first_name, cls._call_names = "".join(names[:1]), names[1:]
        cls._takes_training = "training" in cls._call_names
        cls._takes_mask = "mask" in cls._call_names
        cls._builds = cls.build is not Layer.build

    def __init__(
        self,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        input_shape: Shape | None = None,
        input_dim: int | None = None,
        batch_input_shape: Shape | None = None,
        weights: list[Any] | None = None,
    ) -> None:
        self._take_name(name)
        self.trainable = trainable
        self.dtype_policy = policy = policy_of(dtype)
        self.dtype = self.variable_dtype = policy.variable_dtype
        self.compute_dtype = policy.compute_dtype
        self._casts = policy.is_mixed or global_policy().is_mixed
        self.example_shape = shape_of_one(input_shape, input_dim, batch_input_shape)
        if weights is not None:
            self._first_values = list(weights)

    def _take_name(self, given: str | None) -> None:
        base = given or self._default_name
        self._membership: Membership[dict[str, Variable]] = Membership(self, base, _no_weights)
        self._given_name = given
        # Only names that nobody gave are counted. Keys of losses, logs and saved models go by a
        # given one, which therefore means the same in each model of the process.
        self.name = given or self._membership.name

    @property
    def variables_prefix(self) -> str:
        """The beginning of its variables' names: its own name, with a number where that is taken.

        Two models of a process may have layers of the same name. They never share variables.
        """
        return self._membership.name

    def as_prototype(self) -> dict[str, Any] | None:
        state = {name: value for name, value in vars(self).items() if name not in _OF_ONE_LAYER}
        return state if all(map(never_changes, state.values())) else None

    def begin_as(self, prototype: dict[str, Any]) -> None:
        self.__dict__.update(prototype)
        self._take_name(prototype["_given_name"])

    @abstractmethod
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's outputs, as `call(inputs)` or `call(inputs, training)`."""

    def __call__(self, inputs: Any = _MISSING, *args: Any, **kwargs: Any) -> Any:
        """The layer's outputs for a batch of inputs, as a tensor.

        Args:
            inputs: An array or tensor; batch first, channels last. With an `Input`, or what layers
                have made of it, the result is symbolic: see `Model`.
            training: Whether this is a training step: dropout drops, batch normalization uses and
                collects the statistics of the batch. By default as the layer was called, if any,
                in whose `call` this is; else not.
            mask: Which parts of the inputs count, if not what the inputs say themselves.
            *args, **kwargs: Whatever else `call` takes. The inputs may be given by keyword, too: as
                `inputs`, or as `call` names them.

        Raises:
            TypeError: There are no inputs.
        """
        if inputs is _MISSING:
            inputs = taken_by_keyword(self, self._first_name, kwargs)
        if args:
            kwargs |= zip(self._call_names or ("training",), args, strict=False)
        if type(inputs) not in _ARRAYS and is_symbolic(inputs):
            return self._symbolic(inputs, kwargs)
        training = mask = None
        if kwargs:
            training, mask = kwargs.pop("training", None), kwargs.pop("mask", None)
            if is_symbolic(mask) or (kwargs and any(map(is_symbolic, kwargs.values()))):
                return self._symbolic(inputs, kwargs | {"training": training, "mask": mask})
        if self._casts or variables_are_cast():
            return self._in_own_precision(inputs, training, mask, kwargs)
        return self._called_with(inputs, training, mask, kwargs)

    def _in_own_precision(
        self, inputs: Any, training: bool | None, mask: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A call where some layer's policy is mixed."""
        if self._casts and self._casts_inputs:
            inputs = cast_floats(inputs, self.compute_dtype)
        casts = self.dtype_policy.is_mixed and self._casts_weights
        with variables_cast_to(self.compute_dtype if casts else None):
            outputs = self._called_with(inputs, training, mask, kwargs)
        if self.sublayers or not self._casts:  # each of them has a precision of its own
            return outputs
        return cast_floats(outputs, self.compute_dtype)

    def _called_with(
        self, inputs: Any, training: bool | None, mask: Any, kwargs: dict[str, Any]
    ) -> Any:
        outer = TRAINING.get()
        training = outer if training is None else bool(training)
        if mask is None and type(inputs) is not np.ndarray:
            mask = masks_of(inputs)
        self._called = True
        if self._builds:
            self._build_here(inputs)
        if self._takes_training:
            kwargs["training"] = training
            noted = None if training else INFERENCE_CALLS.get()
            # A frozen layer is meant to be called so; one of layers only hands it on to them.
            if noted is not None and self.trainable and not self.sublayers:
                noted.append(self.name)
        if self._takes_mask:
            kwargs["mask"] = mask
        if training is outer:
            outputs = self.call(inputs, **kwargs)
        else:
            token = TRAINING.set(training)
            try:
                outputs = self.call(inputs, **kwargs)
            finally:
                TRAINING.reset(token)
        return outputs if mask is None else with_layers_mask(self, inputs, outputs, mask)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the outputs, if the inputs have `mask`: the same, unless overridden."""
        return mask

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of a shape, that of the batch included.

        A layer may override it, to ask for its weights here and keep them as attributes: it is then
        called before the first `call`, in each model that uses the layer.

        Args:
            input_shape: A tuple that begins with the batch, which may be None; for a layer of
                several inputs, a list of them.
        """
        if not self._called:
            self.example_shape = tuple(input_shape)[1:]
            self.make_weights()
        self.built = True

    def _build_here(self, inputs: Any) -> None:
        """Run `build`, if it has not been run in the calling model."""
        weights = self._membership.here(self)
        with _building:  # replicas that share the layer come at once, and building may make layers
            if weights is not self._built_in:
                self.build(nest.map_structure(np.shape, inputs))
                self.built = True
                self._built_in = weights

    def add_weight(
        self,
        name: str = "weight",
        shape: Shape = (),
        dtype: Any = None,
        initializer: Initializer | None = None,
        regularizer: Regularizer = None,
        trainable: bool = True,
        constraint: Constraint = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        use_resource: bool | None = None,
    ) -> Variable:
        """Find this layer's weight of that name, or create it.

        Args:
            name: Its last name: the variable is "<variables_prefix>/<name>".
            shape: What the inputs call for; a weight that exists must have it.
            dtype: The layer's by default.
            initializer: See `nn.initializers`; Glorot's uniform one by default.
            regularizer, constraint: See `nn.regularizers` and `nn.constraints`.
            trainable: False for weights that the layer itself changes. A layer whose own
                `trainable` is False has no trainable weights.
            synchronization, aggregation: See `Variable`.
            use_resource: Means nothing here.

        Raises:
            ValueError: The weight exists with another shape.
        """
        # What this object has found before, or else another one of its name has made, in a model_fn
        # that makes its layers anew for each step; a new variable only where neither is.
        weights = self._membership.here(self)
        weight = weights.get(name)
        if weight is None:
            full_name = f"{self.variables_prefix}/{name}"
            weight = current_store().variables.get(full_name)
            if weight is None:
                weight = get_variable(
                    full_name,
                    shape,
                    dtype or self.dtype,
                    self._beginning_of(len(weights), initializer, dtype),
                    trainable and self.trainable,
                    synchronization,
                    aggregation,
                    constraint=constraints.get(constraint),
                )
        if weight.shape != tuple(shape):
            raise ValueError(
                f"layer {self.name!r} has a {name} of shape {weight.shape}, these inputs call for "
                f"one of shape {tuple(shape)}; feed inputs like those the layer was made with, "
                f"or give a second layer its own name"
            )
        weights[name] = weight
        if regularizer is not None:
            vars(self).setdefault("_regularizers", {})[name] = regularizers.get(regularizer)
        return weight

    def _beginning_of(self, number: int, initializer: Initializer | None, dtype: Any) -> Any:
        """What the layer's weight of that number begins with."""
        if self._first_values is not None and number < len(self._first_values):
            return np.asarray(self._first_values[number], dtype or self.dtype)
        return initializers.get("glorot_uniform" if initializer is None else initializer)

    @property
    def own_weights(self) -> dict[str, Variable]:
        """Its weights by name, without those of sublayers; none before the first call."""
        self.make_weights()
        return self._weights

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
        inputs = self._zeros()
        if inputs is not None:
            with no_grad():
                self(inputs)

    def _zeros(self) -> Any:
        """Inputs of one example where the caller computes; None where their shape is not known."""
        if self.example_shape is None or None in self.example_shape:
            return None
        return placed(np.zeros((1, *self.example_shape), self.dtype))

    @property
    def sublayers(self) -> list[Layer]:
        """The layers that this one holds as attributes, in the order in which they were set."""
        # Replicas share it, and one may call it for the first time, which sets attributes.
        return list(objects_in(list(vars(self).values()), Layer))

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
        own = [w for w in list(self._weights.values()) if w.trainable and self.trainable]
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
        penalties = list(self._regularizers.items())
        own = [penalty(_tensor_of(self._weights[name])) for name, penalty in penalties]
        return own + [loss for layer in self.sublayers for loss in layer.losses]

    def get_weights(self) -> list[np.ndarray]:
        """The values of `weights`, as copies in host memory."""
        return [weight.numpy() for weight in self.weights]

    def set_weights(self, weights: list[Any]) -> None:
        """Assign one array to each weight, in the order of `get_weights`."""
        own = self.weights
        if len(weights) != len(own):
            raise ValueError(
                f"layer {self.name!r} has {len(own)} weights and was given {len(weights)} arrays"
            )
        Variable.assign_together(zip(own, weights, strict=True))

    def get_config(self) -> Config:
        # As the layer is now: its name was counted up, say, and it may have been frozen since.
        now = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype_policy.name}
        config = super().get_config() | self.taken(now)
        config.pop("weights", None)  # which have become values of its variables
        return config

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


def _no_weights(name: str) -> dict[str, Variable]:
    return {}


@operation
def _tensor_of(weight: Variable) -> Tensor:
    return weight.tensor()
