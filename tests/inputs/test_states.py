"""What an iterator cannot take as its state is refused, and leaves it where it was."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from paceline.inputs import (
    AutoShardPolicy,
    Dataset,
    Options,
    per_replica_batches,
    split_global_batches,
    text_lines,
)

Make = Callable[[], Any]


def numbers() -> Dataset:
    return Dataset.from_generator(lambda: iter(range(24)))


def several(value: Any) -> Dataset:
    return Dataset.range(int(value) % 4 + 1)


def whole(dataset: Dataset) -> Dataset:
    """Each worker has all of it, and takes a global batch in several steps."""
    return dataset.with_options(Options(auto_shard_policy=AutoShardPolicy.OFF))


CHAINS: dict[str, Make] = {
    "positions": lambda: Dataset.range(24).shuffle(24, seed=1).batch(2),
    "shard": lambda: Dataset.range(24).shuffle(24, seed=1).shard(2, 1),
    "generator, map": lambda: numbers().map(lambda x: x + 1),
    "take": lambda: numbers().skip(2).take(20),
    "repeat": lambda: numbers().repeat(2),
    "shuffle": lambda: numbers().shuffle(4, seed=1),
    "zip": lambda: Dataset.zip(numbers(), numbers().skip(1)),
    "concatenate": lambda: numbers().take(3).concatenate(numbers()),
    "unbatch": lambda: numbers().batch(4).unbatch(),
    "window": lambda: numbers().window(2, shift=3).flat_map(lambda w: w.batch(2)),
    "cache": lambda: numbers().cache().repeat(2),
    "interleave": lambda: numbers().interleave(several, cycle_length=3, block_length=2),
    "ignore errors": lambda: numbers().ignore_errors(),
    "map in threads": lambda: numbers().map(lambda x: x + 1, num_parallel_calls=2),
    "prefetch": lambda: numbers().prefetch(2),
    "files": lambda: text_lines(__file__).take(24),
    "global batches": lambda: split_global_batches(whole(numbers()).batch(6), 1, 3, shard=(3, 1)),
    "batches of replicas": lambda: per_replica_batches(numbers().batch(2), 2),
}
each_chain = pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)


def after(make: Make, num_elements: int) -> Any:
    iterator = iter(make())
    assert len(list(islice(iterator, num_elements))) == num_elements
    return iterator


def places_in(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a structure of JSON."""
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places_in(value, (*path, key))


def changed(state: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    other = copy.deepcopy(state)
    holder = other
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return other


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda holder, key: holder.__setitem__(key, value)


def at(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


@each_chain
@pytest.mark.parametrize("num_elements", [3, 5])
def test_a_state_without_a_field_or_with_one_of_another_type_is_refused(
    make: Make, num_elements: int
) -> None:
    state = json.loads(json.dumps(after(make, num_elements).get_state()))
    iterator = iter(make())
    for path in places_in(state):
        found = at(state, path)
        others = [v for v in ("x", 1.5, True, {}, [3.5], -1, 1 << 62) if path != ("seed",)]
        changes = [put(v) for v in others if type(v) is not type(found) or type(v) is int]
        if isinstance(path[-1], str) or path[:-1]:
            changes.append(lambda holder, key: holder.pop(key))
        for change in changes:
            with pytest.raises(ValueError, match=r"cannot take this state|was saved by"):
                iterator.set_state(changed(state, path, change))
    iterator.close()


@each_chain
def test_a_state_with_another_number_is_refused_or_gives_elements_of_the_data(make: Make) -> None:
    state = json.loads(json.dumps(after(make, 5).get_state()))
    iterator = iter(make())
    for path in places_in(state):
        if type(at(state, path)) not in (int, type(None)):
            continue
        for value in (0, 1, 2, 5, 7, 23, 24, 25, 10**6, None):
            with suppress(ValueError):  # any other error fails
                iterator.set_state(changed(state, path, put(value)))
            list(islice(iterator, 100))
    iterator.close()


@pytest.mark.parametrize(
    ("chain", "place", "old"),
    [
        ("global batches", ("elements", "inner"), lambda new: {"round": new.pop("seen") // 2}),
        ("shuffle", ("elements",), lambda new: new.pop("failed") or {}),
    ],
    ids=["global batches", "shuffle"],
)
def test_states_of_version_0_1_are_refused(
    chain: str, place: tuple[str, ...], old: Callable[[Any], dict[str, int]]
) -> None:
    """It counted the rounds of a global batch, and not what had failed."""
    state = after(CHAINS[chain], 4).get_state()
    fields = at(state, place)
    fields.update(old(fields))
    iterator = iter(CHAINS[chain]())
    with pytest.raises(ValueError, match=r"cannot take this state.* saved by another version"):
        iterator.set_state(state)


@each_chain
def test_a_refused_state_leaves_the_iterator_where_it_was(make: Make) -> None:
    expected = list(map(str, after(make, 4)))
    iterator = after(make, 4)
    state = iterator.get_state()
    place = next(p for p in places_in(state) if p[:1] == ("elements",) and p[1:])
    with pytest.raises(ValueError, match="cannot take this state"):
        iterator.set_state(changed(state, place, put("x")))
    assert list(map(str, iterator)) == expected


@pytest.mark.parametrize("make", [CHAINS["unbatch"], CHAINS["global batches"]])
def test_a_state_of_a_batch_that_is_gone_is_refused(make: Make) -> None:
    iterator = after(make, 5)
    state = json.loads(json.dumps(iterator.get_state()))
    inner = next(p for p in places_in(state) if p[-1] == "position")
    with pytest.raises(ValueError, match="source ends before an element that had been read"):
        iterator.set_state(changed(state, inner, put(24)))
    iterator.close()
