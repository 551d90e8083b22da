"""Ranks that are processes anywhere on a network, found by their addresses."""

from .connect import ALL_LINKS, DEFAULT_START_TIMEOUT_SECS, connect_ring
from .errors import RendezvousError

__all__ = ["ALL_LINKS", "DEFAULT_START_TIMEOUT_SECS", "RendezvousError", "connect_ring"]
