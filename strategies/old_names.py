"""What a strategy's verbs were called in older versions of TensorFlow, for scripts that say so."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..cluster import ClusterError, SimpleClusterResolver
from ..inputs import (
    Dataset,
    DatasetIterator,
    DistributedDataset,
    InputContext,
    InputOptions,
    InputReplicationMode,
)
from ..observe import log_once


class OldNames(ABC):
    """Each but `configure` says once in the log by what it was replaced, and does that."""

    @abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        options: Any = None,
    ) -> Any: ...

    @abstractmethod
    def experimental_distribute_dataset(
        self, dataset: Dataset, options: InputOptions | None = None
    ) -> DistributedDataset: ...

    @abstractmethod
    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset], options: InputOptions | None = None
    ) -> DistributedDataset: ...

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: Any = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Make this process a task of a cluster; `MultiWorkerMirroredStrategy` has more of it.

        Raises:
            ClusterError: The cluster has other tasks, which this strategy does not know.
        """
        if len(SimpleClusterResolver(cluster_spec or {}).cluster_spec().tasks()) > 1:
            raise ClusterError(
                f"{self!r} trains in one process and cannot be configured for a cluster; take "
                f"MultiWorkerMirroredStrategy"
            )

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """`run`, as it was called until TensorFlow 2.2."""
        _say("experimental_run_v2", "run")
        return self.run(fn, args, kwargs, options)

    def experimental_run(
        self, fn: Callable[..., Any], input_iterator: DatasetIterator | None = None
    ) -> Any:
        """`run` with the next element of an iterator, if there is one (TensorFlow 1.x)."""
        _say("experimental_run(fn, iterator)", "run(fn, (next(iterator),))")
        return self.run(fn, () if input_iterator is None else (next(input_iterator),))

    def make_dataset_iterator(self, dataset: Dataset) -> DatasetIterator:
        """An iterator over a dataset of global batches (TensorFlow 1.x)."""
        _say("make_dataset_iterator", "iter(experimental_distribute_dataset(dataset))")
        return iter(self.experimental_distribute_dataset(dataset))

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Dataset],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> DatasetIterator:
        """An iterator over what `input_fn` makes, in batches of a replica (TensorFlow 1.x)."""
        _say("make_input_fn_iterator", "iter(distribute_datasets_from_function(input_fn))")
        options = InputOptions(experimental_replication_mode=replication_mode)
        return iter(self.distribute_datasets_from_function(input_fn, options))

    def experimental_distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset], options: InputOptions | None = None
    ) -> DistributedDataset:
        """`distribute_datasets_from_function`, as it was called until TensorFlow 2.3."""
        new = "distribute_datasets_from_function"
        _say(f"experimental_{new}", new)
        return self.distribute_datasets_from_function(dataset_fn, options)


def _say(old: str, new: str) -> None:
    log_once(logging.WARNING, "Strategy.%s is an old name: write %s.", old, new)
