"""The iterator over a dataset that users hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast, final

from .checks import COUNT, INTEGER, STATE, TEXT, checked_fields
from .elements import ElementIterator
from .next_element import OptionalElement, current_stand_ins
from .plan import INFINITE, UNKNOWN, Opening, Plan, Shard
from .seeds import Seeds, current_default_seed, entropy_seed

State = dict[str, Any]
"""What `DatasetIterator.get_state` returns."""

_FIELDS = {
    "dataset": TEXT,
    "seed": INTEGER,
    "iteration": COUNT,
    "given": COUNT,
    "start": COUNT,
    "elements": STATE,
    "shard": STATE,
}
_SHARD_FIELDS = {"count": COUNT, "index": COUNT, "order": TEXT, "seen": COUNT}


@final
class DatasetIterator:
    """One pass over a dataset, which can be saved and resumed between any two elements.

    Args:
        plan: the dataset's description.
        seed: what shuffles without a seed of their own use.
        iteration: how often the dataset was iterated before; it varies reshuffling shuffles.
        worker: how many workers iterate, and which one this is; None if it is not known.
    """

    def __init__(
        self, plan: Plan, seed: int, iteration: int, worker: tuple[int, int] | None = None
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._seed = seed
        self._iteration = iteration
        self._num_given = 0
        self._start = 0
        self._elements = _open(plan, seed, iteration, 0)
        self._last_state: Any = None

    @property
    def element_spec(self) -> Any:
        """The same as of the dataset."""
        return self._plan.spec()

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        try:
            element = next(self._elements)
        except StopIteration:
            # What ends early, as take and zip do, leaves its source and threads open.
            self.close()
            raise
        except Exception as error:
            count, index = self._worker or (1, 0)
            place = f" on worker {index} of {count}" if count > 1 else ""
            text = f"element {self._num_given} of {self._plan.text}{place}"
            error.add_note(f"While making {text}.")
            raise
        self._num_given += 1
        return element

    def get_next(self, name: str | None = None) -> Any:
        """The next element, as `next` gives it; TensorFlow 1's spelling.

        In an `input_fn` that an Estimator calls nothing is read. What comes back stands for an
        element: it has the same structure, and the function may take it apart, compute with its
        parts by operators, slices and functions of NumPy and `compat.tf`, and return them.

        Args:
            name: Has no effect.

        Raises:
            StopIteration: There is no further element.
        """
        make_stand_ins = current_stand_ins()
        if make_stand_ins is None:
            return next(self)
        self.close()
        return make_stand_ins(self, self._plan)

    def get_next_as_optional(self) -> OptionalElement:
        """The next element, or none behind the last one."""
        missing = object()
        element = next(self, missing)
        return OptionalElement(() if element is missing else (element,))

    @property
    def initializer(self) -> None:
        """Nothing: an iterator is at its beginning when it is made."""

    def get_state(self) -> State:
        """The position of the next element and the seed: small, and made of JSON's types only."""
        return {
            "dataset": self._plan.text,
            "seed": self._seed,
            "iteration": self._iteration,
            "given": self._num_given,
            "start": self._start,
            "elements": self._last_state or self._elements.get_state(),
            "shard": _describe_shard(self._plan, self._num_given),
        }

    def set_state(self, state: State) -> None:
        """Goes on with exactly the elements that were left when `state` was taken.

        Args:
            state: from `get_state` of an iterator over the same chain of transformations.

        Raises:
            ValueError: the state is of another chain or version, damaged, or no state at all. The
                iterator stays where it was.
        """
        _checked_state(state)
        if state["dataset"] != self._plan.text:
            raise ValueError(
                f"The state was saved by {state['dataset']}, but this is an iterator over "
                f"{self._plan.text}. Restore it into the same chain of transformations, or start "
                "this one from its beginning."
            )
        # Whether a state fits is known only when all iterators of the chain have taken their parts.
        before = self.get_state()
        try:
            self._go_to(state)
        except Exception:
            self._go_to(before)
            raise

    def _go_to(self, state: State) -> None:
        self.close()
        self._last_state = None
        self._seed, self._iteration = state["seed"], state["iteration"]
        self._num_given, self._start = state["given"], state["start"]
        self._elements = _open(self._plan, self._seed, self._iteration, self._start)
        if state["elements"] is not None:
            self._elements.set_state(state["elements"])

    def set_states(self, states: Sequence[State], worker_index: int) -> None:
        """Goes on where all workers of a job stopped together, be they as many as now or not.

        With as many workers as before each goes on with its own state. With another number this
        needs an order that all workers share: global batches that a strategy splits, or a dataset
        that is sharded last, `shuffle(n, seed).repeat().shard(workers, worker).batch(b)`. The
        elements that no worker had seen are then divided among the present ones.

        Args:
            states: from `get_state` on each worker, in their order, after the same number of steps.
            worker_index: the number of this worker among the present ones.

        Raises:
            ValueError: the states are of another chain, or it cannot be divided anew; the message
                says why.
        """
        num_workers = None if self._worker is None else self._worker[0]
        self.set_state(_state_for(self._plan, states, worker_index, num_workers))

    @property
    def seed_and_iteration(self) -> tuple[int, int]:
        """What, beside the chain, decides the order."""
        return self._seed, self._iteration

    @property
    def is_in_first_pass(self) -> bool:
        """Whether elements of the first pass over the source are left, as far as is known.

        What `repeat()` repeats is a pass. A dataset of unknown length is in its first pass until
        its end was met, an endless one of which nothing is known is not.
        """
        epoch, shard = self._plan.epoch_length, self._plan.shard
        if epoch >= 0:
            before = 0 if shard is None else self._start // (shard.num_shards * shard.per_element)
            return before + self._num_given < epoch
        return self._plan.cardinality != INFINITE and self._last_state is None

    def close(self) -> None:
        """Ends the pass and any background thread; the iterator has no further elements."""
        # What is closed can still be saved: a run's last checkpoint comes when the data have ended.
        if self._last_state is None:
            self._last_state = self._elements.get_state()
            self._elements.close()


