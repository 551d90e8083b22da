"""`Model`: layers with inputs and outputs, a loss, an optimizer and metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Self

import numpy as np

from ...autodiff import lift, placed
from ...inputs import Dataset
from ...strategies import current_store
from ..callbacks import Callback, CallbackList, History, LambdaCallback, ProgbarLogger
from ..layers import Layer, SymbolicTensor, map_symbolic, symbolic_in
from ..layers.symbolic import Hidable
from ..serialization import custom_object_scope
from . import fitting
from .data import Source, has_batches, source_of, split_off
from .epochs import Epochs
from .functional import (
    bound_inputs,
    computed,
    computed_steps,
    layers_of,
    names_of_inputs,
    with_given_mask,
)
from .graph import graph_config, graph_of
from .summary import Style, write_summary
from .trainable import Trainable, require_unique_names


class Model(Trainable):
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

    lists_inputs = True  # in a summary, among the layers

    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None) -> None:
        super().__init__(name)
        self.layers: list[Layer] = []
        if inputs is None and outputs is None:
            return
        self._ends = inputs, outputs
        self._steps = computed_steps(inputs, outputs)
        self.layers = layers_of(self._steps)
        require_unique_names(self.name, self.layers)
        self._create_weights()

    def call(self, inputs: Any, training: bool = False, mask: Any = None) -> Any:
        if self._ends is None:
            raise NotImplementedError(
                f"{type(self).__name__} has neither inputs and outputs nor a `call` of its own: "
                f"write Model(inputs, outputs), or def call(self, inputs, training=False)"
            )
        own_inputs, outputs = self._ends
        values = bound_inputs(self.name, own_inputs, with_given_mask(inputs, mask))
        for tensor in self._steps:
            values[id(tensor)] = computed(tensor, values, training)
        return map_symbolic(lambda tensor: lift(values[id(tensor)]), outputs)

    def get_config(self) -> dict[str, Any]:
        """What the model is made of, as plain values; see `Layer`.

        Of a model of one's own with an `__init__` of its own: the arguments of that.
        """
        if type(self).__init__ is not Model.__init__:
            return super().get_config()
        name = {"name": self.name}
        return name | ({} if self._ends is None else graph_config(*self._ends, self._steps))

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The model that gave the configuration, with new weights.

        Args:
            config: What `get_config` returned, perhaps through JSON.
            custom_objects: Classes and functions that are not of this package, by their names.
        """
        with custom_object_scope(custom_objects or {}):
            if "calls" in config:
                return cls(*graph_of(config), name=config["name"])
            return super().from_config(config)

    def graph(self) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
        return None if self._ends is None else (symbolic_in(self._ends[0]), self._steps)

    def ends(self) -> tuple[Any, Any] | None:
        """The inputs and outputs that it was made with; None where only `call` knows them."""
        return self._ends

    @Hidable
    def inputs(self) -> list[SymbolicTensor] | None:
        """The inputs as a list; None where only `call` knows them."""
        ends = self.ends()
        return None if ends is None else symbolic_in(ends[0])

    @Hidable
    def outputs(self) -> list[SymbolicTensor] | None:
        """The outputs as a list; None where only `call` knows them."""
        ends = self.ends()
        return None if ends is None else symbolic_in(ends[1])

    @property
    def input_names(self) -> list[str]:
        """What the inputs are called, as keys of a dict that is fed: by their names, or keys."""
        ends = self.ends()
        return [] if ends is None else names_of_inputs(ends[0])

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
        if index is not None and -len(layers) <= index < len(layers):
            return layers[index]
        known = {layer.name: layer for layer in reversed(layers)}  # the first of a name, as Keras
        if name in known:
            return known[name]
        wanted = f"called {name!r}" if index is None else f"number {index}"
        raise ValueError(
            f"model {self.name!r} has no layer {wanted}; it has "
            f"{', '.join(layer.name for layer in layers)}"
        )

    def summary(
        self,
        line_length: int | None = None,
        positions: Sequence[float] | None = None,
        print_fn: Callable[[str], Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Sequence[str] | None = None,
    ) -> None:
        """Print a table of the layers, the shapes of their outputs and the sizes of their weights.

        Args:
            line_length: Its width in characters.
            positions: Where the columns end, in characters or as shares of the width.
            print_fn: Called with each line; by default `print`.
            expand_nested: Whether to list the layers of layers, too.
            show_trainable: Whether a column says which layers are trained: Y or N.
            layer_range: The first and the last layer to list: regular expressions, of which each
                finds a name at its beginning.

        Raises:
            ValueError: The weights are not known before the first call; or `layer_range` finds no
                layer.
        """
        self.count_params()
        style = Style(line_length, positions, expand_nested, show_trainable, layer_range)
        write_summary(self, print if print_fn is None else print_fn, style)

    @property
    def output_names(self) -> list[str]:
        """What the outputs are called: as the layers that they come from, or by their keys."""
        outputs = None if self._ends is None else self._ends[1]
        if isinstance(outputs, Mapping):
            return list(outputs)
        if outputs is None and not self.layers:
            return super().output_names
        ends = [tensor.function for tensor in symbolic_in(outputs)] or self.layers[-1:]
        names = [
            end.name if isinstance(end, Layer) else f"output_{index + 1}"
            for index, end in enumerate(ends or [None])
        ]
        # Several outputs of one layer have its name: those behind the first are counted.
        before = [names[:index].count(name) for index, name in enumerate(names)]
        return [f"{name}_{n}" if n else name for name, n in zip(names, before, strict=True)]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Sequence[Callback] | Callback | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Collection[int] = 1,
        max_queue_size: int = 10,
        workers: int = 1,
        use_multiprocessing: bool = False,
    ) -> History:
        """Train for some epochs, under the strategy in whose scope the model was made.

        Every replica takes a part of each batch, and each example counts once: what is learned is
        what one replica would learn from the whole batches. See docs/fit.md.

        Args:
            x: Arrays, or a structure of them; or what gives global batches: a dataset, a
                distributed one, a PyTorch DataLoader, a generator.
            y: Labels, where `x` is arrays.
            batch_size: The global batch, where `x` is arrays; 32 by default.
            epochs: The number of the epoch at which to end.
            verbose: 0: silent; 1: a progress bar; 2: a line for each epoch; "auto": a bar on a
                terminal, else lines.
            callbacks: Are told of epochs and batches.
            validation_split: The share of the arrays, at their end, that is validated with.
            validation_data: What is evaluated after epochs: like `x`, or (x, y), or
                (x, y, sample_weight).
            shuffle: Whether arrays are shuffled before each epoch.
            class_weight: Class → the factor of the loss of its examples.
            sample_weight: A factor for each example's loss, where `x` is arrays.
            initial_epoch: The number of the first epoch.
            steps_per_epoch: How many batches an epoch has; by default all. With it arrays are gone
                over again and again; a dataset without end goes on from epoch to epoch, and one
                that ends early ends the training, with a warning.
            validation_steps: How many batches are validated with; by default all.
            validation_batch_size: As `batch_size`, which is the default.
            validation_freq: After how many epochs to validate, or after which (from 1).
            max_queue_size, workers, use_multiprocessing: Have no effect: say how far to read ahead,
                and with how many threads, by a `Dataset`.

        Returns:
            The logs of all epochs.

        Raises:
            ValueError: Arguments that contradict each other, or no data.
        """
        if validation_split:
            (x, y, sample_weight), validation_data = split_off(
                validation_split, x, y, sample_weight
            )
        source = source_of(x, y, sample_weight, batch_size, shuffle, class_weight)
        is_pass = steps_per_epoch in (None, source.cardinality())
        if not is_pass and isinstance(source, Dataset) and not has_batches(x):
            source = source.repeat()
        listed = [*_listed(callbacks), *_of_source(x)]
        history = next((c for c in listed if isinstance(c, History)), None) or History()
        params = {"verbose": verbose, "epochs": epochs, "steps": _steps(source, steps_per_epoch)}
        told = _told([*(c for c in listed if c is not history), history], self, params)

        @cache  # one source for all epochs: it tells the log once how it is divided
        def validation_source() -> Source:
            source = _validation(validation_data, validation_batch_size or batch_size)
            return fitting.for_evaluation(self, source, validation_steps)

        def validate() -> dict[str, Any]:
            return fitting.evaluate(self, validation_source(), validation_steps, told)

        every = validation_freq
        plan = Epochs(
            initial_epoch,
            epochs,
            steps_per_epoch,
            None if validation_data is None else validate,
            lambda epoch: epoch % every == 0 if isinstance(every, int) else epoch in every,
        )
        fitting.fit(self, source, plan, told)
        self.history = history
        return history

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Sequence[Callback] | Callback | None = None,
        max_queue_size: int = 10,
        workers: int = 1,
        use_multiprocessing: bool = False,
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics over all examples, exact over batches, replicas and workers.

        Args:
            x, y, batch_size, verbose, sample_weight, callbacks: As for `fit`.
            max_queue_size, workers, use_multiprocessing: As for `fit`.
            steps: How many batches; by default all.
            return_dict: Whether to return them by name.

        Returns:
            The loss, or a list in the order of `metrics_names`, or a dict.
        """
        source = source_of(x, y, sample_weight, batch_size)
        told = _told(callbacks, self, {"verbose": verbose, "steps": _steps(source, steps)})
        return _shown(fitting.evaluate(self, source, steps, told), return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        steps: int | None = None,
        callbacks: Sequence[Callback] | Callback | None = None,
        max_queue_size: int = 10,
        workers: int = 1,
        use_multiprocessing: bool = False,
    ) -> Any:
        """What the model computes for all examples, on one device of this worker.

        Args:
            x, batch_size, verbose, steps, callbacks: As for `evaluate`; labels are left aside.
            max_queue_size, workers, use_multiprocessing: As for `fit`.

        Returns:
            NumPy arrays in the structure of the outputs.
        """
        source = source_of(x, batch_size=batch_size)
        told = _told(callbacks, self, {"verbose": verbose, "steps": _steps(source, steps)})
        return fitting.predict(self, source, steps, told)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
        reset_metrics: bool = True,
        return_dict: bool = False,
    ) -> Any:
        """One training step on one global batch of arrays.

        Args:
            x, y, sample_weight, class_weight: As for `fit`.
            reset_metrics: Whether what is returned is of this batch alone.
            return_dict: See `evaluate`.
        """
        if reset_metrics:
            self.reset_metrics()
        source = source_of(x, y, sample_weight, _WHOLE, class_weight=class_weight)
        return _shown(fitting.train_on_batch(self, source), return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        reset_metrics: bool = True,
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics of one global batch of arrays; see `evaluate`.

        Args:
            x, y, sample_weight: As for `fit`.
            reset_metrics: Whether what is returned is of this batch alone.
            return_dict: See `evaluate`.
        """
        source = source_of(x, y, sample_weight, _WHOLE)
        told = CallbackList((), self, {})
        return _shown(fitting.evaluate(self, source, None, told, reset_metrics), return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """What the model computes for one batch of arrays."""
        told = CallbackList((), self, {})
        return fitting.predict(self, source_of(x, batch_size=_WHOLE), None, told)

    def _zeros(self) -> Any:
        inputs = None if self._ends is None else self._ends[0]
        shapes = [tensor.shape[1:] for tensor in symbolic_in(inputs)]
        if not shapes or any(None in shape for shape in shapes):
            return super()._zeros()
        return map_symbolic(lambda t: placed(np.zeros((1, *t.shape[1:]), t.dtype)), inputs)

    def _create_weights(self) -> None:
        """Create the weights now, unless this model has made the same layers at an earlier step."""
        # To make weights is a forward pass on zeros: once for a model, not once for each step of a
        # model_fn that makes its layers anew.
        resources = current_store().resources
        key = ("model", self.variables_prefix, len(self.layers))
        if resources.get(key) is None:
            self.make_weights()
            resources[key] = self


_WHOLE = 1 << 62
"""A batch size: all arrays are one batch."""


def _steps(source: Source, steps: int | None) -> int | None:
    """How many steps an epoch has, as far as it is known."""
    known = source.cardinality() if steps is None else steps
    return known if known >= 0 else None


def _listed(callbacks: Iterable[Callback] | Callback | None) -> list[Callback]:
    return [callbacks] if isinstance(callbacks, Callback) else list(callbacks or ())


def _told(
    callbacks: Iterable[Callback] | Callback | None, model: Model, params: dict[str, Any]
) -> CallbackList:
    """The callbacks of a call, and behind them what prints how far it is."""
    listed = _listed(callbacks)
    if params["verbose"] and not any(isinstance(one, ProgbarLogger) for one in listed):
        listed.append(ProgbarLogger())
    return CallbackList(listed, model, params)


def _of_source(x: Any) -> list[Callback]:
    """What tells a Keras `Sequence` that an epoch has ended: it may shuffle its batches then."""
    ended = getattr(x, "on_epoch_end", None)
    return [] if ended is None else [LambdaCallback(on_epoch_end=lambda epoch, logs: ended())]


def _validation(data: Any, batch_size: int | None) -> Source:
    if isinstance(data, tuple):
        x, y, sample_weight = (*data, None, None)[:3]
        return source_of(x, y, sample_weight, batch_size)
    return source_of(data)


def _shown(logs: dict[str, Any], return_dict: bool) -> Any:
    """What `evaluate` and its like return."""
    if return_dict:
        return logs
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
