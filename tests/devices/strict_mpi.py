"""A stand-in for an MPI that takes arrays on GPUs: mpi4py's communicator, given those of the tests.

Their memory is the host's in truth, so that any MPI can read it; mpi4py finds it as it finds that
of CuPy's arrays, by `__cuda_array_interface__`. What would crash, or now and then give old values,
is an error: an array of another card than the thread's, or one that a stream may still write.
"""

from __future__ import annotations

from typing import Any

from . import strict_cuda as cuda
from .strict_cupy import StrictArray

_SENT_FIRST = {"Allgatherv", "Reduce_scatter"}
"""Whose first argument is only read."""

CALLS: list[str] = []
"""The calls that were given arrays on cards."""


class Comm:
    """A communicator of mpi4py's, which looks at the arrays that it is given."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        return self._looking(name, found) if name[0].isupper() and callable(found) else found

    def Dup(self) -> Comm:  # noqa: N802
        return Comm(self._comm.Dup())

    def Split(self, color: int, key: int) -> Comm:  # noqa: N802
        return Comm(self._comm.Split(color, key))

    def _looking(self, name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            for place, arg in enumerate(args):
                array = arg[0] if isinstance(arg, tuple) and arg else arg
                if isinstance(array, StrictArray):
                    _look(array, name != "Send" and not (name in _SENT_FIRST and place == 0))
                    CALLS.append(name)
            return function(*args)

        return call


def _look(array: StrictArray, is_written: bool) -> None:
    if array.device != cuda.Device():
        raise RuntimeError(f"an array of {array.device} for MPI in a thread of {cuda.Device()}")
    assert array.flags.c_contiguous, "memory that is not contiguous"
    array._memory.hand_over(is_written)
