"""What a functional model computes: symbolic tensors, in order, for the arrays of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..layers import Input, Layer, SymbolicTensor, in_order, map_symbolic, symbolic_in
from ..masks import masked, masks_of


def computed_steps(inputs: Any, outputs: Any) -> list[SymbolicTensor]:
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


def layers_of(steps: Sequence[SymbolicTensor]) -> list[Layer]:
    layers = [tensor.function for tensor in steps if isinstance(tensor.function, Layer)]
    return list({id(layer): layer for layer in layers}.values())


def bound_inputs(model: str, inputs: Any, given: Any) -> dict[int, Any]:
    """The arrays of a functional model's inputs, by the identity of these."""
    if isinstance(inputs, Mapping):
        pairs = [(tensor, _chosen(model, given, key)) for key, tensor in inputs.items()]
    elif isinstance(given, Mapping):
        names = names_of_inputs(inputs)
        chosen = [_chosen(model, given, name) for name in names]
        pairs = list(zip(symbolic_in(inputs), chosen, strict=True))
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


def with_given_mask(inputs: Any, mask: Any) -> Any:
    """The inputs of a model with the mask that its call was given, unless they have it already."""
    return inputs if mask is None or masks_of(inputs) is mask else masked(inputs, mask)


def names_of_inputs(inputs: Any) -> list[str]:
    """The keys of the inputs, or else their names; without one "input_1", "input_2", …"""
    if isinstance(inputs, Mapping):
        return list(inputs)
    tensors: list[Any] = symbolic_in(inputs)
    return [tensor.name or f"input_{n}" for n, tensor in enumerate(tensors, start=1)]


def _chosen(model: str, given: Any, key: Any) -> Any:
    if isinstance(given, Mapping) and key in given:
        return given[key]
    there = f"there are {', '.join(map(str, given))}" if isinstance(given, Mapping) else "no dict"
    raise ValueError(
        f"model {model!r} takes an input {key!r}, {there}; give the features as a dict with that "
        f"key, and name inputs that a dict is to feed: Input(shape, name=...)"
    )


def computed(tensor: SymbolicTensor, values: Mapping[int, Any], training: bool) -> Any:
    args, kwargs = map_symbolic(lambda part: values[id(part)], [list(tensor.args), tensor.kwargs])
    if isinstance(tensor.function, Layer):
        return tensor.function(*args, **{"training": training, **kwargs})
    return tensor.function(*args, **kwargs)
