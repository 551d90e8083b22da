"""Runs what all kinds of links pass with those over MPI: ``mpiexec -n 1 python -m mpi4py <this>``.

Both ends are in this process, a rank that sends to itself. In a process of its own, since whoever
initialises MPI ends with it.
"""

import sys
from pathlib import Path

import pytest
from mpi4py import MPI

from paceline.collectives.session import MPI_LINKS

HERE = Path(__file__).parent
SUITES = [
    str(HERE / "session" / "test_links.py"),
    str(HERE / "parameter_server" / "test_channel_conformance.py"),
]

MPI_LINKS.join(MPI, MPI.COMM_WORLD)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "[mpi] or -mpi]", *SUITES]))
