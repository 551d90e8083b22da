"""Going on with another number of workers: what was seen, and what is left to whom.

Workers that take turns in one order, and have made the same number of steps, have together seen
the beginning of that order. What is left begins at one place, from which any number of workers
can take turns again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ._plan import UNKNOWN, Plan, Shard
from ._states import COUNT, INTEGER, STATE, TEXT, checked_fields

State = dict[str, Any]

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


def checked_state(state: Any) -> State:
    """`state`, if it is what `DatasetIterator.get_state` returns."""
    checked_fields(state, _FIELDS)
    if state["shard"] is not None:
        checked_fields(state["shard"], _SHARD_FIELDS)
    return cast(State, state)


def describe_shard(plan: Plan, num_given: int) -> dict[str, Any] | None:
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


def state_for(
    plan: Plan, states: Sequence[State], worker_index: int, num_workers: int | None
) -> State:
    """The state from which one worker goes on.

    Args:
        plan: the worker's chain as it is now.
        states: those of all workers of the earlier run.
        worker_index: the worker's number now.
        num_workers: how many there are now; None if it is not known.

    Raises:
        ValueError: see `DatasetIterator.set_states`.
    """
    if not isinstance(states, list | tuple) or not states:
        raise ValueError(
            f"states must be a list of the state of at least one worker, got {states or 'none'}."
        )
    for state in states:
        checked_state(state)
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
    draws_seed = shard.order.draws_seed
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


def _has_ended(shard: Shard, first: int, saved: dict[str, Any]) -> bool:
    """Whether a worker's part of the order was used up.

    Where the length is not known, that is what it must be: after equally many steps nothing else
    leaves one behind.
    """
    length = shard.order.cardinality
    return length == UNKNOWN or 0 <= length <= first + saved["seen"] * saved["count"]
