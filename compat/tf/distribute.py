"""`tf.distribute`: strategies, and what goes with them, under stable and experimental names."""

from ..names import NameTable, register, serve
from .advice import advice

_S = "strategies."
_NAMES = {
    **{
        name: _S + name
        for name in (
            "CrossDeviceOps",
            "DistributedValues",
            "HierarchicalCopyAllReduce",
            "MirroredStrategy",
            "MultiWorkerMirroredStrategy",
            "NcclAllReduce",
            "OneDeviceStrategy",
            "ParameterServerStrategy",
            "ReduceOp",
            "ReductionToOneDevice",
            "ReplicaContext",
            "RunOptions",
            "Strategy",
            "StrategyExtended",
            "TPUStrategy",
            "CentralStorageStrategy",
            "get_replica_context",
            "get_strategy",
            "has_strategy",
            "in_cross_replica_context",
        )
    },
    "DistributedDataset": "inputs.DistributedDataset",
    "DistributedIterator": "inputs.DatasetIterator",
    "InputContext": "inputs.InputContext",
    "InputOptions": "inputs.InputOptions",
    "InputReplicationMode": "inputs.InputReplicationMode",
}
_EXPERIMENTAL = {
    "AutoShardPolicy": "inputs.AutoShardPolicy",
    "CentralStorageStrategy": _S + "CentralStorageStrategy",
    "CollectiveCommunication": _S + "CommunicationImplementation",
    "CollectiveHints": _S + "CommunicationOptions",
    "CommunicationImplementation": _S + "CommunicationImplementation",
    "CommunicationOptions": _S + "CommunicationOptions",
    "MultiWorkerMirroredStrategy": _S + "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy": _S + "ParameterServerStrategy",
    "TPUStrategy": _S + "TPUStrategy",
    "ValueContext": _S + "ValueContext",
}
_RESOLVERS = {
    name: f"cluster.{name}"
    for name in (
        "ClusterResolver",
        "SimpleClusterResolver",
        "SlurmClusterResolver",
        "TFConfigClusterResolver",
        "TPUClusterResolver",
    )
}
_PARTITIONERS = {
    name: _S + name
    for name in (
        "FixedShardsPartitioner",
        "MaxSizePartitioner",
        "MinSizePartitioner",
        "Partitioner",
    )
}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))
register(
    __name__,
    {
        "experimental": ((), _EXPERIMENTAL),
        "experimental.partitioners": ((), _PARTITIONERS),
        "cluster_resolver": ((), _RESOLVERS),
    },
    advice,
)
