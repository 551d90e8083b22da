"""Runs the conformance suite on the ranks of an MPI job: ``mpiexec -n N python -m mpi4py <this>``.

Every rank runs the bodies; rank 0 checks the outcomes of all.
"""

import importlib.util
import sys
import traceback
from pathlib import Path

from mpi4py import MPI

from paceline.collectives.mpi import mpi_communicator

_PATH = Path(__file__).parents[1] / "conformance" / "communicator.py"
_SPEC = importlib.util.spec_from_file_location("conformance_of_communicators", _PATH)
conformance = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = conformance
_SPEC.loader.exec_module(conformance)


class SomebodyElseChecksError(Exception):
    """Ends a check on all ranks but the first."""


def run(size, body, timeout_secs):
    """Run ``body`` on this rank; return the outcomes of all on rank 0."""
    assert size == MPI.COMM_WORLD.size
    communicator = mpi_communicator(timeout_secs=timeout_secs)
    try:
        outcome = body(communicator)
    except Exception as error:
        outcome = error
    outcomes = MPI.COMM_WORLD.gather(outcome)
    communicator.close()
    if outcomes is None:
        raise SomebodyElseChecksError
    return outcomes


def main():
    size = MPI.COMM_WORLD.size
    cases = conformance.cases([size]) + conformance.mismatches([size])
    failed = []
    for case in cases:
        try:
            case(run)
        except SomebodyElseChecksError:
            continue
        except Exception:
            failed.append(f"{case}\n{traceback.format_exc()}")
    if MPI.COMM_WORLD.rank == 0:
        print("\n".join([*failed, f"{len(cases) - len(failed)} of {len(cases)} cases passed"]))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
