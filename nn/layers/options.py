"""What layers are told: the options that all have, and those of their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

from ...autodiff import Tensor
from .. import constraints, regularizers
from ..prototypes import Fixed

Shape: TypeAlias = "tuple[int, ...]"
Initializer: TypeAlias = "str | Callable[..., Any]"
Regularizer: TypeAlias = "str | Callable[[Any], Tensor] | None"
Constraint: TypeAlias = "str | Callable[[Any], Any] | None"


class LayerOptions(TypedDict, total=False):
    """The keyword arguments that every layer has."""

    name: str | None
    trainable: bool
    dtype: Any
    input_shape: Shape | None
    batch_input_shape: Shape | None
    weights: list[Any] | None


def shape_of_one(
    input_shape: Shape | None, input_dim: int | None, batch_input_shape: Shape | None
) -> Shape | None:
    """The shape of one example, from at most one of the three ways to give it."""
    if input_shape is None and input_dim is None and batch_input_shape is None:
        return None
    given: dict[str, Any] = {"input_shape": input_shape}
    given["input_dim"] = None if input_dim is None else (input_dim,)
    given["batch_input_shape"] = None if batch_input_shape is None else batch_input_shape[1:]
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"the shape of the inputs is given more than once: {', '.join(names)}")
    return tuple(given[names[0]]) if names else None


def weight_options(
    initializer: Initializer, regularizer: Regularizer = None, constraint: Constraint = None
) -> Fixed:
    """Options of a weight, as `Layer.add_weight` takes them."""
    return Fixed(
        initializer=initializer,
        regularizer=regularizers.get(regularizer),
        constraint=constraints.get(constraint),
    )


class WeightOf:
    """`layer.kernel`: the weight that has the attribute's name; None where options leave it out."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, layer: Any, owner: type[Any] | None = None) -> Any:
        if layer is None:
            return self
        found = layer.own_weights
        if not found:
            raise AttributeError(
                f"layer {layer.name!r} has no {self._name} before its first call: call it, or "
                f"layer.build(input_shape)"
            )
        return found.get(self._name)
