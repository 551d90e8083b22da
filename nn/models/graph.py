"""A functional model as plain values: its layers, and how they are called, by numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..layers import Layer, SymbolicTensor, symbolic_in
from ..serialization import deserialize, serialize


def graph_config(inputs: Any, outputs: Any, steps: Sequence[SymbolicTensor]) -> dict[str, Any]:
    """What a functional model computes, as plain values.

    Args:
        inputs, outputs: Structures of symbolic tensors.
        steps: What is computed from the inputs, in order.

    Raises:
        TypeError: An argument of a layer, or of a call, cannot be written down; it is named.
    """
    tensors = [*symbolic_in(inputs), *steps]
    numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
    layers: dict[int, Layer] = {}
    calls = []
    for step in steps:
        layer = step.function
        if isinstance(layer, Layer):
            layers.setdefault(id(layer), layer)
            called: Any = {"layer": list(layers).index(id(layer))}
        else:
            called = {"function": serialize(layer)}
        args, kwargs = (_numbered(part, numbers) for part in (list(step.args), step.kwargs))
        calls.append({**called, "args": args, "kwargs": kwargs})
    return {
        "layers": [serialize(layer) for layer in layers.values()],
        "inputs": _numbered(inputs, numbers),
        "input_tensors": [serialize(tensor) for tensor in symbolic_in(inputs)],
        "calls": calls,
        "outputs": _numbered(outputs, numbers),
    }


def graph_of(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The inputs and outputs that `graph_config` has written down, of new layers."""
    layers = deserialize(config["layers"])
    tensors: list[Any] = deserialize(config["input_tensors"])
    for call in config["calls"]:
        args, kwargs = (_tensors(call[part], tensors) for part in ("args", "kwargs"))
        function = layers[call["layer"]] if "layer" in call else deserialize(call["function"])
        tensors.append(SymbolicTensor(function, tuple(args), kwargs))
    return _tensors(config["inputs"], tensors), _tensors(config["outputs"], tensors)


def _numbered(structure: Any, numbers: Mapping[int, int]) -> Any:
    """A structure of plain values with numbers in the place of tensors.

    Tuples are told from lists: as an index they mean another thing.
    """
    if isinstance(structure, SymbolicTensor):
        return {"tensor": numbers[id(structure)]}
    if isinstance(structure, list):
        return [_numbered(part, numbers) for part in structure]
    if isinstance(structure, tuple):
        return {"tuple": [_numbered(part, numbers) for part in structure]}
    if isinstance(structure, Mapping):
        return {"dict": {key: _numbered(part, numbers) for key, part in structure.items()}}
    return {"value": serialize(structure)}


def _tensors(written: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(written, list):
        return [_tensors(part, tensors) for part in written]
    ((kind, value),) = written.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "tuple":
        return tuple(_tensors(part, tensors) for part in value)
    if kind == "dict":
        return {key: _tensors(part, tensors) for key, part in value.items()}
    return deserialize(value)
