"""The channel between trainers and parameter servers: requests and replies, with arrays in them.

A server calls `serve`, a trainer `connect`. What the messages mean is the business of those two.
"""

from ..errors import RefusedRequest
from .calling import connect
from .client import Asks, Connection, ParameterClient, Pending, ServerLost, Started
from .frames import Client, Message, RequestHandler
from .in_process import InProcessServer
from .push_plan import UpdateRule
from .requests import Aggregation, Body
from .server import ENDING_KEY, FAILURE_KEY, OUTCOME_KEY, STOPPING_KEY, ParameterServer
from .serving import Serving, serve
from .shards import ShardStorage
from .step_requests import Pull, Pulled, Push, Pushed, Rate
from .trainer_requests import (
    Done,
    Join,
    Post,
    Read,
    Status,
    TrainerStatus,
    Wait,
    WaitDone,
)
from .variable_requests import (
    Create,
    Held,
    Hold,
    OptimizerSpec,
    Position,
    PushPlan,
    ShardSpec,
    Snapped,
    Snapshot,
    Update,
    Write,
)

__all__ = [
    "ENDING_KEY",
    "FAILURE_KEY",
    "OUTCOME_KEY",
    "STOPPING_KEY",
    "Aggregation",
    "Asks",
    "Body",
    "Client",
    "Connection",
    "Create",
    "Done",
    "Held",
    "Hold",
    "InProcessServer",
    "Join",
    "Message",
    "OptimizerSpec",
    "ParameterClient",
    "ParameterServer",
    "Pending",
    "Position",
    "Post",
    "Pull",
    "Pulled",
    "Push",
    "PushPlan",
    "Pushed",
    "Rate",
    "Read",
    "RefusedRequest",
    "RequestHandler",
    "ServerLost",
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
    "Wait",
    "WaitDone",
    "Write",
    "connect",
    "serve",
]
