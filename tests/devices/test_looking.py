"""CuPy itself, where it is installed, with a GPU or not: tests may look at its arrays."""

from __future__ import annotations

import numpy as np
import pytest

from .looking import OPERATORS, visible_to_tests

PACKAGE = compile("def taken(array): return np.asarray(array)", "paceline/module.py", "exec")


def test_tests_are_given_values_and_the_package_is_not() -> None:
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    memory = cupy.cuda.UnownedMemory(1 << 20, 12, None, 0)  # nobody reads it
    array = cupy.ndarray(3, np.float32, cupy.cuda.MemoryPointer(memory, 0))
    of_package = {"np": np}
    exec(PACKAGE, of_package)
    before = dict(vars(cupy.ndarray))
    with visible_to_tests(cupy):
        assert set(OPERATORS) < vars(cupy.ndarray).keys()
        with pytest.raises(TypeError, match="Implicit conversion"):
            of_package["taken"](array)
    assert dict(vars(cupy.ndarray)) == before
