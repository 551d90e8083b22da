"""Moving arrays between replicas, workers and parameter servers."""

from .communicator import DEFAULT_TIMEOUT_SECS, Communicator, Handle, Op, part_bounds
from .errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    MismatchError,
    PeerLostError,
)
from .in_process import in_process_communicators
from .members import Member

__all__ = [
    "DEFAULT_TIMEOUT_SECS",
    "ClosedError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "Handle",
    "Member",
    "MismatchError",
    "Op",
    "PeerLostError",
    "in_process_communicators",
    "part_bounds",
]
