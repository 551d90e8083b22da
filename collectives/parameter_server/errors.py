"""What can go wrong between a trainer and a parameter server.

CollectiveError
└── PeerLostError
    └── ServerLost          the server died, ended, is silent, or closed this connection
RefusedRequest              the server is well and says no; the connection lives on
"""

from __future__ import annotations

from ..errors import PeerLostError


class ServerLost(PeerLostError):  # noqa: N818  (the name says what happened)
    """The server is gone, or has closed this connection, which is of no use any more."""


class RefusedRequest(RuntimeError):  # noqa: N818
    """The server has refused a request; the text is its own.

    Attributes:
        kind: The name of what the server has raised, such as "ValueError".
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind
