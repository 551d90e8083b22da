"""`tf.distribute.experimental`: older names of what has become stable, and hints."""

from ....inputs import AutoShardPolicy
from ....strategies import (
    CommunicationImplementation,
    CommunicationOptions,
    MultiWorkerMirroredStrategy,
    ValueContext,
)

CollectiveCommunication = CommunicationImplementation

__all__ = [
    "AutoShardPolicy",
    "CollectiveCommunication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ValueContext",
]
