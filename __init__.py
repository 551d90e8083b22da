"""Paceline: the Estimator way of distributed training, on NumPy and CuPy arrays.

What a training script needs is here; the rest is in the packages `estimator`, `nn`, `inputs`,
`checkpoint`, `strategies`, `autodiff`.
"""

from . import autodiff, checkpoint, estimator, inputs, nn, strategies
from .autodiff import GradientTape, Tensor, no_grad, stop_gradient
from .estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    ModeKeys,
    RunConfig,
    TrainSpec,
    train_and_evaluate,
)
from .inputs import Dataset, InputContext, InputOptions
from .strategies import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    MirroredStrategy,
    NcclAllReduce,
    OneDeviceStrategy,
    PerReplica,
    ReduceOp,
    ReductionToOneDevice,
    RunOptions,
    Strategy,
    Variable,
    VariableAggregation,
    VariableSynchronization,
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
    "NcclAllReduce",
    "OneDeviceStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "RunConfig",
    "RunOptions",
    "Strategy",
    "Tensor",
    "TrainSpec",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "autodiff",
    "checkpoint",
    "estimator",
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
    "train_and_evaluate",
]
