"""`Model`: layers with inputs and outputs, a loss, an optimizer and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from ...autodiff import Tensor, lift
from ...strategies import current_store
from .. import losses, metrics, optimizers
from ..layers import Input, Layer, SymbolicTensor, in_order, map_symbolic, symbolic_in
from ..losses import Loss
from ..metrics import Metric
from ..optimizers import Optimizer
from ..serialization import serialize
from .graph import graph_config, graph_of
from .saving import Savable
from .summary import write_summary


class Model(Savable):
    """Layers with inputs and outputs, which can be given a loss, an optimizer and metrics.

    Written in one of three ways, as in Keras: `Sequential([...])`, for layers one after the other;
    `Model(inputs, outputs)`, for any graph of layers; or as a subclass that makes its layers in
    `__init__` and computes in `call`.

    >>> inputs = Input((4,))
    >>> hidden = Dense(4, "relu")(inputs)
    >>> model = Model(inputs, Dense(1)(hidden + inputs))
    >>> model(np.ones((2, 4), np.float32)).shape
    (2, 1)

    Args:
        inputs: An `Input`, or a list or dict of them.
        outputs: What is computed from them: a symbolic tensor, or a list or dict.
        name: See `Layer`.

    Raises:
        TypeError: Only one of inputs and outputs is given, or they are something else.
        ValueError: The outputs are computed from an `Input` that is not among the inputs.
    """

    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None) -> None:
        super().__init__(name)
        self.inputs, self.outputs = inputs, outputs
        self.layers: list[Layer] = []
        if inputs is None and outputs is None:
            return
        self._steps = _steps(inputs, outputs)
        self.layers = _layers_of(self._steps)
        self._create_weights()

    def call(self, inputs: Any, training: bool = False) -> Any:
        if self.outputs is None:
            raise NotImplementedError(
                f"{type(self).__name__} has neither inputs and outputs nor a `call` of its own: "
                f"write Model(inputs, outputs), or def call(self, inputs, training=False)"
            )
        values = _bound(self.name, self.inputs, inputs)
        for tensor in self._steps:
            values[id(tensor)] = _computed(tensor, values, training)
        return map_symbolic(lambda tensor: lift(values[id(tensor)]), self.outputs)

    def get_config(self) -> dict[str, Any]:
        """What the model is made of, as plain values; see `Layer`.

        Of a model of one's own with an `__init__` of its own: the arguments of that.
        """
        if type(self).__init__ is not Model.__init__:
            return super().get_config()
        name = {"name": self.name}
        graph = self.outputs is not None
        return name | (graph_config(self.inputs, self.outputs, self._steps) if graph else {})

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        if "calls" in config:
            return cls(*graph_of(config), name=config["name"])
        return super().from_config(config)

    def graph(self) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
        return None if self.outputs is None else (symbolic_in(self.inputs), self._steps)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """One of the model's layers.

        Args:
            name, index: Which; exactly one of them.

        Raises:
            ValueError: There is no such layer.
        """
        layers = self.layers or self.sublayers
        if (name is None) == (index is None):
            raise ValueError(f"give a name or an index, not name={name!r} and index={index!r}")
        known = {layer.name: layer for layer in layers}
        if index is not None and -len(layers) <= index < len(layers):
            return layers[index]
        if name in known:
            return known[name]
        wanted = f"called {name!r}" if index is None else f"number {index}"
        raise ValueError(f"model {self.name!r} has no layer {wanted}; it has {', '.join(known)}")

    def summary(
        self,
        line_length: int | None = None,
        print_fn: Callable[[str], Any] = print,
        expand_nested: bool = False,
    ) -> None:
        """Print a table of the layers, the shapes of their outputs and the sizes of their weights.

        Args:
            line_length: Its width in characters.
            print_fn: Called with each line.
            expand_nested: Whether to list the layers of layers, too.

        Raises:
            ValueError: The weights are not known before the first call.
        """
        self.count_params()
        write_summary(self, print_fn, line_length, expand_nested)

    @property
    def output_names(self) -> list[str]:
        """What the outputs are called: as the layers that they come from, or by their keys."""
        if isinstance(self.outputs, Mapping):
            return list(self.outputs)
        ends = [tensor.function for tensor in symbolic_in(self.outputs)] or self.layers[-1:]
        return [
            end.name if isinstance(end, Layer) else f"output_{index + 1}"
            for index, end in enumerate(ends or [None])
        ]

    def compile(
        self,
        optimizer: str | Optimizer = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        weighted_metrics: Any = None,
    ) -> None:
        """Say by what it is trained and measured.

        Where the model has several outputs, each argument but the first may be a list with an
        entry for each, or a dict by their names (`output_names`).

        Args:
            optimizer: An optimizer, or its name.
            loss: A loss, its name, or a function `(y_true, y_pred) -> one loss for each example`.
            metrics: A list of metrics, their names, or such functions. "accuracy" is the kind that
                fits the shapes of labels and predictions.
            loss_weights: Factors of the outputs' losses.
            weighted_metrics: Like metrics; these take the examples' weights into account.

        Raises:
            ValueError: A name that is unknown.
            TypeError: Something that is none of these.
        """
        self.optimizer = optimizers.get(optimizer)
        self._compiled = {
            "loss": loss,
            "metrics": metrics,
            "loss_weights": loss_weights,
            "weighted_metrics": weighted_metrics,
        }
        _check(loss, metrics, weighted_metrics)

    @property
    def is_compiled(self) -> bool:
        """Whether `compile` was called."""
        return "_compiled" in vars(self)

    def get_compile_config(self) -> dict[str, Any] | None:
        """What `compile` was given, as plain values; None where it was not called.

        Raises:
            TypeError: Something cannot be written down (a lambda); it is named.
        """
        if not self.is_compiled:
            return None
        return {"optimizer": serialize(self.optimizer), **serialize(self._compiled)}

    def compute_loss(self, y: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """The sum of the outputs' losses and of the penalties of weights, as a scalar.

        Args:
            y: Labels, in a structure like that of the outputs.
            y_pred: What the model has computed.
            sample_weight: A factor for each example's loss, (n,); None for 1.

        Raises:
            ValueError: There is neither a loss nor a penalty.
        """
        found = list(self.losses)
        for part in self._parts(y, y_pred):
            if part["loss"] is not None:
                loss: Loss = losses.get(part["loss"])
                factor = part["loss_weights"]
                value = loss(part["y"], part["y_pred"], sample_weight)
                found.append(value if factor is None else value * factor)
        if not found:
            raise ValueError(
                f"model {self.name!r} has no loss; name one: model.compile(optimizer, loss='mse')"
            )
        return sum(found[1:], found[0])

    def compute_metrics(self, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Metric]:
        """The metrics, made for the calling model and updated with a batch, by their names.

        Those of several outputs begin with the output's name, as in Keras.

        Args:
            y, y_pred, sample_weight: As for `compute_loss`.
        """
        parts = list(self._parts(y, y_pred))
        found: dict[str, Metric] = {}
        for part in parts:
            prefix = f"{part['name']}_" if len(parts) > 1 else ""
            for key, weight in (("metrics", None), ("weighted_metrics", sample_weight)):
                for given in _listed(part[key]):
                    name, metric = _metric(given, part["y"], part["y_pred"])
                    metric.update_state(part["y"], part["y_pred"], weight)
                    found[prefix + name] = metric
        return found

    def _parts(self, y: Any, y_pred: Any) -> Iterable[dict[str, Any]]:
        """What concerns each output: name, labels, predictions, and what `compile` was given."""
        if not self.is_compiled:
            raise ValueError(
                f"model {self.name!r} was not compiled: call model.compile(optimizer, loss) first"
            )
        names = list(y_pred) if isinstance(y_pred, Mapping) else self.output_names
        structures = {"y": y, "y_pred": y_pred, **self._compiled}
        spread = {key: _spread(key, value, names) for key, value in structures.items()}
        for index, name in enumerate(names):
            yield {"name": name, **{key: values[index] for key, values in spread.items()}}

    def _zeros(self, put: Callable[[np.ndarray], Any]) -> Any:
        inputs = symbolic_in(self.inputs)
        if not inputs or any(None in tensor.shape for tensor in inputs):  # type: ignore[attr-defined]
            return super()._zeros(put)
        return map_symbolic(lambda t: put(np.zeros((1, *t.shape), t.dtype)), self.inputs)  # type: ignore

    def _create_weights(self) -> None:
        """Create the weights now, unless this model has made the same layers at an earlier step."""
        # To make weights is a forward pass on zeros: once for a model, not once for each step of a
        # model_fn that makes its layers anew.
        resources = current_store().resources
        key = ("model", self.name, len(self.layers))
        if resources.get(key) is None:
            self.make_weights()
            resources[key] = self


def _steps(inputs: Any, outputs: Any) -> list[SymbolicTensor]:
    """What a functional model computes, in order.

    Raises:
        TypeError, ValueError: See `Model`.
    """
    given = symbolic_in(inputs)
    if not given or not all(isinstance(tensor, Input) for tensor in given):
        raise TypeError(f"inputs must be an Input, or a list or dict of them, not {inputs!r}")
    if not symbolic_in(outputs):
        raise TypeError(
            f"outputs must be what layers have made of the inputs, not {outputs!r}; "
            f"call layers with the inputs, as in Dense(1)(inputs)"
        )
    steps = list(in_order(outputs))
    known = set(map(id, given))
    for tensor in steps:
        if isinstance(tensor, Input) and id(tensor) not in known:
            raise ValueError(
                f"the outputs are computed from an Input of shape {tensor.shape} that is not among "
                f"the inputs; add it to them"
            )
    return [tensor for tensor in steps if not isinstance(tensor, Input)]


def _layers_of(steps: Sequence[SymbolicTensor]) -> list[Layer]:
    layers = [tensor.function for tensor in steps if isinstance(tensor.function, Layer)]
    return list({id(layer): layer for layer in layers}.values())


def _bound(model: str, inputs: Any, given: Any) -> dict[int, Any]:
    """The arrays of a functional model's inputs, by the identity of these."""
    if isinstance(inputs, Mapping):
        pairs = [(tensor, _chosen(model, given, key)) for key, tensor in inputs.items()]
    elif isinstance(given, Mapping):
        pairs = [(tensor, _chosen(model, given, tensor.name)) for tensor in symbolic_in(inputs)]  # type: ignore
    elif isinstance(inputs, Input):
        pairs = [(inputs, given)]
    else:
        tensors = symbolic_in(inputs)
        if not isinstance(given, Sequence) or len(given) != len(tensors):
            raise ValueError(
                f"model {model!r} takes a list of {len(tensors)} inputs, it was called with "
                f"{type(given).__name__}"
            )
        pairs = list(zip(tensors, given, strict=True))
    return {id(tensor): value for tensor, value in pairs}


