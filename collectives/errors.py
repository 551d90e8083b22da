"""What can go wrong when ranks talk to each other.

    CollectiveError
    ├── ClosedError             this communicator was closed by ourselves
    ├── PeerLostError           a peer died, left, or gave up
    ├── CollectiveTimeoutError  a peer is there, but did not come in time
    ├── MismatchError           a peer called something else
    └── RendezvousError         the processes of a job did not come together

Below them, a link knows its bytes but not whose work they belong to:

    LinkError
    ├── LinkTimeout
    └── LinkBroken

A parameter server that is well may refuse a request: `RefusedRequest`.

A communicator turns link errors into collective errors, adding who, what and how long.
"""

from __future__ import annotations


class CollectiveError(RuntimeError):
    """A collective operation did not come about. The communicator is unusable from here on."""


class ClosedError(CollectiveError):
    """The communicator was closed on this rank."""


class PeerLostError(CollectiveError):
    """A peer died, closed its end, or reported that it gives up."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A peer did not come before the deadline."""


class MismatchError(CollectiveError):
    """Ranks called different collectives, or the same one with different shapes, dtypes or ops."""


class RendezvousError(CollectiveError):
    """The processes of a job did not come together; the text names who and why."""


class RefusedRequest(RuntimeError):  # noqa: N818
    """A parameter server has refused a request; the text is its own, the connection is still good.

    Attributes:
        kind: The name of what the server has raised, such as "ValueError".
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class LinkError(Exception):
    """A link could not move bytes."""


class LinkTimeout(LinkError):  # noqa: N818  (the name says what happened)
    """Nothing moved before the deadline."""


class LinkBroken(LinkError):  # noqa: N818
    """The other end is gone, or this end was closed."""
