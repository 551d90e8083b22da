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


def run_on(communicator, body):
    """Run ``body`` on this rank; return the outcomes of all on rank 0."""
    try:
        outcome = body(communicator)
    except Exception as error:
        outcome = error
    outcomes = MPI.COMM_WORLD.gather(outcome)
    if outcomes is None:
        raise SomebodyElseChecksError
    return outcomes


def run(size, body, timeout_secs):
    """Run ``body`` in a communicator of its own."""
    assert size == MPI.COMM_WORLD.size
    communicator = mpi_communicator(timeout_secs=timeout_secs)
    try:
        return run_on(communicator, body)
    finally:
        communicator.close()


def failure(case, how):
    """Return the traceback of ``case`` if this rank checks and it fails."""
    try:
        case(how)
    except SomebodyElseChecksError:
        return ""
    except Exception:
        return f"{case}\n{traceback.format_exc()}"
    return ""


def main():
    size = MPI.COMM_WORLD.size
    cases = conformance.cases([size])
    in_order = [case for case in cases if case.name != "closed"]
    ending = [case for case in cases if case.name == "closed"] + conformance.mismatches([size])
    with mpi_communicator(timeout_secs=conformance.TIMEOUT_SECS) as shared:
        failed = [failure(case, lambda _, body, __: run_on(shared, body)) for case in in_order]
    failed += [failure(case, run) for case in ending]
    failed = [text for text in failed if text]
    if MPI.COMM_WORLD.rank == 0:
        print("\n".join([*failed, f"{len(in_order) + len(ending) - len(failed)} cases passed"]))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
