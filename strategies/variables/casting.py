"""In which precision expressions see variables, which are kept in another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ...autodiff import surrounding

cast_to: ContextVar[np.dtype | None] = ContextVar("paceline_variables_cast_to", default=None)
surrounding(cast_to)


def variables_are_cast() -> bool:
    """Whether expressions here see floats of variables in another dtype."""
    return cast_to.get() is not None


@contextmanager
def variables_cast_to(dtype: np.dtype | None) -> Iterator[None]:
    """In the block, in this thread, expressions see variables of floats in `dtype`.

    Gradients flow through the conversion to the variables as they are. None: no conversion.
    """
    token = cast_to.set(dtype)
    try:
        yield
    finally:
        cast_to.reset(token)
