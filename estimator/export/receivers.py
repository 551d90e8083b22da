"""What an exported model is asked with: the inputs of its signatures, and what they become.

TensorFlow's receivers hold placeholders and what a graph computes from them. Here an input is a
`TensorSpec` or a placeholder, and its way to the features is one of four that can be written down:
inputs are passed on by name, messages are parsed, a function does what it likes, or the function
that makes the receiver computes with placeholders. Functions are found again by their import path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...autodiff import lift_array
from ...inputs import FixedLenFeature, TensorSpec, VarLenFeature, nest
from ...nn.layers import SymbolicTensor, map_symbolic, symbolic_in
from ..placeholder import Placeholder, function_of, placeholders_in

_EXAMPLES = "examples"


@final
@dataclass(frozen=True)
class PassOn:
    """Features are inputs.

    Args:
        names: Feature → input; or the one input that is the features as a whole.
    """

    names: Mapping[str, str] | str


@final
@dataclass(frozen=True)
class ParseExamples:
    """Features are parsed from serialized `tf.train.Example` messages.

    Args:
        features: Name → form. Values of a `VarLenFeature` become rows as long as the longest of
            the batch, filled with -1 (numbers) or "" (text), which feature columns pass over.
    """

    features: Mapping[str, FixedLenFeature | VarLenFeature]


@final
class ComputeFromPlaceholders:
    """Features are computed from placeholders that are inputs.

    Args:
        inputs: Name → placeholder.
        outputs: The structure of what was made from them.

    Raises:
        ValueError: It is made from a placeholder that is no input.
    """

    def __init__(self, inputs: Mapping[str, Any], outputs: Any) -> None:
        known = {id(placeholder) for placeholder in inputs.values()}
        for placeholder in placeholders_in(outputs):
            if id(placeholder) not in known:
                raise ValueError(
                    f"features are computed from {placeholder!r}, which is not among the "
                    f"receiver_tensors ({', '.join(map(str, inputs))}); add it to them"
                )
        self._inputs = dict(inputs)
        self._compute = function_of(outputs)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The features of the inputs' arrays, by name."""
        by_identity = {id(place): arrays[name] for name, place in self._inputs.items()}
        return nest.map_structure(_in_host_memory, self._compute(by_identity))


Preparation = (
    PassOn | ParseExamples | ComputeFromPlaceholders | Callable[[dict[str, np.ndarray]], Any]
)
"""What makes features of the inputs, by name."""


class Receiver:
    """Inputs, and what they become.

    Attributes:
        inputs: Name → spec.
        features: How features are made of them.
        labels: The same for labels, where there are any.
    """

    def __init__(self, features: Any, receiver_tensors: Any, labels: Any = None) -> None:
        given = features if receiver_tensors is None else receiver_tensors
        if isinstance(given, Placeholder):
            given = {given.name or "input": given}
        self.inputs = _inputs(map_symbolic(_spec_of_input, given))
        self.features = _preparation("features", features, self.inputs, given)
        self.labels = None if labels is None else _preparation("labels", labels, self.inputs, given)


class ServingInputReceiver(Receiver):
    """What a served model takes, and how features are made of it.

    Args:
        features: What `model_fn` is given: name → `TensorSpec` or placeholder, each also among the
            inputs, or what was computed from placeholders. Or a function that makes features from
            the inputs' arrays, by name. It, or the function that computes with placeholders, is at
            the top of a module, which `load` can import.
        receiver_tensors: Name → `TensorSpec` or placeholder: the inputs of a request. One alone is
            called "input". None: the features, under their names.
        receiver_tensors_alternatives: Must be None: export again with another receiver.

    Raises:
        TypeError, ValueError: Something else, or a feature that is no input.
    """

    def __init__(
        self,
        features: Any,
        receiver_tensors: Any = None,
        receiver_tensors_alternatives: None = None,
    ) -> None:
        if receiver_tensors_alternatives:
            raise ValueError(
                "receiver_tensors_alternatives is not supported: export once more, with a receiver "
                "of those inputs"
            )
        one = isinstance(features, TensorSpec | SymbolicTensor)
        super().__init__({"feature": features} if one else features, receiver_tensors)


@final
class TensorServingInputReceiver(Receiver):
    """The same for a `model_fn` whose features are one array, and no dict.

    Args:
        features: The one `TensorSpec`, or a function as for `ServingInputReceiver`.
        receiver_tensors: See there.
    """

    def __init__(self, features: Any, receiver_tensors: Any = None) -> None:
        if isinstance(features, Mapping):
            raise TypeError(
                "TensorServingInputReceiver takes one TensorSpec; a dict of them is for "
                "ServingInputReceiver"
            )
        super().__init__(features, receiver_tensors)