@final
class IteratorFactory:
    """Makes the successive iterators of one dataset object.

    As in tf.data, a reshuffling shuffle gives each pass over the same dataset object another
    order, so the passes are counted here; a newly built dataset starts from the first order again.
    """

    def __init__(
        self, plan: Plan, seed: int | None = None, worker: tuple[int, int] | None = None
    ) -> None:
        self._plan = plan
        self._seed = seed
        self._worker = worker
        self._iterations = itertools.count()

    def shared_seed(self) -> int | None:
        """The seed that does not come from entropy, if there is one."""
        return current_default_seed() if self._seed is None else self._seed

    def __call__(self) -> DatasetIterator:
        seed = self.shared_seed()
        if seed is None:
            fixed = self._plan.demands.fixed_seed
            seed = entropy_seed() if fixed is None else fixed
        return DatasetIterator(self._plan, seed, next(self._iterations), self._worker)


def _open(plan: Plan, seed: int, iteration: int, start: int) -> ElementIterator:
    # Workers that take turns in one order have seen its beginning if each goes through its part
    # in order: only then can what is left be divided anew.
    in_order = plan.shard is not None
    opening = Opening(Seeds(seed, iteration), plan.demands.options, start=start, in_order=in_order)
    return plan.open(opening).iterate(0)


def _checked_state(state: Any) -> State:
    checked_fields(state, _FIELDS)
    if state["shard"] is not None:
        checked_fields(state["shard"], _SHARD_FIELDS)
    return cast(State, state)


def _describe_shard(plan: Plan, num_given: int) -> State | None:
    """What a state tells of its worker's part of a shared order; None if there is none."""
    shard = plan.shard
    if shard is None:
        return None
    return {
        "count": shard.num_shards,
        "index": shard.shard_index,
        "order": shard.order.text,
        "seen": num_given * shard.per_element,
    }


def _state_for(
    plan: Plan, states: Sequence[State], worker_index: int, num_workers: int | None
) -> State:
    """The state from which one worker goes on, see `DatasetIterator.set_states`.

    Workers that take turns in one order, and have made the same number of steps, have together seen
    the beginning of that order. What is left begins at one position, from which any number of
    workers can take turns again.
    """
    if not isinstance(states, list | tuple) or not states:
        raise ValueError(
            f"states must be a list of the state of at least one worker, got {states or 'none'}."
        )
    for state in states:
        _checked_state(state)
    are_as_many = worker_index < len(states) and num_workers in (None, len(states))
    if are_as_many and states[worker_index]["dataset"] == plan.text:
        return states[worker_index]
    if plan.shard is None:
        return _common_state(states)
    return {
        **states[0],
        "dataset": plan.text,
        "given": 0,
        "start": _num_seen(plan.shard, states),
        "elements": None,
    }


def _common_state(states: Sequence[State]) -> State:
    """The state that all workers share because each reads the same global batches."""
    if any(state != states[0] for state in states):
        raise ValueError(
            f"The {len(states)} workers that saved their input read different data, and cannot be "
            "resumed as another number. Resume with as many, or put shard() after shuffle(seed=...)"
            " and repeat()."
        )
    return states[0]


def _num_seen(shard: Shard, states: Sequence[State]) -> int:
    """How many elements of the order all workers together have seen."""
    saved = [state["shard"] for state in states]
    # Seeds may differ where nothing in the order draws on them.
    draws_seed = shard.order.demands.draws_seed
    starts = {(s["seed"] if draws_seed else 0, s["iteration"], s["start"]) for s in states}
    expected = [(shard.order.text, len(states), index) for index in range(len(states))]
    found = [s and (s["order"], s["count"], s["index"]) for s in saved]
    if found != expected or len(starts) != 1:
        raise ValueError(
            f"The input was saved by {len(states)} workers as {states[0]['dataset']}, which is not "
            f"one order of {shard.order.text} that they share. Resume with as many workers as "
            "before, and the same shuffle(seed=...)."
        )
    start = states[0]["start"]
    most = max(s["seen"] for s in saved)
    for index, s in enumerate(saved):
        if s["seen"] < most and not _has_ended(shard, start + index, s):
            raise ValueError(
                f"Worker {index} had seen {s['seen']} elements and another {most}, so these "
                "are not the beginning of one order. Resume with as many workers as before."
            )
    return int(start + most * len(states))


def _has_ended(shard: Shard, first: int, saved: State) -> bool:
    """Whether a worker's part of the order was used up.

    Where the length is not known, that is what it must be: after equally many steps nothing else
    leaves one behind.
    """
    length = shard.order.cardinality
    return length == UNKNOWN or 0 <= length <= first + saved["seen"] * saved["count"]
