"""One rank of an MPI job does something wrong; which, is the argument. See test_mpi.py."""

import sys
import time

import numpy as np

from paceline.collectives import mpi_watchdog
from paceline.collectives.mpi import mpi_communicator


def use(communicator, names):
    for name in names:
        communicator.all_reduce(np.zeros(100), name)


def raises_inside_with(communicator):
    with communicator:
        if communicator.rank == 1:
            raise KeyError("no such column")
        use(communicator, "a")


def raises(communicator):
    if communicator.rank == 1:
        raise KeyError("no such column")
    use(communicator, "a")


def never_comes(communicator):
    communicator.step = 1841
    use(communicator, "ab")
    if communicator.rank == 1:
        time.sleep(60)
    communicator.all_reduce(np.zeros(500_000), "bucket 3")


def prepares_data(communicator):
    """The other rank says so after a second, and all show what they do."""
    mpi_watchdog.DEFAULT_REPORT_SECS = 1.0
    use(communicator, "a")
    if communicator.rank == 1:
        time.sleep(60)
    use(communicator, "a")


def skips_a_short_call(communicator):
    """The two are of equal length, so MPI itself would add up what does not belong together."""
    for turn in range(100):
        if turn != 10 or communicator.rank != 0:
            use(communicator, "a")
        use(communicator, "b")


def swaps_two_short_calls(communicator):
    use(communicator, "ab")
    use(communicator, "ab" if communicator.rank == 0 else "ba")


def skips_a_long_call(communicator):
    array = np.zeros(1 << 19)
    for turn in range(5):
        if turn != 3 or communicator.rank != 0:
            communicator.all_reduce(array, "a")
        communicator.all_reduce(array, "b")


def leaves_early(communicator):
    for turn in range(5):
        if turn == 3 and communicator.rank == 0:
            return
        use(communicator, "a")


def closes_early(communicator):
    use(communicator, "a")
    if communicator.rank == 0:
        communicator.close()
    else:
        use(communicator, "a")


def is_stuck_elsewhere(communicator):
    """Both wait, in calls known to both that MPI cannot bring together."""
    part = communicator.split(communicator.rank, 0)
    use(part, "c")
    use(communicator, "abab")
    if communicator.rank == 1:
        use(communicator, "b")
        communicator.receive(np.zeros(3), "weights", 0)
    else:
        communicator.barrier("end")


if __name__ == "__main__":
    globals()[sys.argv[1]](mpi_communicator(timeout_secs=float(sys.argv[2])))
