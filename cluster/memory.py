"""How this process gets memory from the system."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


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
