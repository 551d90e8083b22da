"""`paceline doctor`: which backends work here, and why the others do not."""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from .machine import SHARED_MEMORY, counted, is_too_small, mpich_leftovers, num_cores, tune_malloc
from .mpirun import find_mpirun, mpirun_options, without_mpi_variables
from .spec import ClusterError
from .token import MAKE_ONE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, job_token

_TIMEOUT_SECS = 60
_DESCRIPTION = """
Show which backends work on this machine and why the others do not. The exit code is 1 if something
that paceline needs, or that is installed, does not work.
"""


@dataclass(frozen=True)
class Diagnosis:
    """What was found out about one part: ok, warning, absent (also: no such hardware) or broken."""

    state: str
    part: str
    text: str


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION


def run_doctor(arguments: argparse.Namespace) -> int:
    """Carry out `paceline doctor`; its exit code."""
    from rich.console import Console
    from rich.text import Text

    colours = {"ok": "green", "warning": "yellow", "absent": "dim", "broken": "bold red"}
    console = Console(soft_wrap=True, highlight=False)
    diagnoses = diagnose()
    for found in diagnoses:
        line = Text(f"{found.state:<8} ", style=colours[found.state])
        console.print(line + Text(f"{found.part:<13} {found.text}", style="default"))
    return 1 if any(found.state == "broken" for found in diagnoses) else 0


def diagnose(environ: Mapping[str, str] = os.environ) -> list[Diagnosis]:
    """Look at every part. Libraries are tried in processes of their own, all at once."""
    examinations: list[Callable[[], Diagnosis | None]] = [
        _python,
        _numpy,
        partial(_core_type, environ),
        partial(_malloc, environ),
        *(partial(_library, *part) for part in _CORE),
        _shared_memory,
        partial(examine_mpi_memory, SHARED_MEMORY),
        partial(examine_token, environ),
        _mpi4py,
        partial(_mpirun, environ),
        _cupy,
        _kernels,
        *(partial(_optional, *part) for part in _OPTIONAL),
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(lambda examine: examine(), examinations))
    diagnoses = [diagnosis for diagnosis in found if diagnosis is not None]
    return [*diagnoses, *examine_versions(_requirements(), _installed_version)]


_CORE = (
    ("pydantic", "import pydantic; print(pydantic.VERSION)"),
    ("rich", "import rich; from importlib.metadata import version; print(version('rich'))"),
    (
        "grpcio",
        """
import grpc
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    assert grpc.server(pool).add_insecure_port("127.0.0.1:0"), "cannot listen on 127.0.0.1"
print(grpc.__version__, "(RING)")
""",
    ),
)
_OPTIONAL = (("fsspec", "remote", "for a model_dir on other storage"),)
_MPI4PY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
library = MPI.Get_library_version().splitlines()[0].split(",")[0]
print(mpi4py.__version__, "on", " ".join(library.split()))
"""
_WORLD = "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_size())"
_CUPY = """
import cupy
count = cupy.cuda.runtime.getDeviceCount()
names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
from cupy.cuda import nccl
reduce = f"NCCL {nccl.get_version()}" if nccl.available else "no NCCL (extras nccl, nccl12)"
print(cupy.__version__, "on", ", ".join(names) + ";", reduce)
"""


def _requirements() -> Sequence[str]:
    """The requirements of the installed paceline; none where it runs without being installed."""
    try:
        return requires("paceline") or ()
    except PackageNotFoundError:
        return ()


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine_versions(
    requirements: Sequence[str], installed_version: Callable[[str], str | None]
) -> Iterator[Diagnosis]:
    """A diagnosis for each package that is older than paceline asks for.

    Args:
        requirements: As in the metadata of packages: 'numpy>=2.2', 'mpi4py>=4; extra == "mpi"'.
        installed_version: Gives the version of a package, None if it is not installed.
    """
    for text in dict.fromkeys(
        requirement.partition(";")[0].strip() for requirement in requirements
    ):
        name, _, minimum = text.partition(">=")
        installed = installed_version(name)
        if minimum and installed and _release(installed) < _release(minimum):
            told = f"version {installed} is installed, but paceline needs {text}"
            yield Diagnosis("broken", name, f"{told}; pip install --upgrade '{text}'")


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version up to the first letter. 2.2 is 2.2.0."""
    numbers = [int(number) for number in re.split(r"[^\d.]", text)[0].split(".") if number]
    return (*numbers, 0, 0, 0)[:3]


