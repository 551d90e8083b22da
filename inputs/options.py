"""Options of a dataset: how it may be computed, and how it is divided among workers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import final

from ._checks import checked_bool, checked_choice


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
            told itself; False hands out whatever is ready first.
        auto_shard_policy: how a strategy divides the dataset among workers.
    """

    deterministic: bool = True
    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO

    def __post_init__(self) -> None:
        checked_bool("deterministic", self.deterministic)
        checked_choice("auto_shard_policy", self.auto_shard_policy, AutoShardPolicy)


DEFAULT_OPTIONS = Options()
