"""Whether the MPI world is the one that was asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import ClusterError

WORLD_SIZE_VARIABLE = "PACELINE_WORLD_SIZE"
_SIZES = (WORLD_SIZE_VARIABLE, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def check_world_size(size_found: int, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse an MPI world of another size than the launcher made.

    The mpirun of one MPI starts programs of another as so many worlds of size 1, each of which
    would train alone.

    Args:
        size_found: COMM_WORLD's size.
        environ: PACELINE_WORLD_SIZE, set by `paceline launch`, and the launchers' own variables.

    Raises:
        ClusterError: Names the variable and both sizes.
    """
    for name in _SIZES:
        asked = environ.get(name, "")
        if asked.isdecimal() and int(asked) != size_found:
            raise ClusterError(
                f"{name} is {asked}, but MPI's COMM_WORLD has {size_found} "
                f"process{'es' if size_found != 1 else ''}: mpirun belongs to another MPI than "
                f"mpi4py; use the mpirun beside your Python ('paceline launch --backend mpi' "
                f"does), and see 'paceline doctor'"
            )
