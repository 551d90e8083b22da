"""From what the input gives to what each replica computes with in a step."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..inputs import DatasetIterator, nest
from ..observe import log_once
from ..strategies import ReplicaContext, Strategy, placed, select_replica

_NOTHING_SPECIAL = nullcontext()


_NAMES = {2: ("features", "labels"), 3: ("x", "y", "sample_weight")}


def count_examples(batch: Any) -> int:
    """The number of examples in a batch of (features, labels).

    What has a single number in it is no batch but one example, of which a warning tells.

    Raises:
        ValueError: The arrays in it differ in their first dimension.
    """
    try:
        return nest.batch_size(batch)
    except ValueError:
        return _count_by_name(batch)


def _count_by_name(batch: Any) -> int:
    """The same for what cannot be counted at once: an error has the names that users know."""
    length = len(batch) if isinstance(batch, tuple) else 1
    try:
        return nest.batch_size(batch, names=_NAMES.get(length, ("features",)))
    except ValueError as error:
        if all(np.ndim(leaf) for leaf in nest.flatten(batch) if leaf is not None):
            raise
        log_once(logging.WARNING, "Each element of the input counts as one example: %s", error)
        return 1


def require_data(first_batch: Any, strategy: Strategy, purpose: str = "") -> None:
    """Refuse to begin where a worker has no example at all: it could not even build the model.

    Args:
        first_batch: This worker's first with an example; None for none.
        strategy: That of the run; all its workers call this.
        purpose: What the batch was for, for the error.

    Raises:
        ValueError: On all workers, if one has no example.
    """
    has_data = int(first_batch is not None)
    have_data = strategy.extended.workers.gather_numbers(has_data, f"first batch{purpose}")
    without = [f"worker {i}" for i, has in enumerate(have_data) if not has]
    if without:
        who = "" if len(have_data) == 1 else f" on {', '.join(without)} of {len(have_data)}"
        raise ValueError(
            f"the input gave no batch{purpose}{who}: the dataset is empty. Check the files or "
            f"arrays that it reads and that no filter, take or shard leaves nothing over"
        )


@dataclass(slots=True)
class ReplicaBatch:
    """What one replica computes with.

    Args:
        batch: Its batch; one that stands in for it where it has no examples.
        num_examples: How many of them count: none of a batch that stands in.
    """

    batch: Any
    num_examples: int

    def taken_by(self, replica: ReplicaContext) -> AbstractContextManager[object]:
        """In the block `replica` computes with it; see `ReplicaContext.stand_in`."""
        if self.num_examples:
            return _NOTHING_SPECIAL
        replica.stand_in()
        return np.errstate(all="ignore")  # nobody uses these numbers


@final
class ReplicaBatches:
    """Gives each replica of this worker something to compute with, in every step.

    A replica without examples runs the model on another's: on those of a replica of this worker
    which has some in the same step, or else on those of the last step that had any. So all replicas
    of all workers make the same calls in the same order, whatever their models exchange, and create
    the same variables. What comes of it weighs nothing.

    Args:
        strategy: Whose replicas they are.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._devices = strategy.extended.replica_devices
        self._latest: Any = None

    @property
    def has_had_examples(self) -> bool:
        """Whether there is something that can stand in."""
        return self._latest is not None

    def of_step(self, batches: Any) -> list[ReplicaBatch]:
        """What each local replica computes with.

        Args:
            batches: What the input gives for the step, for each replica a batch that may be empty;
                None where it has ended. The first one is not empty for all.
        """
        devices = self._devices
        parts = replica_parts(batches, len(devices))
        chosen = [ReplicaBatch(part, count_examples(part)) for part in parts]
        if not chosen:
            chosen = [ReplicaBatch(None, 0) for _ in devices]
        full = [given for given in chosen if given.num_examples]
        if full:
            self._latest = full[0].batch
        assert self._latest is not None, "who never had an example does not begin"
        if len(full) < len(chosen):
            for given, device in zip(chosen, devices, strict=True):
                if not given.num_examples:
                    given.batch = placed(self._latest, device)
        return chosen


@final
class ReadAhead:
    """The input of a worker, in which it may look for its first examples before its first step.

    What it has looked at is given all the same, in its place: a worker whose part of the first
    batches is empty makes those steps with the others.

    Args:
        batches: The input.
    """

    def __init__(self, batches: DatasetIterator) -> None:
        self._batches = batches
        self._ahead: deque[tuple[dict[str, Any], Any]] = deque()  # each with the state before it

    def __iter__(self) -> ReadAhead:
        return self

    def __next__(self) -> Any:
        return self._ahead.popleft()[1] if self._ahead else next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """Where the input stands: in front of what `next` gives."""
        return self._ahead[0][0] if self._ahead else self._batches.get_state()

    @property
    def num_empty(self) -> int:
        """How many batches are in front of that which `first_with_examples` has found."""
        return len(self._ahead) - 1

    def first_with_examples(self, num_replicas: int) -> Any:
        """As the function of that name; it stays where it is."""
        return first_with_examples(self._looked_at(), num_replicas)

    def _looked_at(self) -> Iterator[Any]:
        end = object()
        while True:
            state = self._batches.get_state()
            if (batch := next(self._batches, end)) is end:
                return
            self._ahead.append((state, batch))
            yield batch


def first_with_examples(batches: Iterable[Any], num_replicas: int) -> Any:
    """The first batch that is not empty for all replicas of this worker; None if there is none.

    It is the one from which a model can be built.
    """
    for batch in batches:
        if any(count_examples(part) for part in replica_parts(batch, num_replicas)):
            return batch
    return None


def replica_parts(batches: Any, num_replicas: int) -> list[Any]:
    """The batch of each local replica; an empty list where there is none for any."""
    if batches is None:
        return []
    if num_replicas == 1:  # the only one gets all as it is
        return [batches]
    return [select_replica(batches, index, num_replicas) for index in range(num_replicas)]
