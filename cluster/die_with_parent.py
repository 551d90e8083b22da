"""Starts one task of a launched job so that it ends with its launcher. A program, not a module.

    python -I -S die_with_parent.py exec SIGNAL PARENT_PID program args…
    python -I -S die_with_parent.py rank DIRECTORY program args…

`exec` becomes the program. `rank`, under mpirun, runs it as a child: its output goes to the named
pipes RANK.out and RANK.err of DIRECTORY, its process id and its exit status to RANK.status, so that
`paceline launch` sees each rank as clearly as a process of its own. Without it a rank that raises
before it has initialised MPI leaves the others waiting for ever (MPICH).
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def end_with_parent(signal_number: int, parent: int) -> None:
    """Ask Linux to send this process a signal when its parent ends. Elsewhere nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal_number)


def run_as_rank(directory: str, program: list[str]) -> int:
    """Run a program with its output in `directory`, and report how it ended."""
    end_with_parent(signal.SIGKILL, os.getppid())
    rank = next(os.environ[name] for name in _RANK_VARIABLES if name in os.environ)
    pipes = {
        kind: os.open(os.path.join(directory, f"{rank}.{kind}"), os.O_WRONLY)
        for kind in ("out", "err", "status")
    }
    os.dup2(pipes["out"], 1)
    os.dup2(pipes["err"], 2)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with_parent(signal.SIGKILL, parent)
        os.execv(program[0], program)

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and is about to be reported
            os.kill(child, number)

    # mpirun's request to end is for the program; this process stays to report.
    signal.signal(signal.SIGTERM, pass_on)
    os.write(pipes["status"], f"pid {child}\n".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(pipes["status"], f"status {status}\n".encode())
    return status if status >= 0 else 128 - status


def main(arguments: list[str]) -> int:
    if arguments[0] == "exec":
        end_with_parent(int(arguments[1]), int(arguments[2]))
        os.execv(arguments[3], arguments[3:])
    return run_as_rank(arguments[1], arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
