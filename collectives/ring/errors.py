"""What can go wrong before there is a communicator."""

from __future__ import annotations

from ..errors import CollectiveError


class RendezvousError(CollectiveError):
    """The members of a job did not come together; the text names who and why."""
