"""Imported by the server process from which `map`'s processes are forked, and by nothing else.

The environment that an MPI launcher gave to the job would have these processes join it a second
time, as soon as the user's script, which they import, does `from mpi4py import MPI`. Without it MPI
makes each of them a world of its own.
"""

from __future__ import annotations

import os

_PREFIXES = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL")

for _name in [name for name in os.environ if name.startswith(_PREFIXES)]:
    del os.environ[_name]
