"""The channel between trainers and parameter servers: requests and replies, with arrays in them.

A server calls `serve`, a trainer `connect`. What the messages mean is the business of those two.
"""

from .client import Asks, ParameterClient, Started
from .connecting import connect
from .connection import Connection, Pending
from .coordination import ENDING_KEY
from .errors import RefusedRequest, ServerLost
from .in_process import InProcessServer
from .messages import Client, Handler, Message
from .rules import UpdateRule
from .schema import MAX_WAIT_SECS, Aggregation
from .server import FAILURE_KEY, OUTCOME_KEY, ParameterServer
from .serving import Serving, serve
from .shards import ShardSpec
from .table import ShardStorage
from .timing import DEFAULT_START_TIMEOUT_SECS, DEFAULT_TIMEOUT_SECS
from .trainer_requests import (
    Dismissed,
    Done,
    Found,
    Join,
    Joined,
    Post,
    Posted,
    Read,
    Remaining,
    ServerStatus,
    Status,
    TrainerStatus,
    Wait,
    WaitDone,
    Waited,
)
from .variable_requests import (
    Create,
    Created,
    Held,
    Hold,
    OptimizerSpec,
    Position,
    Pull,
    Pulled,
    Push,
    Pushed,
    Snapped,
    Snapshot,
    Update,
    Write,
    Written,
)
from .verbs import Reply, Request, Verb

__all__ = [
    "DEFAULT_START_TIMEOUT_SECS",
    "DEFAULT_TIMEOUT_SECS",
    "ENDING_KEY",
    "FAILURE_KEY",
    "MAX_WAIT_SECS",
    "OUTCOME_KEY",
    "Aggregation",
    "Asks",
    "Client",
    "Connection",
    "Create",
    "Created",
    "Dismissed",
    "Done",
    "Found",
    "Handler",
    "Held",
    "Hold",
    "InProcessServer",
    "Join",
    "Joined",
    "Message",
    "OptimizerSpec",
    "ParameterClient",
    "ParameterServer",
    "Pending",
    "Position",
    "Post",
    "Posted",
    "Pull",
    "Pulled",
    "Push",
    "Pushed",
    "Read",
    "RefusedRequest",
    "Remaining",
    "Reply",
    "Request",
    "ServerLost",
    "ServerStatus",
    "Serving",
    "ShardSpec",
    "ShardStorage",
    "Snapped",
    "Snapshot",
    "Started",
    "Status",
    "TrainerStatus",
    "Update",
    "UpdateRule",
    "Verb",
    "Wait",
    "WaitDone",
    "Waited",
    "Write",
    "Written",
    "connect",
    "serve",
]
