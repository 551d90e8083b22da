"""Sources that other libraries made, by protocol: none of them is imported.

By position: `__len__` and `__getitem__`, and where there is one `__getitems__`, which takes a list
of positions (PyTorch and Hugging Face datasets). In order: `__iter__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ._elements import ENDLESS
from ._plan import INFINITE, Plan, with_spec_of_first_element
from ._random_access import Items
from ._sources import iterable_plan
from ._values import as_element


def adapted_plan(source: Any) -> Plan:
    """The elements of a foreign dataset."""
    kind = type(source)
    if isinstance(source, Mapping):
        raise TypeError(
            f"source must be one dataset, got a {kind.__name__} with the keys "
            f"{list(source)[:10]}. Choose one of them."
        )
    if hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and _takes_positions(source):
        return _indexed_plan(source)
    if isinstance(source, Iterable) and not isinstance(source, Iterator):
        return iterable_plan(lambda: source, _own_element)
    raise TypeError(
        f"source must have a length and take positions, or be iterable more than once, got "
        f"{kind.__name__}. Give from_generator a function that makes a new iterator."
    )


def _takes_positions(source: Any) -> bool:
    """Whether its brackets work: PyTorch's `IterableDataset` has them to refuse them."""
    if isinstance(source, Iterable) and len(source):  # type: ignore[arg-type]
        try:
            source[0]  # type: ignore[index]
        except NotImplementedError:
            return False
        except Exception:
            # It is told when that item is read.
            pass
    return True


def _indexed_plan(source: Any) -> Plan:
    # Grain's endless datasets say that they have as many items as fit an integer.
    length = min(len(source), ENDLESS)
    cardinality = INFINITE if length == ENDLESS else length
    read_many = getattr(source, "__getitems__", None)
    read = partial(_one_by_one, source) if read_many is None else partial(_many, read_many)
    items = Items(length, read)
    plan = Plan(
        f"from_source({type(source).__name__}, {cardinality})",
        cardinality,
        open=lambda _: items,
        spec=lambda: None,
    )
    return with_spec_of_first_element(plan)


def _one_by_one(source: Any, positions: list[int]) -> list[Any]:
    elements = []
    for position in positions:
        try:
            elements.append(_item(source[position]))
        except StopIteration as error:
            raise RuntimeError(f"Item {position} of the source raised StopIteration") from error
        except Exception as error:
            error.add_note(f"While reading item {position} of the source.")
            raise
    return elements


def _many(read: Callable[[list[int]], Iterable[Any]], positions: list[int]) -> list[Any]:
    return [_item(item) for item in read(positions)]


def _item(value: Any) -> Any:
    if value is None:
        raise ValueError(
            "The item is None, as Grain's MapDataset gives for what filter() left out. Iterate "
            "over such a dataset instead: give its to_iter_dataset()."
        )
    return _own_element(value)


def _own_element(value: Any) -> Any:
    return as_element(_as_own(value))


def _as_own(value: Any) -> Any:
    """The value with lists of arrays, as other libraries collate them, as tuples."""
    if isinstance(value, Mapping):
        return {name: _as_own(item) for name, item in value.items()}
    if type(value) is tuple or (type(value) is list and _holds_arrays(value)):
        return tuple(_as_own(item) for item in value)
    return value


def _holds_arrays(items: list[Any]) -> bool:
    return any(hasattr(item, "shape") or isinstance(item, Mapping) for item in items)
