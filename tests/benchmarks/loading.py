"""Files of the folder `benchmarks`, which is no part of the installed package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    """The file of this name; like a script it finds the others beside it."""
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module(name)
    finally:
        sys.path[:] = before
