"""Whether elements are as they were announced: of a signature, or finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import nest
from ._values import ArraySpec


def checked_signature(signature: Any) -> Any:
    """`signature`, if it is made of `ArraySpec`s."""
    paths = nest.paths(signature, "output_signature")
    for path, leaf in zip(paths, nest.flatten(signature), strict=True):
        if not isinstance(leaf, ArraySpec):
            raise TypeError(f"{path} must be an ArraySpec(shape, dtype), got {leaf!r}.")
    return nest.map_structure(lambda s: ArraySpec(tuple(s.shape), np.dtype(s.dtype)), signature)


def conformed(element: Any, *, signature: Any) -> Any:
    """The element with the dtypes of `signature`.

    Raises:
        ValueError: its structure, a shape or a dtype cannot be had; the message names the place.
    """

    def convert(path: str, spec: ArraySpec, leaf: Any) -> Any:
        if leaf is None or not _fits(leaf, spec):
            place = f"component {path}" if path else "an item"
            found = "None" if leaf is None else f"of shape {leaf.shape} and dtype {leaf.dtype}"
            raise ValueError(
                f"The generator gave {place} {found}, but output_signature says {spec.shape} and "
                f"{spec.dtype}."
            )
        return leaf.astype(spec.dtype, copy=False)

    return nest.map_with_path(convert, signature, element)


def require_finite(element: Any) -> Any:
    """The element itself.

    Raises:
        ValueError: a floating-point component holds an infinity or NaN; the message tells where.
    """
    for path, leaf in zip(nest.paths(element), nest.flatten(element), strict=True):
        if leaf is None or leaf.dtype.kind not in "fc" or np.isfinite(leaf).all():
            continue
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(leaf))[0])
        place = f"component {path}" if path else "the element"
        at = f" at index {where}" if where else ""
        raise ValueError(
            f"require_finite found {leaf[where]} in {place}{at}. Mend or leave out the example, or "
            "skip such ones with ignore_errors()."
        )
    return element


def _fits(leaf: Any, spec: ArraySpec) -> bool:
    return (
        len(leaf.shape) == len(spec.shape)
        and all(want in (None, have) for want, have in zip(spec.shape, leaf.shape, strict=True))
        and np.can_cast(leaf.dtype, spec.dtype, "same_kind")
    )
