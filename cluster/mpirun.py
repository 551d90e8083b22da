"""mpirun: where it is, which MPI it belongs to, and the options that it needs here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError, shown
from .local import num_cores

_INSTALL = "pip install 'paceline[mpich]' installs one"


@dataclass(frozen=True)
class Mpirun:
    """An mpirun.

    Args:
        path: The program.
        implementation: "Open MPI" or "MPICH" (and what shares its mpirun, as Intel MPI does).
        version: Its numbers, (5, 0, 11) for instance; empty if it does not say.
        beside_python: It is installed beside the interpreter, as `pip install` does.
    """

    path: str
    implementation: str
    version: tuple[int, ...]
    beside_python: bool

    def __str__(self) -> str:
        return f"{self.implementation} {'.'.join(map(str, self.version))} ({self.path})"


def find_mpirun(python: str = sys.executable, search_path: str | None = None) -> Mpirun:
    """The mpirun beside an interpreter, else the first on the search path.

    Args:
        python: The interpreter; a link to it (a virtual environment's) is not followed.
        search_path: Directories as in PATH, by default those of PATH.

    Raises:
        ClusterError: There is none, or it is of no known MPI.
    """
    beside = Path(python).parent / "mpirun"
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun", path=search_path)
    if path is None:
        raise ClusterError(f"there is no mpirun, neither beside {python} nor on PATH; {_INSTALL}")
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{path} --version does not work: {error}; {_INSTALL}") from None
    implementation, version = read_version(told.stdout + told.stderr)
    if not implementation:
        text = (told.stdout + told.stderr).strip()
        raise ClusterError(f"{path} is of no known MPI: it says {shown(text)}; {_INSTALL}")
    return Mpirun(path, implementation, version, path == str(beside))


def read_version(text: str) -> tuple[str, tuple[int, ...]]:
    """Implementation and version from what `mpirun --version` prints; ("", ()) if unknown."""
    if "Open MPI" in text or "OpenRTE" in text:
        implementation, numbers = "Open MPI", re.search(r"(\d+(?:\.\d+)+)", text)
    elif "HYDRA" in text or "MPICH" in text or "Intel(R) MPI" in text:
        implementation = "MPICH"
        numbers = re.search(r"Version[: ]*\s*(\d+(?:\.\d+)*)", text)
    else:
        return "", ()
    return implementation, tuple(map(int, numbers[1].split("."))) if numbers else ()


def mpirun_options(
    mpirun: Mpirun, num_ranks: int, cores: int | None = None, root: bool | None = None
) -> tuple[list[str], dict[str, str]]:
    """Options and environment variables with which mpirun starts `num_ranks` here.

    Open MPI refuses to run as root and to start more ranks than cores unless told, ties each rank
    to one core, and its ranks spin while they wait; the names of the options changed in 5.0.
    MPICH needs nothing: it yields the core by itself.

    Args:
        mpirun: Which MPI and version.
        num_ranks: How many ranks.
        cores: How many cores there are; by default those of this process.
        root: Whether we are root; by default found out.
    """
    if mpirun.implementation != "Open MPI":
        return [], {}
    cores = num_cores() if cores is None else cores
    root = os.geteuid() == 0 if root is None else root
    options = ["--bind-to", "none"]
    environ = {}
    if root:
        options.append("--allow-run-as-root")
    if num_ranks > cores:
        new = mpirun.version >= (5,)
        options += ["--map-by", ":OVERSUBSCRIBE"] if new else ["--oversubscribe"]
        environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return options, environ


def without_mpi_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer launcher says of this very process."""
    outer = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "HYDI_", "MPI_LOCAL", "TORCHELASTIC_", "SLURM_")
    return {name: value for name, value in environ.items() if not name.startswith(outer)}
