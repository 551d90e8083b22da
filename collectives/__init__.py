"""Moving arrays between processes: `connect` joins those of this job, `threads` those of a test.

A `Communicator` has the verbs. A new transport brings a `Link`, and perhaps a `Health`, to
`linked_communicator`, or a `Backend`.
"""

from .arrays import Op, part_bounds
from .communicator import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    MIN_SILENCE_SECS,
    Arrival,
    Communicator,
)
from .connect import connect
from .errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    MismatchError,
    PeerLostError,
    RefusedRequest,
)
from .executor import DONE, Handle
from .in_process import threads
from .leaving import choose_exit_code
from .link import ALL_LINKS, DEFAULT_LINKS, Health, Link, LinkKind
from .linked import linked_communicator
from .members import Member

__all__ = [
    "ALL_LINKS",
    "DEFAULT_LINKS",
    "DEFAULT_SILENCE_SECS",
    "DEFAULT_TIMEOUT_SECS",
    "DONE",
    "MIN_SILENCE_SECS",
    "Arrival",
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
    "choose_exit_code",
    "connect",
    "linked_communicator",
    "part_bounds",
    "threads",
]
