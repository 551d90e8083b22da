"""Checkpoints: names to arrays and a little JSON, on disk whole or not at all.

A checkpoint knows nothing of strategies, workers or models: who saves hands in a mapping, who
restores takes what it needs by name.

    Saver               saves in the background, as the one writer of a directory
    Checkpoint          the parts of a training loop of one's own
    save, load          one checkpoint
    latest_checkpoint   the one to resume from
    best_checkpoint     the best by a metric
    lease               nobody deletes what is being read
    save_export         one that is kept apart, with other files in it
    save_at             the same, called as its owner wishes: a saved model
    find_tensor_bundle  a checkpoint of TensorFlow's, to be read
    keep_…, save_…      policies: which to keep, when to save
    CheckpointError     everything that can be wrong with a checkpoint or its directory
"""

from __future__ import annotations

from .access import lease
from .background import BeginDownload, PendingCopies
from .directory import (
    best_checkpoint,
    fingerprint,
    latest_checkpoint,
    lease_latest,
    list_checkpoints,
    read_latest,
)
from .errors import CheckpointError
from .exports import (
    delete_old_exports,
    delete_saved,
    has_saved,
    list_exports,
    newest_saved,
    save_at,
    save_export,
)
from .other_files import read_file
from .parts import Checkpoint
from .policies import (
    KeepPolicy,
    Saved,
    keep_all,
    keep_any,
    keep_best,
    keep_last,
    keep_one_every_n_hours,
    keep_steps,
)
from .reading import CheckpointReader, load, read_slices
from .saver import Saver, ShardSaver, collect_reports
from .slices import Arrays, TensorSlice, share_of
from .small_files import (
    has_text,
    read_json,
    read_metrics,
    read_text,
    record_metrics,
    remove_text,
    write_text,
)
from .tensor_bundle import TensorBundle, find_tensor_bundle
from .writing import OtherWriters, plain_json, save, write_shard

__all__ = [
    "Arrays",
    "BeginDownload",
    "Checkpoint",
    "CheckpointError",
    "CheckpointReader",
    "KeepPolicy",
    "OtherWriters",
    "PendingCopies",
    "Saved",
    "Saver",
    "ShardSaver",
    "TensorBundle",
    "TensorSlice",
    "best_checkpoint",
    "collect_reports",
    "delete_old_exports",
    "delete_saved",
    "find_tensor_bundle",
    "fingerprint",
    "has_saved",
    "has_text",
    "keep_all",
    "keep_any",
    "keep_best",
    "keep_last",
    "keep_one_every_n_hours",
    "keep_steps",
    "latest_checkpoint",
    "lease",
    "lease_latest",
    "list_checkpoints",
    "list_exports",
    "load",
    "newest_saved",
    "plain_json",
    "read_file",
    "read_json",
    "read_latest",
    "read_metrics",
    "read_slices",
    "read_text",
    "record_metrics",
    "remove_text",
    "save",
    "save_at",
    "save_export",
    "share_of",
    "write_shard",
    "write_text",
]
