"""Checkpoints: names to arrays and a little JSON, on disk whole or not at all.

A checkpoint knows nothing of strategies, workers or models: who saves hands in a mapping, who
restores takes what it needs by name.

    Saver               saves in the background, as the one writer of a directory
    save, load          one checkpoint
    latest_checkpoint   the one to resume from
    lease               nobody deletes what is being read
    keep_…, save_…      policies: which to keep, when to save
    CheckpointError     everything that can be wrong with a checkpoint or its directory
"""

from __future__ import annotations

from ._arguments import Arrays
from ._directory import latest_checkpoint, list_checkpoints, prepare_directory
from ._errors import CheckpointError
from ._lease import lease
from ._metrics import read_metrics, record_metrics
from ._read import Checkpoint, load
from ._retention import (
    KeepPolicy,
    Saved,
    keep_all,
    keep_any,
    keep_best,
    keep_last,
    keep_one_every_n_hours,
    keep_steps,
)
from ._save import save
from ._saver import Saver
from ._schedule import (
    Moment,
    SavePolicy,
    save_at_steps,
    save_every_n_secs,
    save_every_n_steps,
    save_when_any,
)
from ._slices import TensorSlice
from ._write import write_shard

__all__ = [
    "Arrays",
    "Checkpoint",
    "CheckpointError",
    "KeepPolicy",
    "Moment",
    "SavePolicy",
    "Saved",
    "Saver",
    "TensorSlice",
    "keep_all",
    "keep_any",
    "keep_best",
    "keep_last",
    "keep_one_every_n_hours",
    "keep_steps",
    "latest_checkpoint",
    "lease",
    "list_checkpoints",
    "load",
    "prepare_directory",
    "read_metrics",
    "record_metrics",
    "save",
    "save_at_steps",
    "save_every_n_secs",
    "save_every_n_steps",
    "save_when_any",
    "write_shard",
]
