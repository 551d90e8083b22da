"""Paceline: the Estimator way of distributed training, on NumPy and CuPy arrays.

What a training script needs is here; the rest is in the packages `estimator`, `nn`, `inputs`,
`checkpoint`, `strategies`, `cluster`, `collectives`, `autodiff`, `summary`. Each of them is
imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        autodiff,
        checkpoint,
        cluster,
        collectives,
        estimator,
        inputs,
        nn,
        strategies,
        summary,
    )
    from .autodiff import GradientTape, Tensor, custom_gradient, no_grad, stop_gradient
    from .estimator import (
        Estimator,
        EstimatorSpec,
        EvalSpec,
        ModeKeys,
        RunConfig,
        TrainSpec,
        feature_column,
        train_and_evaluate,
    )
    from .inputs import Dataset, InputContext, InputOptions, TensorSpec
    from .strategies import (
        CentralStorageStrategy,
        CommunicationImplementation,
        CommunicationOptions,
        CrossDeviceOps,
        HierarchicalCopyAllReduce,
        MirroredStrategy,
        MultiWorkerMirroredStrategy,
        NcclAllReduce,
        OneDeviceStrategy,
        ParameterServerStrategy,
        PerReplica,
        ReduceOp,
        ReductionToOneDevice,
        RunOptions,
        Strategy,
        TPUStrategy,
        Variable,
        VariableAggregation,
        VariableSynchronization,
        chief_first,
        function,
        get_or_create_global_step,
        get_replica_context,
        get_strategy,
        get_variable,
        has_strategy,
        in_cross_replica_context,
        set_seed,
    )

__version__ = "0.1.0"

__all__ = [
    "CentralStorageStrategy",
    "CommunicationImplementation",
    "CommunicationOptions",
    "CrossDeviceOps",
    "Dataset",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "GradientTape",
    "HierarchicalCopyAllReduce",
    "InputContext",
    "InputOptions",
    "MirroredStrategy",
    "ModeKeys",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "RunConfig",
    "RunOptions",
    "Strategy",
    "TPUStrategy",
    "Tensor",
    "TensorSpec",
    "TrainSpec",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "autodiff",
    "checkpoint",
    "chief_first",
    "cluster",
    "collectives",
    "custom_gradient",
    "estimator",
    "feature_column",
    "function",
    "get_or_create_global_step",
    "get_replica_context",
    "get_strategy",
    "get_variable",
    "has_strategy",
    "in_cross_replica_context",
    "inputs",
    "nn",
    "no_grad",
    "set_seed",
    "stop_gradient",
    "strategies",
    "summary",
    "train_and_evaluate",
]

_PACKAGES = (
    "autodiff",
    "inputs",
    "strategies",
    "estimator",
    "checkpoint",
    "cluster",
    "collectives",
    "nn",
    "observe",
    "summary",
)
"""In the order in which names are looked for: who asks for a dataset need not wait for the rest."""

if not TYPE_CHECKING:  # type checkers see the imports above

    def __getattr__(name: str) -> Any:
        """Import what is asked for for the first time; after that Python finds it by itself."""
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
        if name in __all__:
            for package in _PACKAGES:
                face = import_module(f".{package}", __name__)
                if name in face.__all__:
                    return globals().setdefault(name, getattr(face, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
