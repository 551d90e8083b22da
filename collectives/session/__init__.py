"""Sessions of processes that find each other by their addresses, and the communicator over them."""

from .addresses import Address, check_is_private, local_ip, parse_address
from .endpoint import Endpoint
from .frames import Frame, FrameError
from .grpc_stream import StreamError
from .handshake import Identity, RefusedError
from .links import GrpcTransport, Transport, register_transport
from .mpi_link import MPI_LINKS
from .ring import DEFAULT_START_TIMEOUT_SECS, connect_ring
from .session import Session, SessionHandler
from .shared_memory import SharedMemoryTransport
from .sockets import TcpTransport
from .visitors import TurnedAway

for _transport in (SharedMemoryTransport(), TcpTransport(), GrpcTransport(), MPI_LINKS):
    register_transport(_transport)

__all__ = [
    "DEFAULT_START_TIMEOUT_SECS",
    "MPI_LINKS",
    "Address",
    "Endpoint",
    "Frame",
    "FrameError",
    "Identity",
    "RefusedError",
    "Session",
    "SessionHandler",
    "StreamError",
    "Transport",
    "TurnedAway",
    "check_is_private",
    "connect_ring",
    "local_ip",
    "parse_address",
    "register_transport",
]
