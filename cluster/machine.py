"""This machine: its cores, its memory, and what dead ranks of MPICH leave in it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = "/dev/shm"
"""Where the ranks of one host exchange arrays over MPI."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_NAME = re.compile(r"/(mpich_shm_\w+)")
_RANK_MIB = 2
"""What a rank takes, about."""
_AGE_SECS = 1.0
"""A rank maps the file that it has made at once."""


def num_cores() -> int:
    """The cores this process may use: its affinity, less what a container's quota takes away."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or no quota ("max")
        return cores


def counted(number: int, noun: str) -> str:
    """A number of things: "1 core", "2 cores"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def tune_malloc(environ: Mapping[str, str] = os.environ) -> bool:
    """Let glibc's malloc keep freed arrays, instead of giving them back at each step.

    By default it maps arrays of more than some 100 KB anew each time, and the kernel then clears
    every page of them. A training step allocates the same arrays again and again, and is up to
    half as fast for it.

    Args:
        environ: With PACELINE_MALLOC=default nothing is changed.

    Returns:
        Whether the thresholds were set.
    """
    if environ.get("PACELINE_MALLOC") == "default" or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))


def mpich_leftovers(directory: str = SHARED_MEMORY, age_secs: float = _AGE_SECS) -> dict[Path, int]:
    """The files of MPICH's ranks that no process uses any more, with their sizes in bytes.

    SIGKILL or an abort leaves them. Of other users' processes one cannot see what they use, so
    their files do not count, nor do younger ones than `age_secs`: a rank may be about to map those.
    """
    found = {path: _size_of_ours(path, age_secs) for path in _segments(directory)}
    in_use = set(_names_in_use()) if found else set()
    return {p: size for p, size in found.items() if size is not None and p.name not in in_use}


def remove_leftovers(
    before: Collection[Path], directory: str = SHARED_MEMORY, age_secs: float = _AGE_SECS
) -> None:
    """Remove what the ranks of a job that has ended left, and what was not there `before`.

    Where there is something new it waits `age_secs`, in which killed ranks let go of it: a job that
    is started again and again dies young each time, and what it leaves would fill the memory.
    """
    if set(_segments(directory)) - set(before):
        time.sleep(age_secs)
    for path in mpich_leftovers(directory, age_secs):
        if path not in before:
            path.unlink(missing_ok=True)


def is_too_small(free_bytes: int, num_ranks: int) -> bool:
    """Whether so many ranks may find no room: they die of SIGBUS then, without a word."""
    return free_bytes < (_RANK_MIB << 20) * num_ranks


def explain_signal(number: int, directory: str = SHARED_MEMORY) -> str:
    """What to add to "signal 7" for a rank of MPI; empty for other signals."""
    if number != signal.SIGBUS:
        return ""
    with suppress(OSError):
        free = shutil.disk_usage(directory).free >> 20
        return f" (a bus error, as where {directory} is full: {free} MiB are free now)"
    return " (a bus error, as where shared memory is full)"


def _segments(directory: str) -> Iterator[Path]:
    return Path(directory).glob("mpich_shm_*")


def _size_of_ours(path: Path, age_secs: float) -> int | None:
    """None for a file of another user, for one that is too young, and for one that has gone."""
    with suppress(FileNotFoundError):
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mtime <= time.time() - age_secs:
            return found.st_size
    return None


def _names_in_use() -> Iterator[str]:
    """The names of the files that processes of this machine have mapped or opened."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            yield from _NAME.findall(maps.read_text(errors="replace"))
