"""`tf.distribute.experimental`: older names of what has become stable, and hints."""

from ....inputs import AutoShardPolicy
from ....strategies import (
    CentralStorageStrategy,
    CommunicationImplementation,
    CommunicationOptions,
    MultiWorkerMirroredStrategy,
    ParameterServerStrategy,
    ValueContext,
)
from . import partitioners

CollectiveCommunication = CommunicationImplementation

__all__ = [
    "AutoShardPolicy",
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "ValueContext",
    "partitioners",
]
