"""How long the ends of a connection wait, unless told otherwise.

Two clocks, as among workers: an end that gives no sign of life for `silence_secs` is lost, one that
does may be slow for `timeout_secs`.
"""

from __future__ import annotations

from ..communicator import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS, MIN_SILENCE_SECS
from ..heartbeats import HEARTBEAT_SECS

__all__ = [
    "DEFAULT_SILENCE_SECS",
    "DEFAULT_SPIN_SECS",
    "DEFAULT_START_TIMEOUT_SECS",
    "DEFAULT_TIMEOUT_SECS",
    "HEARTBEAT_SECS",
    "MIN_SILENCE_SECS",
]

DEFAULT_START_TIMEOUT_SECS = 600.0
DEFAULT_SPIN_SECS = 0.0
