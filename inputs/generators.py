"""`from_generator`: the items of an iterable, in the dtypes and shapes of a signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from . import nest
from .mapping import with_each
from .plan import Keeps, Plan
from .sources import iterable_plan
from .values import TensorSpec, as_exact_element


def generated(
    generator: Callable[..., Iterable[Any]] | Iterable[Any],
    args: tuple[Any, ...],
    signature: Any,
) -> Plan:
    """The items, converted to the signature if there is one."""
    source = partial(generator, *args) if args and callable(generator) else generator
    if signature is None:
        return iterable_plan(source)
    specs = _checked_signature(signature)
    # Python's floats keep all their digits until the signature says which dtype they get.
    plan = iterable_plan(source, as_exact_element)
    convert = partial(_conformed, signature=specs)
    return with_each(plan, convert, None, Keeps.EACH | Keeps.ANY_ORDER, known_spec=lambda: specs)


def one_signature(types: Any, shapes: Any, signature: Any) -> Any:
    """The signature that was given in either of tf.data's ways; None for none."""
    if types is None and shapes is None:
        return signature
    if signature is not None:
        raise ValueError(
            "output_signature says types and shapes already; leave out output_types and "
            "output_shapes."
        )
    if types is None:
        raise ValueError("output_shapes needs output_types beside it; or give output_signature.")
    return _specs(types, shapes, "output_shapes")


def _specs(types: Any, shapes: Any, path: str) -> Any:
    """A `TensorSpec` for each dtype of a structure, and for the shape in its place.

    A shape may be a list or a tuple itself, so that only `types` tells where the structure ends.
    """
    steps = nest.steps_into(types)
    if steps is None:
        return (
            types if shapes is None and isinstance(types, TensorSpec) else TensorSpec(shapes, types)
        )
    if shapes is None:
        parts = [None] * len(steps)
    elif isinstance(types, dict):
        is_alike = isinstance(shapes, dict) and shapes.keys() == types.keys()
        parts = [shapes[key] for key in types] if is_alike else []
    else:
        parts = list(shapes)
    if len(parts) != len(steps):
        raise ValueError(f"{path} must have the structure of output_types, {types}; got {shapes}.")
    return nest.rebuild(
        types,
        [_specs(item, part, path + step) for (step, item), part in zip(steps, parts, strict=True)],
    )


def _checked_signature(signature: Any) -> Any:
    paths = nest.paths(signature, "output_signature")
    for path, leaf in zip(paths, nest.flatten(signature), strict=True):
        if not isinstance(leaf, TensorSpec):
            raise TypeError(f"{path} must be a TensorSpec(shape, dtype), got {leaf!r}.")
    return signature


def _conformed(element: Any, *, signature: Any) -> Any:
    """The element with the dtypes of `signature`; an error names the component that has another."""

    def convert(path: str, spec: TensorSpec, leaf: Any) -> Any:
        if leaf is None or not _fits(leaf, spec):
            place = f"component {path}" if path else "an item"
            found = "None" if leaf is None else f"of shape {leaf.shape} and dtype {leaf.dtype}"
            raise ValueError(
                f"The generator gave {place} {found}, but output_signature says {spec.shape} and "
                f"{spec.dtype}."
            )
        return leaf.astype(spec.dtype, copy=False)

    return nest.map_with_path(convert, signature, element)


def _fits(leaf: Any, spec: TensorSpec) -> bool:
    return spec.has_shape(leaf.shape) and np.can_cast(leaf.dtype, spec.dtype, "same_kind")
