"""`tf.logging` of TensorFlow 1: this package's logger."""

from __future__ import annotations

import logging
from typing import Any

from ..names import NameTable, serve
from .advice import advice

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
_logger = logging.getLogger("paceline")
DEBUG, INFO, WARN, ERROR, FATAL = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)
debug, info, warn, warning, error, fatal = (
    _logger.debug,
    _logger.info,
    _logger.warning,
    _logger.warning,
    _logger.error,
    _logger.critical,
)


def set_verbosity(v: Any) -> None:
    """The least level that is logged."""
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The least level that is logged."""
    return _logger.getEffectiveLevel()


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """A line of the log."""
    _logger.log(level, msg, *args)
