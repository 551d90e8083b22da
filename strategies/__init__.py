"""Strategies: where variables live, where the step runs, and how values are reduced."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .central_storage import CentralStorageStrategy
from .context import ReplicaContext, ValueContext, get_replica_context
from .devices.arrays import add_up, as_array
from .devices.cross_device_ops import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReduceOp,
    ReductionToOneDevice,
)
from .devices.device import Device, list_devices, set_visible_devices, to_host
from .devices.download import Download
from .extended import StrategyExtended
from .function import Function, function
from .gradients.packs import Pack, pairs_of
from .gradients.reduction import GradientReducer
from .mirrored import MirroredStrategy
from .multi_worker import MultiWorkerMirroredStrategy, chief_first
from .one_device import DEFAULT_STRATEGY, DefaultStrategy, OneDeviceStrategy, on_first_device
from .options import RunOptions
from .replicas.frame import has_strategy, in_cross_replica_context, outside_scopes
from .replicas.interrupts import InterruptsPutOff, interrupts_pass_gate
from .replicas.values import DistributedValues, PerReplica, local_values, placed, select_replica
from .step import (
    OwnStep,
    StepResult,
    TrainOp,
    accumulate,
    apply_outside_replicas,
    apply_reduced,
    deferred,
    group,
    make_given,
    make_step,
    own_step,
)
from .strategy import Strategy, get_strategy
from .tpu import TPUStrategy
from .update import Update, Updater, once_outside_replicas
from .variables.aggregation import (
    VariableAggregation,
    VariableSpec,
    VariableSynchronization,
)
from .variables.arena import Arena
from .variables.casting import variables_are_cast, variables_cast_to
from .variables.cell import Cell, RemoteStorage, RuleStep, SavedValue, Storage
from .variables.initial import Initializer, call_initializer, drawn, fans, uniform_of_variance
from .variables.membership import Membership
from .variables.store import (
    COUNTER,
    VariableStore,
    current_store,
    get_or_create_global_step,
    get_variable,
    set_seed,
    variable_creator_scope,
)
from .variables.variable import Variable
from .workers.job import Job
from .workers.joining import CommunicationImplementation, CommunicationOptions

if TYPE_CHECKING:
    from .parameter_server import (
        FixedShardsPartitioner,
        MaxSizePartitioner,
        MinSizePartitioner,
        ParameterServerStrategy,
        Partitioner,
    )

__all__ = [
    "COUNTER",
    "DEFAULT_STRATEGY",
    "Arena",
    "Cell",
    "CentralStorageStrategy",
    "CommunicationImplementation",
    "CommunicationOptions",
    "CrossDeviceOps",
    "DefaultStrategy",
    "Device",
    "DistributedValues",
    "Download",
    "FixedShardsPartitioner",
    "Function",
    "GradientReducer",
    "HierarchicalCopyAllReduce",
    "Initializer",
    "InterruptsPutOff",
    "Job",
    "MaxSizePartitioner",
    "Membership",
    "MinSizePartitioner",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "OwnStep",
    "Pack",
    "ParameterServerStrategy",
    "Partitioner",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "RemoteStorage",
    "ReplicaContext",
    "RuleStep",
    "RunOptions",
    "SavedValue",
    "StepResult",
    "Storage",
    "Strategy",
    "StrategyExtended",
    "TPUStrategy",
    "TrainOp",
    "Update",
    "Updater",
    "ValueContext",
    "Variable",
    "VariableAggregation",
    "VariableSpec",
    "VariableStore",
    "VariableSynchronization",
    "accumulate",
    "add_up",
    "apply_outside_replicas",
    "apply_reduced",
    "as_array",
    "call_initializer",
    "chief_first",
    "current_store",
    "deferred",
    "drawn",
    "fans",
    "function",
    "get_or_create_global_step",
    "get_replica_context",
    "get_strategy",
    "get_variable",
    "group",
    "has_strategy",
    "in_cross_replica_context",
    "interrupts_pass_gate",
    "list_devices",
    "local_values",
    "make_given",
    "make_step",
    "on_first_device",
    "once_outside_replicas",
    "outside_scopes",
    "own_step",
    "pairs_of",
    "placed",
    "select_replica",
    "set_seed",
    "set_visible_devices",
    "to_host",
    "uniform_of_variance",
    "variable_creator_scope",
    "variables_are_cast",
    "variables_cast_to",
]

if not TYPE_CHECKING:  # what stands above for type checkers

    def __getattr__(name: str) -> Any:
        """Load what concerns parameter servers, and their protocol, with its first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(
            name, getattr(import_module(f"{__name__}.parameter_server"), name)
        )
