"""What can be chosen of a dataset and of its division, and what an input function is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import final

from .checks import checked_bool, checked_choice, checked_count, checked_shard
from .seeds import checked_seed, generator

_WORKER_SEED = 3


class AutoShardPolicy(Enum):
    """How a dataset is divided among workers.

    OFF: not at all; each worker takes all elements. FILE: each worker reads some of the files.
    DATA: each worker reads all data and keeps its part. AUTO: FILE where the data come from at
    least as many files as there are workers, otherwise DATA.
    """

    OFF = "OFF"
    AUTO = "AUTO"
    FILE = "FILE"
    DATA = "DATA"


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """What `Dataset.with_options` takes; it holds for the whole chain.

    Args:
        deterministic: whether `map` with several calls at a time keeps the order where it was not
            told itself, as it does if nobody says otherwise. False allows it to hand out whatever
            is ready first.
        auto_shard_policy: how a strategy divides the dataset among workers; AUTO if nobody says
            otherwise.
    """

    deterministic: bool | None = None
    auto_shard_policy: AutoShardPolicy | None = None

    def __post_init__(self) -> None:
        if self.deterministic is not None:
            checked_bool("deterministic", self.deterministic)
        if self.auto_shard_policy is not None:
            checked_choice("auto_shard_policy", self.auto_shard_policy, AutoShardPolicy)

    def updated(self, options: Options) -> Options:
        """These, where the others leave something open."""
        if not isinstance(options, Options):
            raise TypeError(
                f"options must be an Options, got {type(options).__name__}. "
                "Use paceline.inputs.Options(deterministic=..., auto_shard_policy=...)."
            )
        return Options(
            **{
                f.name: getattr(self, f.name) if value is None else value
                for f in fields(self)
                for value in [getattr(options, f.name)]
            }
        )

    @staticmethod
    def agreed(several: Sequence[Options]) -> Options:
        """What several datasets that become one ask for together.

        Raises:
            ValueError: they contradict each other.
        """
        result = Options()
        for options in several:
            if result.updated(options) != options.updated(result):
                raise ValueError(
                    f"datasets that become one must not contradict each other, got {result} and "
                    f"{options}. Give them the same options."
                )
            result = result.updated(options)
        return result


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

    def worker_seed(self, seed: int) -> int:
        """A seed for this worker's `shuffle`, made of one that is the same on all workers.

        Workers that read all the data in different orders, instead of sharding, see different
        examples in a step. The seed is part of the iterator's state.
        """
        key = (_WORKER_SEED, checked_seed(seed), self.input_pipeline_id)
        return int(generator(key).integers(0, 1 << 63))


@final
@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options of the strategies' `distribute` verbs, with tf.distribute's names.

    Args:
        experimental_fetch_to_device: without effect, which is warned about, as is that of
            `experimental_place_dataset_on_device`: batches are put where a replica computes.
        experimental_replication_mode: how often an input function is called.
        experimental_place_dataset_on_device: see above.
        experimental_per_replica_buffer_size: batches prefetched for each replica, from 0.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        for name in ("experimental_fetch_to_device", "experimental_place_dataset_on_device"):
            checked_bool(name, getattr(self, name))
        name, mode = "experimental_replication_mode", self.experimental_replication_mode
        checked_choice(name, mode, InputReplicationMode)
        name = "experimental_per_replica_buffer_size"
        checked_count(name, self.experimental_per_replica_buffer_size, 0)