def _python() -> Diagnosis:
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()  # always, before Python 3.13
    version = sys.version.split()[0] + ("" if has_gil else " without the GIL")
    text = f"{version} ({sys.executable}), {counted(num_cores(), 'core')}"
    return Diagnosis("ok", "Python", text)


def _numpy() -> Diagnosis:
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    text = f"{np.__version__}, {blas['name']} {blas.get('version', '')}".rstrip()
    core, threads = openblas_core()
    if core:
        text += f", kernels for {core}, {threads} thread{'s' if threads != 1 else ''}"
    return Diagnosis("ok", "NumPy", text)


def openblas_core() -> tuple[str, int]:
    """The processor whose kernels NumPy's OpenBLAS has chosen, and its threads; ("", 0) without."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return "", 0
    for path in {line.split()[-1] for line in lines if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            core = getattr(library, name.format("get_corename"), None)
            threads = getattr(library, name.format("get_num_threads"), None)
            if core is not None and threads is not None:
                core.restype = ctypes.c_char_p
                return core().decode(), threads()
    return "", 0


def _core_type(environ: Mapping[str, str]) -> Diagnosis | None:
    chosen = environ.get("OPENBLAS_CORETYPE")
    if not chosen:
        return None
    text = (
        f"OPENBLAS_CORETYPE={chosen} keeps OpenBLAS from choosing its kernels; the best may be "
        f"almost twice as fast: unset it"
    )
    return Diagnosis("warning", "NumPy", text)


def _malloc(environ: Mapping[str, str]) -> Diagnosis:
    if tune_malloc(environ):
        return Diagnosis(
            "ok", "malloc", "keeps freed arrays (PACELINE_MALLOC=default turns it off)"
        )
    if environ.get("PACELINE_MALLOC") == "default":
        return Diagnosis("warning", "malloc", "not tuned: PACELINE_MALLOC=default; unset it")
    return Diagnosis("absent", "malloc", "not tuned: only glibc's can be")


def _library(part: str, code: str) -> Diagnosis:
    works, text = try_python(code)
    if works:
        return Diagnosis("ok", part, text)
    return Diagnosis("broken", part, f"{text}; pip install --force-reinstall {part}")


def _optional(part: str, extra: str, purpose: str) -> Diagnosis:
    try:
        return Diagnosis("ok", part, version(part))
    except PackageNotFoundError:
        text = f"not installed; pip install 'paceline[{extra}]' {purpose}"
        return Diagnosis("absent", part, text)


def _shared_memory() -> Diagnosis:
    """How workers of one host exchange arrays over RING: in memory that has no name."""
    part = "shared memory"
    if hasattr(os, "memfd_create"):
        return Diagnosis("ok", part, "memfd; no limit but the memory itself")
    return Diagnosis("absent", part, "no memfd on this system: workers of one host use TCP")


def examine_mpi_memory(directory: str) -> Diagnosis:
    """Where the ranks of one host exchange arrays over MPI, and what killed ones left there."""
    part = "memory for MPI"
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return Diagnosis("absent", part, f"no {directory}, which MPI libraries use")
    left = mpich_leftovers(directory)
    size = sum(left.values()) >> 20
    text = f"{free >> 20} MiB free in {directory}"
    if left:
        text += f"; killed ranks of MPICH have left {size} MiB there: rm {directory}/mpich_shm_*"
    if is_too_small(free, num_cores()):
        text += "; a rank that finds no room dies of signal 7; containers: --shm-size=1g"
        return Diagnosis("warning", part, text)
    return Diagnosis("warning" if left else "ok", part, text)


def examine_token(environ: Mapping[str, str]) -> Diagnosis:
    """The job's secret; what it is, is nobody's business."""
    try:
        token = job_token(environ)
    except ClusterError as error:
        return Diagnosis("broken", "token", str(error))
    if token is None:
        names = f"{TOKEN_VARIABLE} and {TOKEN_FILE_VARIABLE}"
        text = f"{names} are not set; RING asks for one on several machines: {MAKE_ONE}"
        return Diagnosis("absent", "token", text)
    name = TOKEN_FILE_VARIABLE if environ.get(TOKEN_FILE_VARIABLE) else TOKEN_VARIABLE
    return Diagnosis("ok", "token", f"{name} is set")


def _mpi4py() -> Diagnosis:
    install = "pip install 'paceline[mpich]' installs it with an MPI"
    try:
        version("mpi4py")
    except PackageNotFoundError:
        return Diagnosis("absent", "mpi4py", f"not installed; {install}")
    works, text = try_python(_MPI4PY)
    if works:
        return Diagnosis("ok", "mpi4py", text)
    return Diagnosis("broken", "mpi4py", f"{text}; it has no MPI library: {install}")


def _mpirun(environ: Mapping[str, str]) -> Diagnosis:
    """Whether two ranks that mpirun starts are in one world."""
    try:
        mpirun = find_mpirun(search_path=environ.get("PATH"))
    except ClusterError as error:
        return Diagnosis("absent", "mpirun", str(error))
    where = "beside Python" if mpirun.beside_python else "on PATH, not beside Python"
    try:
        version("mpi4py")
    except PackageNotFoundError:
        return Diagnosis("warning", "mpirun", f"{mpirun}, {where}, but there is no mpi4py")
    options, extra = mpirun_options(mpirun, 2)
    command = [mpirun.path, *options, "-n", "2", sys.executable, "-c", _WORLD]
    works, text = _try(command, without_mpi_variables(environ) | extra)
    if not works:
        hint = "" if mpirun.beside_python else "; it may be of another MPI than mpi4py's"
        text = f"{mpirun}, {where}, does not start two ranks: {text}{hint}"
        return Diagnosis("broken", "mpirun", text)
    if "".join(text.split()) != "22":  # the ranks may print into each other's lines
        problem = "two ranks are each alone, so it is of another MPI than mpi4py's"
        return Diagnosis("broken", "mpirun", f"{mpirun}, {where}: {problem}")
    return Diagnosis("ok", "mpirun", f"{mpirun}, {where}; two ranks meet")


def _cupy() -> Diagnosis:
    works, text = try_python(_CUPY)
    if works:
        return Diagnosis("ok", "CuPy", text)
    if "No module named 'cupy'" in text:
        return Diagnosis(
            "absent",
            "CuPy",
            "not installed; pip install 'paceline[gpu]' for GPUs ('[gpu12]' for CUDA 12)",
        )
    return Diagnosis("absent", "CuPy", f"no GPU that it can use: {text}")


def _kernels() -> Diagnosis:
    works, text = try_python("from paceline import kernels; print(kernels.describe())")
    compiled = works and text.startswith("compiled")
    return Diagnosis("ok" if compiled else "absent", "kernels", text)


def try_python(code: str) -> tuple[bool, str]:
    """Run Python code in a process of its own: did it work, and what it printed or why not."""
    return _try([sys.executable, "-W", "ignore", "-c", code], os.environ)


def _try(command: list[str], environ: Mapping[str, str]) -> tuple[bool, str]:
    try:
        ran = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if ran.returncode == 0:
        return True, ran.stdout.strip()
    lines = [line for line in ran.stderr.splitlines() if line.strip(" -=")]
    return False, lines[-1].strip() if lines else f"exit code {ran.returncode}"