@final
class SupervisedInputReceiver(Receiver):
    """What a model takes that is exported for training or evaluation: labels as well.

    Args:
        features, labels: As the features of `ServingInputReceiver`.
        receiver_tensors: The inputs; None: features and labels, under their names.
    """

    def __init__(self, features: Any, labels: Any, receiver_tensors: Any = None) -> None:
        both = {**_named(features, "feature"), **_named(labels, "label")}
        super().__init__(features, both if receiver_tensors is None else receiver_tensors, labels)


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver | TensorServingInputReceiver]:
    """A `serving_input_receiver_fn` whose inputs are the features themselves.

    Args:
        features: Name → `TensorSpec`, or → a batch as `model_fn` takes it, which says shape and
            dtype and is what the export tries the model with. Or one of these, for a model whose
            features are one array, and no dict.
        default_batch_size: Must be None: a loaded model takes batches of any size.
    """
    _refuse_batch_size(default_batch_size)
    specs = _specs(features)

    def serving_input_receiver_fn() -> ServingInputReceiver | TensorServingInputReceiver:
        if isinstance(specs, TensorSpec):
            return TensorServingInputReceiver(specs)
        return ServingInputReceiver(specs)

    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, FixedLenFeature | VarLenFeature],
    default_batch_size: int | None = None,
) -> Callable[[], ServingInputReceiver]:
    """A `serving_input_receiver_fn` that takes serialized `tf.train.Example` messages.

    Args:
        feature_spec: As for `paceline.inputs.parse_example`, and as
            `feature_column.make_parse_example_spec` makes it.
        default_batch_size: Must be None: a loaded model takes batches of any size.

    Returns:
        A function; its input is named "examples", an array of bytes (batch,).
    """
    _refuse_batch_size(default_batch_size)
    features = dict(feature_spec)
    for name, form in features.items():
        if not isinstance(form, FixedLenFeature | VarLenFeature):
            raise TypeError(
                f"feature_spec[{name!r}] must be a FixedLenFeature or VarLenFeature, it is {form!r}"
            )

    def serving_input_receiver_fn() -> ServingInputReceiver:
        return ServingInputReceiver(
            ParseExamples(features), {_EXAMPLES: TensorSpec([None], object)}
        )

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """The same as `build_raw_serving_input_receiver_fn`, with labels, to train or evaluate.

    Raises:
        ValueError: Features and labels share a name.
    """
    _refuse_batch_size(default_batch_size)
    both = _specs(features), _specs(labels)
    shared = _named(both[0], "feature").keys() & _named(both[1], "label").keys()
    if shared:
        raise ValueError(f"features and labels share the name(s) {', '.join(sorted(shared))}")
    return lambda: SupervisedInputReceiver(*both)


def _refuse_batch_size(default_batch_size: int | None) -> None:
    if default_batch_size is not None:
        raise ValueError(
            f"default_batch_size must be None, since a loaded model takes batches of any size; "
            f"got {default_batch_size}"
        )


def _specs(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: _spec(value) for name, value in given.items()}
    return _spec(given)


def _spec(value: Any) -> TensorSpec:
    if isinstance(value, Placeholder):
        return value.spec
    return value if isinstance(value, TensorSpec) else TensorSpec.from_batch(value)


def _named(given: Any, name: str) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else {name: given}


def _inputs(given: Any) -> dict[str, TensorSpec]:
    """Inputs by name.

    Raises:
        TypeError: There are none, or one is no `TensorSpec` or has no name.
        ValueError: The first length of one is not None: batches are of any size.
    """
    named = {given.name or "input": given} if isinstance(given, TensorSpec) else given
    named = named if isinstance(named, Mapping) else {}
    odd = [n for n, spec in named.items() if not (isinstance(n, str) and type(spec) is TensorSpec)]
    if odd or not named:
        raise TypeError(
            f"the inputs of a receiver are a dict of names to paceline.TensorSpec "
            f"(receiver_tensors=..., where features are a function); got {given!r}"
        )
    for name, spec in named.items():
        if not spec.shape or spec.shape[0] is not None:
            raise ValueError(
                f"the shape of an input begins with None, for the batch, and has lengths ≥ 0 or "
                f"None; that of {name!r} is {spec.shape}"
            )
    return dict(named)


def _spec_of_input(tensor: SymbolicTensor) -> TensorSpec:
    if not isinstance(tensor, Placeholder):
        raise TypeError(
            "receiver_tensors must be placeholders, got something that was computed from one; "
            "give the placeholder itself, and what was computed as features"
        )
    return tensor.spec


def _in_host_memory(value: Any) -> np.ndarray:
    array: np.ndarray = lift_array(value).numpy()
    return array


def _preparation(
    what: str, given: Any, inputs: Mapping[str, TensorSpec], receiver_tensors: Any
) -> Preparation:
    """How features, or labels, are made of the inputs.

    Raises:
        TypeError, ValueError: Nothing says how.
    """
    if isinstance(given, ParseExamples) or callable(given):
        return given
    if any(not isinstance(tensor, Placeholder) for tensor in symbolic_in(given)):
        return ComputeFromPlaceholders(receiver_tensors, given)
    given = map_symbolic(_spec_of_input, given)
    names = {id(spec): name for name, spec in inputs.items()}
    for spec in _named(given, what).values():
        if id(spec) not in names:
            raise ValueError(
                f"{what} must be TensorSpecs that are inputs (the same objects as in "
                f"receiver_tensors), or a function that computes {what} from the inputs; "
                f"got {spec!r}"
            )
    if isinstance(given, Mapping):
        return PassOn({name: names[id(spec)] for name, spec in given.items()})
    return PassOn(names[id(given)])
