"""How much memory there is to take."""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """The memory that this process may still take, as far as the system tells; else None."""
    known = [size for size in (_of_host(), _of_container()) if size is not None]
    return min(known, default=None)


def _of_host() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_container() -> int | None:
    """What control group version 2 leaves; its file caches are given back when needed."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit
        used = int((_CGROUP / "memory.current").read_text())
        caches = [
            int(line.split()[1])
            for line in (_CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        ]
        return max(0, limit - used + sum(caches))
    except (OSError, ValueError, IndexError):
        return None
