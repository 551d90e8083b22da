"""`tf.test`: whether there are GPUs, and the assertions of a `TestCase`."""

from __future__ import annotations

import tempfile
import unittest
from typing import Any

import numpy as np

from ...inputs import nest
from ...strategies import list_devices
from ..names import NameTable, serve
from .advice import advice

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
main = unittest.main


def is_gpu_available(
    cuda_only: bool = False, min_cuda_compute_capability: tuple[int, int] | None = None
) -> bool:
    """Whether this process has a GPU that CuPy can use.

    Args:
        cuda_only: Has no effect: all are CUDA's.
        min_cuda_compute_capability: Must be None.

    Raises:
        ValueError: A compute capability is asked for.
    """
    if min_cuda_compute_capability is not None:
        raise ValueError(
            f"is_gpu_available: min_cuda_compute_capability must be None, got "
            f"{min_cuda_compute_capability}; ask CuPy for it"
        )
    return bool(list_devices("GPU"))


def is_built_with_cuda() -> bool:
    """Whether this process can use CUDA, which here depends on the machine, and not on a build."""
    return is_gpu_available()


def gpu_device_name() -> str:
    """The name of the first GPU; empty without one."""
    return "/device:GPU:0" if is_gpu_available() else ""


class TestCase(unittest.TestCase):
    """`unittest.TestCase` with assertions about arrays, which may be in nested structures."""

    def get_temp_dir(self) -> str:
        """A new directory, which goes with the test."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return directory.name

    def evaluate(self, tensors: Any) -> Any:
        """The values of tensors, as arrays in the same structure."""
        return nest.map_structure(np.asarray, tensors)

    def assertAllClose(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Fail unless values are close: |a - b| <= atol + rtol |b|."""
        for one, other in _pairs(a, b):
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=msg or "")

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless all values are equal."""
        for one, other in _pairs(a, b):
            np.testing.assert_array_equal(one, other, err_msg=msg or "")

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless the shapes are equal."""
        np.testing.assert_array_equal(input_a.shape, input_b.shape, err_msg=msg or "")


def _pairs(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Leaves of a dict or of one array, beside each other."""
    if isinstance(a, dict):
        if a.keys() != b.keys():
            raise AssertionError(f"the keys are {sorted(a)} and {sorted(b)}; they must be the same")
        return [pair for key in a for pair in _pairs(a[key], b[key])]
    return [(np.asarray(a), np.asarray(b))]
