"""Fused functions as CuPy itself writes them in C++, compiled for the host: no GPU is needed.

CuPy can be imported without a driver, and writes the source of a kernel without one. What a kernel
of elements does to one of them is plain C++.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .strict_cupy import StrictArray, to_device

SOURCE = """
#include <cmath>
using namespace std;
#define __device__
{preamble}
extern "C" void kernel(long size, {parameters}) {{
  for (long i = 0; i < size; i++) {{
    {elements}
    {operation};
  }}
}}
"""


class HostKernels:
    """CuPy, whose fused functions run on the host: what `fused` takes for a library.

    Args:
        compiler: A C++ compiler.
        folder: For sources and what is compiled.
    """

    def __init__(self, compiler: str, folder: Path) -> None:
        self.compiler, self.folder = compiler, folder
        self.num_kernels = 0

    def __getattr__(self, name: str) -> Any:
        import cupy

        return getattr(cupy, name)

    def fuse(self, kernel_name: str) -> Callable[..., Any]:
        def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
            compiled: dict[Any, Any] = {}

            def call(*args: Any) -> Any:
                values = [x._array if isinstance(x, StrictArray) else x for x in args]
                key = tuple(x.dtype if isinstance(x, np.ndarray) else type(x) for x in values)
                if key not in compiled:
                    kernel = traced(function, kernel_name, values)
                    compiled[key] = kernel, self._compiled(kernel, values)
                return _called(*compiled[key], values)

            return call

        return decorated

    def _compiled(self, kernel: Any, values: Sequence[Any]) -> Any:
        ins, outs = kernel.in_params, kernel.out_params
        is_array = [isinstance(x, np.ndarray) for x in values] + [True] * len(outs)
        pairs = list(zip((*ins, *outs), is_array, strict=True))
        source = SOURCE.format(
            preamble=kernel.preamble.replace('#include "cupy/float16.cuh"', ""),
            parameters=", ".join(f"{p.ctype} {'*' if a else ''}p_{p.name}" for p, a in pairs),
            elements=" ".join(
                f"{p.ctype} &{p.name} = p_{p.name}{'[i]' if a else ''};" for p, a in pairs
            ),
            operation=kernel.operation,
        )
        self.num_kernels += 1
        path = self.folder / f"kernel{self.num_kernels}.cpp"
        path.write_text(source)
        shared = path.with_suffix(".so")
        # Without a product and a sum rounded once, which is all that a GPU does otherwise.
        options = ["-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(shared)]
        subprocess.run([self.compiler, str(path), *options], check=True)
        return ctypes.CDLL(str(shared)).kernel


def traced(function: Callable[..., Any], name: str, values: Sequence[Any]) -> Any:
    """The kernel that CuPy makes of a function of such arrays and numbers."""
    import cupy
    from cupy._core import _fusion_thread_local, fusion

    def like(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        nowhere = cupy.cuda.UnownedMemory(1 << 12, value.nbytes, None, 0)
        return cupy.ndarray(value.shape, value.dtype, cupy.cuda.MemoryPointer(nowhere, 0))

    local = _fusion_thread_local.thread_local
    local.history = history = fusion._FusionHistory()
    local.is_old_fusing = True
    try:
        return history.get_fusion(function, tuple(like(value) for value in values), name)[0]
    finally:
        local.history, local.is_old_fusing = None, False


def _called(kernel: Any, loop: Any, values: Sequence[Any]) -> Any:
    """Arrays that the kernel changes are changed; those that it makes are given."""
    shape = np.broadcast_shapes(*[x.shape for x in values if isinstance(x, np.ndarray)])
    outs = [np.empty(shape, param.dtype) for param in kernel.out_params]
    whole = [
        np.ascontiguousarray(np.broadcast_to(x, shape)) if isinstance(x, np.ndarray) else x
        for x in values
    ]
    loop(ctypes.c_long(int(np.prod(shape))), *[_passed(x) for x in (*whole, *outs)])
    for param, value, passed in zip(kernel.in_params, values, whole, strict=True):
        if not param.is_const:
            value[...] = passed
    return tuple(to_device(out) for out in outs) or None


def _passed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes.data_as(ctypes.c_void_p)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_long(value)