def _chosen(model: str, given: Any, key: Any) -> Any:
    if isinstance(given, Mapping) and key in given:
        return given[key]
    there = f"there are {', '.join(map(str, given))}" if isinstance(given, Mapping) else "no dict"
    raise ValueError(
        f"model {model!r} takes an input {key!r}, {there}; give the features as a dict with that "
        f"key, and name inputs that a dict is to feed: Input(shape, name=...)"
    )


def _computed(tensor: SymbolicTensor, values: Mapping[int, Any], training: bool) -> Any:
    args, kwargs = map_symbolic(lambda part: values[id(part)], [list(tensor.args), tensor.kwargs])
    if isinstance(tensor.function, Layer):
        return tensor.function(*args, **{"training": training, **kwargs})
    return tensor.function(*args, **kwargs)


def _check(loss: Any, metrics_given: Any, weighted: Any) -> None:
    """Refuse in `compile`, and not in the first step, what means nothing."""
    for one in _leaves(loss):
        losses.get(one)
    for one in (*_leaves(metrics_given), *_leaves(weighted)):
        if isinstance(one, str) and not _is_accuracy(one):
            metrics.check_name(one)
        elif not callable(one) and not isinstance(one, (str, Metric)):
            raise TypeError(f"metrics must be metrics, names or functions, one is {one!r}")


