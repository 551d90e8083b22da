"""What a figure depends on besides the code: processor, BLAS and malloc."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np


def describe(malloc_tuned: bool) -> str:
    """A few lines for the head of a benchmark's output."""
    versions = f"python {platform.python_version()}, numpy {np.__version__}"
    lines = [f"{versions}, {_processor()}, {os.cpu_count()} core(s)"]
    for info in _blas():
        lines.append(
            f"BLAS {info['internal_api']} {info.get('version')}, core {info.get('architecture')}, "
            f"{info['num_threads']} thread(s)"
        )
    lines.append(f"malloc thresholds {'raised' if malloc_tuned else 'as the system sets them'}")
    return "\n".join(lines)


def _blas() -> list[dict[str, str]]:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "?")
        return [{"internal_api": "of NumPy", "version": "?", "num_threads": threads}]
    return [info for info in threadpool_info() if info["user_api"] == "blas"]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()
