"""Moving arrays between replicas, workers and parameter servers.

A `Communicator` comes from `in_process_communicators`, from `ring.connect_ring` or from
`mpi.mpi_communicator`; the last two modules are imported by name, because they need libraries that
may not be there. A new transport brings a `Link`, and perhaps a `Health`, to `linked_communicator`.
"""

from .arrays import Op, part_bounds
from .communicator import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    MIN_SILENCE_SECS,
    Communicator,
)
from .errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    MismatchError,
    PeerLostError,
    RefusedRequest,
)
from .executor import Handle
from .in_process import in_process_communicators
from .link import ALL_LINKS, Health, Link, LinkKind
from .linked import linked_communicator
from .members import Member

__all__ = [
    "ALL_LINKS",
    "DEFAULT_SILENCE_SECS",
    "DEFAULT_TIMEOUT_SECS",
    "MIN_SILENCE_SECS",
    "ClosedError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "Handle",
    "Health",
    "Link",
    "LinkKind",
    "Member",
    "MismatchError",
    "Op",
    "PeerLostError",
    "RefusedRequest",
    "in_process_communicators",
    "linked_communicator",
    "part_bounds",
]
