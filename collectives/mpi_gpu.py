"""Whether an MPI library takes arrays in the memory of GPUs, which has to be known.

mpi4py hands MPI the address of an array of CuPy's (by DLPack, without any wait for a stream). A
library that is not built for that takes it for host memory, and the process crashes
(https://github.com/mpi4py/mpi4py/issues/115). Nothing in mpi4py asks, so the library itself is:

- The MPI standard, 4.1, lists the kinds of memory that a communicator takes under the key
  "mpi_memory_alloc_kinds" of its info. MPICH 5 lists what it can; Open MPI 6 what was also asked
  for: `mpiexec --memory-allocation-kinds system,mpi,cuda:device`
  (https://docs.open-mpi.org/en/v6.0.x-pre-release/tuning-apps/accelerators/memkind.html).
- `int MPIX_Query_cuda_support(void)`: Open MPI, MPICH from 4.1 on, ParaStation MPI. Open MPI 5 says
  1 where it was built with CUDA *and* finds it at run time; older ones, how they were built.
- `int MPIX_GPU_query_support(int type, int *is_supported)`: MPICH from 4.0 on, and what is made of
  it. It says no unless MPIR_CVAR_ENABLE_GPU allows it (Cray: MPICH_GPU_SUPPORT_ENABLED=1, with the
  library for GPUs linked in).

A library that can be asked nothing of this is taken to say no.

Of Open MPI only blocking calls take them (https://github.com/open-mpi/ompi/issues/9845), and so
only these are made here.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA in MPICH's mpi.h


@cache
def says_it_takes_gpu_arrays(mpi: Any) -> bool:
    """Whether an initialised MPI library says that it takes arrays on NVIDIA's GPUs.

    Args:
        mpi: The module ``mpi4py.MPI``.
    """
    info = mpi.COMM_WORLD.Get_info()
    kinds = info.get("mpi_memory_alloc_kinds") or ""
    info.Free()
    try:
        library = ctypes.CDLL(mpi.__file__)  # finds symbols in what it is linked with, too
    except OSError:
        library = None
    return has_cuda_memory(kinds) or queries_say_yes(library)


def has_cuda_memory(kinds: str) -> bool:
    """Whether memory of GPUs is in a list of kinds, as "mpi,system,cuda:device:managed"."""
    for kind in kinds.replace(" ", "").lower().split(","):
        name, *restricted_to = kind.split(":")
        if name == "cuda" and (not restricted_to or "device" in restricted_to):
            return True
    return False


def queries_say_yes(library: Any) -> bool:
    """Whether a loaded library has a function that can be asked, and which says yes."""
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is not None and query() == 1:
        return True
    query, is_supported = getattr(library, "MPIX_GPU_query_support", None), ctypes.c_int(0)
    return (
        query is not None
        and query(_CUDA, ctypes.byref(is_supported)) == 0
        and is_supported.value != 0
    )
