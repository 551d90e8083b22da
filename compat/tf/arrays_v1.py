"""Functions of arrays that TensorFlow 1 defines in another way."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import arrays
from .conversion import accept_symbolic, as_tensor, convert, operands, plain

__all__ = ["div", "where"]


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """`tf.where`, in which a vector of conditions chooses rows of `x` and `y`."""
    chosen = plain(condition)
    if x is not None and chosen.ndim == 1 and convert(x).ndim > 1:
        chosen = chosen.reshape(-1, *[1] * (convert(x).ndim - 1))
    return arrays.where(chosen, x, y)


def div(x: Any, y: Any, name: str | None = None) -> Any:
    """`x / y`; of whole numbers the quotient rounded down, as of Python 2."""
    x, y = operands(x, y)
    of_integers = all(np.asarray(v).dtype.kind in "iu" for v in (x, y))
    return as_tensor(np.floor_divide(x, y) if of_integers else np.divide(x, y))


accept_symbolic(globals())
