"""A job under mpirun whose worker 1 begins, but never comes to the strategy.

The argument says whether it has initialised MPI before.
"""

import signal
import sys

import paceline as pl
from paceline.cluster import resolve

if str(resolve().task) == "worker 1":
    if sys.argv[1] == "with MPI":
        from mpi4py import MPI  # noqa: F401
    signal.alarm(20)  # where the MPI does not end it with worker 0, which is what this is about
    signal.pause()
pl.MultiWorkerMirroredStrategy(communication_options=pl.CommunicationOptions(start_timeout_secs=2))
