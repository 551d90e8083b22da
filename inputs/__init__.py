"""Datasets: what feeds the replicas, in an order that can be saved and resumed."""

from __future__ import annotations

from . import nest
from .array_files import npy_rows, npz_rows, read_idx
from .dataset import Dataset
from .digits import DatasetInfo, load
from .distribute import (
    DistributedDataset,
    per_replica_batches,
    per_replica_pipelines,
    split_global_batches,
)
from .example import FixedLenFeature, VarLenFeature, encode_example, parse_example
from .iterator import DatasetIterator
from .next_element import OptionalElement, stand_ins_for_elements
from .options import AutoShardPolicy, InputContext, InputOptions, InputReplicationMode, Options
from .plan import INFINITE, UNKNOWN
from .prefetching import Transfer
from .seeds import current_default_seed, default_seed, entropy_seed, seed_shuffles
from .splitting import require_one_order
from .text_files import csv_rows, json_lines, text_lines
from .tfrecord import TFRecordWriter, framed_record, tf_records
from .values import DatasetSpec, TensorSpec

__all__ = [
    "INFINITE",
    "UNKNOWN",
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
    "OptionalElement",
    "Options",
    "TFRecordWriter",
    "TensorSpec",
    "Transfer",
    "VarLenFeature",
    "csv_rows",
    "current_default_seed",
    "default_seed",
    "encode_example",
    "entropy_seed",
    "framed_record",
    "json_lines",
    "load",
    "nest",
    "npy_rows",
    "npz_rows",
    "parse_example",
    "per_replica_batches",
    "per_replica_pipelines",
    "read_idx",
    "require_one_order",
    "seed_shuffles",
    "split_global_batches",
    "stand_ins_for_elements",
    "text_lines",
    "tf_records",
]
