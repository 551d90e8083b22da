"""CuPy's own arrays, at which tests may look.

Tests are written for NumPy: they compare by `np.testing`, and compute with NumPy's arrays beside
those of the package, both of which CuPy refuses. Within `visible_to_tests` it refuses them to the
package alone, as `strict_cupy` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np

from .strict_cupy import asked_by_a_test

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
OPERATORS = [
    *(f"__{name}__" for name in ("lt", "le", "eq", "ne", "gt", "ge")),
    *(f"__{form}{name}__" for name in _BINARY for form in ("", "r", "i")),
]
OPERATORS.remove("__imatmul__")  # CuPy has none


@contextmanager
def visible_to_tests(cupy: Any) -> Iterator[None]:
    """Within it CuPy's arrays give tests their values, and take NumPy's arrays from them."""
    kind = cupy.ndarray

    def values(self: Any, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if not asked_by_a_test():
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")
        return np.asarray(self.get(), dtype)

    def on_card(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([on_card(item) for item in value])
        return cupy.asarray(value) if isinstance(value, np.ndarray) else value

    def ufunc(self: Any, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if asked_by_a_test():
            inputs = on_card(inputs)
        return base.__array_ufunc__(self, function, method, *inputs, **options)

    def function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if asked_by_a_test():
            args, types = on_card(args), [kind]
        return base.__array_function__(self, func, types, args, kwargs)

    def taking_numpys(operator: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(operator)
        def operate(self: Any, other: Any) -> Any:
            is_numpys = isinstance(other, np.ndarray) and asked_by_a_test()
            return operator(self, cupy.asarray(other) if is_numpys else other)

        return operate

    base = kind.__mro__[1]
    methods = {name: taking_numpys(getattr(kind, name)) for name in OPERATORS}
    methods |= {"__array__": values, "__array_ufunc__": ufunc, "__array_function__": function}
    with ExitStack() as patches:
        for name, method in methods.items():
            patches.enter_context(patch.object(kind, name, method))
        yield
