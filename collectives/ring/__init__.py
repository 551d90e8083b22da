"""What the channel of parameter servers still needs until it goes over `session`."""

from .errors import RendezvousError

__all__ = ["RendezvousError"]
