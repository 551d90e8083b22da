"""`tf.contrib` of TensorFlow 1: where strategies, and what goes with them, were at first."""

from ...names import NameTable, register, serve
from ..advice import advice

_STRATEGIES = {
    "AllReduceCrossTowerOps": "strategies.NcclAllReduce",
    "CentralStorageStrategy": "strategies.CentralStorageStrategy",
    "CollectiveAllReduceStrategy": "strategies.MultiWorkerMirroredStrategy",
    "DistributeConfig": "estimator.DistributeConfig",
    "MirroredStrategy": "strategies.MirroredStrategy",
    "OneDeviceStrategy": "strategies.OneDeviceStrategy",
    "ParameterServerStrategy": "strategies.ParameterServerStrategy",
    "ReductionToOneDeviceCrossTowerOps": "strategies.ReductionToOneDevice",
    "TPUStrategy": "strategies.TPUStrategy",
}
_DATA = {
    name: f"compat.tf.data.{name}"
    for name in ("AUTOTUNE", "map_and_batch", "shuffle_and_repeat", "unbatch")
}
_ESTIMATOR = {
    name: f"estimator.{name}"
    for name in (
        "InMemoryEvaluatorHook",
        "add_metrics",
        "stop_if_higher_hook",
        "stop_if_lower_hook",
        "stop_if_no_decrease_hook",
        "stop_if_no_increase_hook",
    )
}

_INPUTS = {name: f"compat.tf.estimator.{name}" for name in ("numpy_input_fn", "pandas_input_fn")}
_MODULES = {
    "keras": "compat.tf.keras.",
    "layers": "compat.tf.contrib.layers.",
    "training": "compat.tf.contrib.training.",
}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_MODULES, advice=advice))
register(
    __name__,
    {
        "data": ((), _DATA),
        "distribute": ((), _STRATEGIES),
        "estimator": ((), _ESTIMATOR),
        "factorization": ((), {"KMeansClustering": "estimator.KMeansClustering"}),
        "learn": ((), {"RunConfig": "estimator.RunConfig"}),
        "learn.io": ((), _INPUTS),
    },
    advice,
)
