"""`tf.flags` of TensorFlow 1: options of the command line, by argparse."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_string",
]


class _Flags:
    """The values of all flags, read from the command line when one is first asked for."""

    def __init__(self) -> None:
        self.__dict__["_parser"] = argparse.ArgumentParser(allow_abbrev=False)
        self.__dict__["_values"] = None
        self.__dict__["_switches"] = {}

    def define(self, name: str, default: Any, help: str | None, **options: Any) -> None:
        """One more flag."""
        self._parser.add_argument(f"--{name}", default=default, help=help, **options)

    def switch(self, name: str) -> None:
        """Let a flag be given without a value."""
        self.__dict__["_switches"] |= {
            f"--{name}": f"--{name}=true",
            f"--no{name}": f"--{name}=false",
        }

    def read(self, argv: list[str]) -> list[str]:
        """Take the flags out of a command line; what is left."""
        words = [self._switches.get(word, word) for word in argv[1:]]
        self.__dict__["_values"], rest = self._parser.parse_known_args(words)
        return [argv[0], *rest]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._values is None:
            self.read(sys.argv)
        return getattr(self._values, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._values is None:
            self.read(sys.argv)
        setattr(self._values, name, value)


FLAGS = _Flags()


def _define(kind: Any, name: str, default: Any, help: str | None = None, **options: Any) -> None:
    FLAGS.define(name, default, help, type=kind)


def _truth(text: str) -> bool:
    return text.lower() in ("1", "t", "true", "y", "yes")


DEFINE_string, DEFINE_integer = partial(_define, str), partial(_define, int)
DEFINE_float = partial(_define, float)


def DEFINE_bool(name: str, default: Any, help: str | None = None) -> None:  # noqa: N802
    """A flag that is there or not, or has a value: `--train`, `--notrain`, `--train=false`."""
    FLAGS.define(name, default, help, type=_truth)
    FLAGS.switch(name)


DEFINE_boolean = DEFINE_bool


def DEFINE_enum(name: str, default: Any, enum_values: Any, help: str | None = None) -> None:  # noqa: N802
    """A flag with one of these values."""
    FLAGS.define(name, default, help, choices=list(enum_values))
