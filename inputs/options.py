"""Options of a dataset: how it may be computed, and how it is divided among workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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


NO_OPTIONS = Options()
