"""Datasets: what feeds the replicas, in an order that can be saved and resumed."""

from __future__ import annotations

from . import nest
from ._iterator import DatasetIterator
from ._plan import INFINITE, UNKNOWN
from ._seeds import default_seed, seed_shuffles
from ._values import ArraySpec, DatasetSpec
from .array_files import npy_rows, npz_rows
from .context import InputContext, InputOptions, InputReplicationMode
from .csv_files import csv_rows
from .dataset import Dataset
from .digits import DatasetInfo, load
from .distribute import per_replica_batches, per_replica_pipelines, split_global_batches
from .distributed_dataset import DistributedDataset
from .example import FixedLenFeature, VarLenFeature, encode_example, parse_example
from .idx import read_idx
from .options import AutoShardPolicy, Options
from .text_files import json_lines, text_lines
from .tfrecord import TFRecordWriter, tf_records

__all__ = [
    "INFINITE",
    "UNKNOWN",
    "ArraySpec",
    "AutoShardPolicy",
    "Dataset",
    "DatasetInfo",
    "DatasetIterator",
    "DatasetSpec",
    "DistributedDataset",
    "FixedLenFeature",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "Options",
    "TFRecordWriter",
    "VarLenFeature",
    "csv_rows",
    "default_seed",
    "encode_example",
    "json_lines",
    "load",
    "nest",
    "npy_rows",
    "npz_rows",
    "parse_example",
    "per_replica_batches",
    "per_replica_pipelines",
    "read_idx",
    "seed_shuffles",
    "split_global_batches",
    "text_lines",
    "tf_records",
]
