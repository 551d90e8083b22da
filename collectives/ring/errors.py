"""What can go wrong before there is a communicator."""

from ..errors import RendezvousError

__all__ = ["RendezvousError"]
