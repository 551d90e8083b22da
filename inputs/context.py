"""What an input function is told, and the options of distributing a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, final

from ._checks import checked_count, checked_shard


class AutoShardPolicy(Enum):
    """How a dataset is divided among workers."""

    OFF = "OFF"
    AUTO = "AUTO"
    FILE = "FILE"
    DATA = "DATA"


class InputReplicationMode(Enum):
    """Whether an input function is called once for each worker or for each replica."""

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


@final
@dataclass(frozen=True)
class InputContext:
    """What an input function needs to know to read its part of the data.

    Args:
        num_input_pipelines: the number of workers that read data.
        input_pipeline_id: the number of this worker's pipeline, from 0.
        num_replicas_in_sync: the replicas of all workers together.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        checked_shard(
            self.num_input_pipelines,
            self.input_pipeline_id,
            "num_input_pipelines",
            "input_pipeline_id",
        )
        checked_count("num_replicas_in_sync", self.num_replicas_in_sync, 1)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The global batch size divided by the number of replicas.

        Raises:
            ValueError: it does not divide evenly.
        """
        size = checked_count("global_batch_size", global_batch_size, 1)
        share, rest = divmod(size, self.num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"global_batch_size must be a multiple of the {self.num_replicas_in_sync} replicas "
                f"in sync, got {size}. Use {size - rest or self.num_replicas_in_sync} or "
                f"{size - rest + self.num_replicas_in_sync}."
            )
        return share


@final
@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options of the strategies' `distribute` verbs, with tf.distribute's names.

    Args:
        experimental_fetch_to_device: whether batches are copied to the replicas' devices ahead.
        experimental_replication_mode: how often an input function is called.
        experimental_place_dataset_on_device: whether the dataset itself lives on the device.
        experimental_per_replica_buffer_size: batches prefetched for each replica, from 0.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        _require_bool("experimental_fetch_to_device", self.experimental_fetch_to_device)
        _require_bool(
            "experimental_place_dataset_on_device", self.experimental_place_dataset_on_device
        )
        checked_count(
            "experimental_per_replica_buffer_size", self.experimental_per_replica_buffer_size, 0
        )
        mode = self.experimental_replication_mode
        if not isinstance(mode, InputReplicationMode):
            choices = " or ".join(str(choice) for choice in InputReplicationMode)
            raise TypeError(f"experimental_replication_mode must be {choices}, got {mode!r}.")


def _require_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
