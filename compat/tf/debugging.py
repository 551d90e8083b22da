"""`tf.debugging`: checks that raise a ValueError with what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..names import NameTable, serve
from .advice import advice
from .conversion import convert, plain

__getattr__, __dir__ = serve(
    NameTable(__name__, renamed={"Assert": "compat.tf.control.Assert"}, advice=advice)
)


def _comparison(function: Callable[..., Any], words: str) -> Callable[..., None]:
    def check(
        x: Any, y: Any, message: str | None = None, summarize: Any = None, name: Any = None
    ) -> None:
        left, right = plain(x), plain(y)
        if not np.all(function(left, right)):
            raise ValueError(
                f"{message or 'an assertion of the script failed'}: {left} {words} {right}"
            )

    return check


assert_equal = _comparison(np.equal, "is not")
assert_none_equal = _comparison(np.not_equal, "is somewhere equal to")
assert_greater = _comparison(np.greater, "is not greater than")
assert_greater_equal = _comparison(np.greater_equal, "is less than")
assert_less = _comparison(np.less, "is not less than")
assert_less_equal = _comparison(np.less_equal, "is greater than")


def assert_near(
    x: Any,
    y: Any,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    message: str | None = None,
    summarize: Any = None,
    name: Any = None,
) -> None:
    """Refuse values that differ by more than `atol + rtol * |y|`."""
    _comparison(lambda a, b: np.isclose(a, b, rtol, atol), "is not near")(x, y, message)


def _of_one(function: Callable[[Any], Any], words: str) -> Callable[..., None]:
    def check(x: Any, message: str | None = None, summarize: Any = None, name: Any = None) -> None:
        values = plain(x)
        if not np.all(function(values)):
            raise ValueError(f"{message or 'an assertion of the script failed'}: {values} {words}")

    return check


assert_all_finite = _of_one(np.isfinite, "is not finite")
assert_positive = _of_one(lambda a: a > 0, "is not positive")
assert_non_negative = _of_one(lambda a: a >= 0, "is negative")
assert_negative = _of_one(lambda a: a < 0, "is not negative")


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Any:
    """The tensor, if it has neither NaN nor infinity."""
    assert_all_finite(tensor, message)
    return convert(tensor)


def assert_rank(
    x: Any,
    rank: Any,
    message: str | None = None,
    name: str | None = None,
    data: Any = None,
    summarize: int | None = None,
) -> None:
    """Refuse another number of axes."""
    assert_equal(convert(x).ndim, rank, message or "the number of axes")


def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Refuse shapes other than these; the same letter stands for the same length."""
    lengths: dict[str, int] = {}
    for x, wanted in shapes.items() if isinstance(shapes, dict) else shapes:
        found = convert(x).shape
        pairs = list(zip(found, wanted, strict=False))
        fits = len(found) == len(wanted) and all(
            w is None or n == (lengths.setdefault(w, n) if isinstance(w, str) else w)
            for n, w in pairs
        )
        if not fits:
            raise ValueError(
                f"{message or 'an assertion of the script failed'}: shape {found} is not {wanted}"
            )
