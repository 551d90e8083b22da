"""Memory that processes of one host share: without a name, and of a size that nobody changes.

It goes with the last process that has it open or mapped, however that ends. What lies in it relies
on stores becoming visible in order and on 8-byte stores being whole, hence on x86.

Where no socket can carry a descriptor another process finds the memory through /proc by the numbers
of process and descriptor, and believes that it is the right one when it finds in it what the owner
has drawn at random. Where that does not work (another host, or processes that are counted apart)
nothing is found.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import secrets
import struct
from contextlib import suppress
from typing import final

from .errors import LinkBroken

_SECRET_BYTES = 32
_OFFER = struct.Struct(f"<qq{_SECRET_BYTES}s")
OFFER_BYTES = _OFFER.size
"""Size of an offer."""

_NO_OFFER = bytes(OFFER_BYTES)


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


@final
class OfferedMemory:
    """New memory of this process, all zeros, that others can find.

    Args:
        name: For who looks into /proc.
        num_bytes: Its size.

    Attributes:
        memory: The memory, behind which there are a few bytes more; None where there is none.
        offer: What another process needs to find it, until this is closed.
    """

    def __init__(self, name: str, num_bytes: int) -> None:
        self.memory: mmap.mmap | None = None
        self.offer = _NO_OFFER
        self._fds: list[int] = []
        if not num_bytes or unavailable():
            return
        try:
            fd = new_sealed_memory(name, num_bytes + _SECRET_BYTES)
            self._fds.append(fd)
            memory = mmap.mmap(fd, num_bytes + _SECRET_BYTES)
        except OSError:
            self.close()
            return
        secret = secrets.token_bytes(_SECRET_BYTES)
        memory[num_bytes:] = secret
        self.memory, self.offer = memory, _OFFER.pack(os.getpid(), fd, secret)

    def close(self) -> None:
        """Let nobody find it any more; who has found it keeps it. Any thread may call it again."""
        with suppress(IndexError):
            os.close(self._fds.pop())


def found_memory(offer: bytes, num_bytes: int) -> mmap.mmap | None:
    """Return the memory of so many bytes that another process offers, or None if there is none."""
    if len(offer) != OFFER_BYTES or offer == _NO_OFFER or unavailable():
        return None
    pid, fd, secret = _OFFER.unpack(offer)
    try:
        # It may be another file, if the two count their processes apart: without waiting for it.
        found = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        memory = map_sealed_memory(found, num_bytes + _SECRET_BYTES)
        return memory if secrets.compare_digest(memory[num_bytes:], secret) else None
    except (OSError, LinkBroken):
        return None
    finally:
        os.close(found)
