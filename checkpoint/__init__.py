"""Checkpoints: names to arrays and a little JSON, on disk whole or not at all.

A checkpoint knows nothing of strategies, workers or models: who saves hands in a mapping, who
restores takes what it needs by name.

    CheckpointError     everything that can be wrong with a checkpoint or its directory
"""

from __future__ import annotations

from ._directory import latest_checkpoint, list_checkpoints, prepare_directory
from ._errors import CheckpointError
from ._read import Checkpoint, load
from ._write import save

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "latest_checkpoint",
    "list_checkpoints",
    "load",
    "prepare_directory",
    "save",
]
