"""Datasets: what feeds the replicas, in an order that can be saved and resumed."""

from __future__ import annotations

from . import nest
from ._iterator import DatasetIterator
from ._plan import INFINITE, UNKNOWN
from ._seeds import default_seed
from ._values import ArraySpec
from .context import AutoShardPolicy, InputContext, InputOptions, InputReplicationMode
from .dataset import Dataset
from .distribute import DistributedDataset, per_replica_batches, split_global_batches
from .idx import read_idx

__all__ = [
    "INFINITE",
    "UNKNOWN",
    "ArraySpec",
    "AutoShardPolicy",
    "Dataset",
    "DatasetIterator",
    "DistributedDataset",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "default_seed",
    "nest",
    "per_replica_batches",
    "read_idx",
    "split_global_batches",
]
