"""How long the ends of a connection wait, unless told otherwise."""

from __future__ import annotations

DEFAULT_TIMEOUT_SECS = 30.0
DEFAULT_START_TIMEOUT_SECS = 600.0
HEARTBEAT_SECS = 1.0
MIN_SILENCE_SECS = 2.5 * HEARTBEAT_SECS
DEFAULT_SPIN_SECS = 0.0
