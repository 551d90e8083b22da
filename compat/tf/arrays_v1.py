"""Functions of arrays that TensorFlow 1 defines in another way."""

from __future__ import annotations

from typing import Any

from . import arrays
from .conversion import accept_symbolic, convert, plain

__all__ = ["where"]


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """`tf.where`, in which a vector of conditions chooses rows of `x` and `y`."""
    chosen = plain(condition)
    if x is not None and chosen.ndim == 1 and convert(x).ndim > 1:
        chosen = chosen.reshape(-1, *[1] * (convert(x).ndim - 1))
    return arrays.where(chosen, x, y)


accept_symbolic(globals())