def _leaves(structure: Any) -> list[Any]:
    if isinstance(structure, Mapping):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in _leaves(part)]
    return [] if structure is None else [structure]


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _spread(argument: str, value: Any, names: Sequence[str]) -> list[Any]:
    """The value of an argument for each output."""
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise ValueError(
                f"{argument} has the keys {list(value)}, but the outputs are called {list(names)}"
            )
        return [value.get(name) for name in names]
    if len(names) == 1:
        return [value]
    if isinstance(value, (list, tuple)) and len(value) == len(names):
        return list(value)
    if argument in ("y", "y_pred", "loss_weights") and value is not None:
        raise ValueError(
            f"{argument} must have a part for each of the outputs {list(names)}: a list, or a dict"
        )
    return [value] * len(names)


def _metric(given: Any, y: Any, y_pred: Any) -> tuple[str, Metric]:
    """What an entry of `metrics` means, made anew, and what it is called."""
    if isinstance(given, Metric):
        return given.name, given.clone()
    if isinstance(given, str) and _is_accuracy(given):
        return given, metrics.get(_accuracy(np.shape(y), np.shape(y_pred)))
    metric = metrics.get(given)
    return (given if isinstance(given, str) else given.__name__), metric


def _is_accuracy(name: str) -> bool:
    return name.lower() in ("accuracy", "acc")


def _accuracy(labels: tuple[int, ...], predictions: tuple[int, ...]) -> str:
    """The kind of accuracy that fits the shapes, by Keras's rule."""
    width = predictions[-1] if len(predictions) > 1 else 1
    if width == 1:
        return "binary_accuracy"
    is_sparse = len(labels) < len(predictions) or labels[-1] == 1
    return "sparse_categorical_accuracy" if is_sparse else "categorical_accuracy"
