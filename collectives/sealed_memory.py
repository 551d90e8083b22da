"""Memory that processes of one host share: without a name, and of a size that nobody changes.

It goes with the last process that has it open or mapped, however that ends. What lies in it relies
on stores becoming visible in order and on 8-byte stores being whole, hence on x86.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform

from .errors import LinkBroken


def unavailable() -> str:
    """Why there is no such memory here; empty where there is."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"not supported on {platform.machine()} processors"
    if not (hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")):
        return f"not supported on {platform.system()}"
    return ""


def new_sealed_memory(name: str, num_bytes: int) -> int:
    """Return the descriptor of new memory, all zeros, for the caller to close.

    Args:
        name: For who looks into /proc.
        num_bytes: Its size.

    Raises:
        OSError: There is none to be had.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, num_bytes)
        # Memory that shrinks under a reader would kill it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(fd)
        raise
    return fd


def map_sealed_memory(fd: int, num_bytes: int) -> mmap.mmap:
    """Return the memory behind a descriptor that another process has opened.

    Raises:
        LinkBroken: It could shrink, or has another size.
        OSError: It is no such memory.
    """
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise LinkBroken("memory that could shrink")
    if os.fstat(fd).st_size != num_bytes:
        raise LinkBroken("memory of another size")
    return mmap.mmap(fd, num_bytes)
