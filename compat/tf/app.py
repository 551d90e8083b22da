"""`tf.app.run()` and `tf.app.flags` of TensorFlow 1."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import flags

__all__ = ["flags", "run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Read the flags of the command line, call `main` with the rest, and end the program."""
    arguments = list(sys.argv) if argv is None else argv
    rest = flags.FLAGS.read(arguments)
    called = main or sys.modules["__main__"].main
    sys.exit(called(rest))
