"""Saved values by the names that the variables of another model have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..layers import Layer
from ..optimizers import Optimizer

Values: TypeAlias = dict[str, np.ndarray]


def renamed(
    values: Values,
    state: Mapping[str, Any],
    model: Layer,
    optimizer: Optimizer | None,
    own_optimizers: Mapping[str, Optimizer],
) -> Values:
    """Saved values by the names that they have in another model of the same layers.

    Without an `optimizer` those of optimizers are left out. `own_optimizers` are attributes.

    Raises:
        ValueError: The model has other layers.
    """
    layers = [layer.variables_prefix for layer in all_layers(model)]
    if "layers" not in state:  # a checkpoint of a run, which has other things as well
        return {name: v for name, v in values.items() if name.rpartition("/")[0] in layers}
    if len(layers) != len(state["layers"]):
        raise ValueError(
            f"model {model.name!r} has {len(layers)} layers ({', '.join(layers)}), the saved one "
            f"has {len(state['layers'])} ({', '.join(state['layers'])})"
        )
    names = dict(zip(state["layers"], layers, strict=True))
    prefixes = {state["optimizer"]: optimizer}
    for attribute, prefix in state.get("own_optimizers", {}).items():
        prefixes[prefix] = None if optimizer is None else own_optimizers.get(attribute)
    found = {}
    for name, value in values.items():
        prefix = next((p for p in prefixes if p and name.startswith(f"{p}/")), None)
        if prefix is None:
            found[_renamed(name, names)] = value
        elif (one := prefixes[prefix]) is not None:
            found[f"{one.prefix}/{_renamed(name.removeprefix(f'{prefix}/'), names)}"] = value
    return found


def of_same_names(values: Values, state: Mapping[str, Any], model: Layer) -> Values:
    """The saved values of layers whose names a model has, by the names of its variables.

    Args:
        values, state: What `read_saved` gave.
        model: One that may have other layers, too.
    """
    if "layers" not in state:  # a checkpoint of a run, where variables alone have names
        return values
    own = {layer.name: layer.variables_prefix for layer in all_layers(model)}
    names = state.get("layer_names", state["layers"])  # once, given names were counted, too
    prefixes = dict(zip(state["layers"], map(own.get, names), strict=True))
    found = {}
    for name, value in values.items():
        saved, rest = _split(name, prefixes)
        if (prefix := prefixes.get(saved)) is not None:
            found[f"{prefix}/{rest}"] = value
    return found


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    """The name of a layer's variable where the layer's variables have another prefix."""
    saved, rest = _split(name, prefixes)
    return f"{prefixes[saved]}/{rest}" if saved else name


def _split(name: str, prefixes: Container[str]) -> tuple[str, str]:
    """The longest of the prefixes in front of a variable's name, and the rest; "" if none is."""
    parts = name.split("/")
    for length in range(len(parts) - 1, 0, -1):
        prefix = "/".join(parts[:length])
        if prefix in prefixes:
            return prefix, "/".join(parts[length:])
    return "", name


def all_layers(model: Layer) -> list[Layer]:
    """The model and all layers in it, each once, in the order in which they were set."""
    found: dict[int, Layer] = {}

    def visit(layers: Iterable[Layer]) -> None:
        for layer in layers:
            if id(layer) not in found:
                found[id(layer)] = layer
                visit(layer.sublayers)

    visit([model])
    return list(found.values())
