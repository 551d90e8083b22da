"""`get_next` of TensorFlow 1 in an `input_fn`: from what the function returns to a dataset."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from ..inputs import Dataset, TensorSpec, nest
from .placeholder import Placeholder, function_of, placeholders_in


class _Call(NamedTuple):
    """A call of `get_next`.

    Args:
        iterator: Of which; it is kept, so that no later one has its identity.
        dataset: What it is over.
        structure: The placeholders that the call gave.
    """

    iterator: object
    dataset: Dataset
    structure: Any


@final
class StandIns:
    """The placeholders that calls of `get_next` give in one call of an `input_fn`."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def make(self, iterator: object, plan: Any) -> Any:
        """Placeholders in the structure of the iterator's elements; see `MakeStandIns`."""
        dataset = Dataset(plan)
        structure = nest.map_with_path(_placeholder, dataset.element_spec, root="get_next()")
        self._calls.append(_Call(iterator, dataset, structure))
        return _copied(structure)

    def dataset_of(self, result: Any) -> Dataset:
        """The dataset of what an `input_fn` made of placeholders.

        Its elements are those of the datasets whose placeholders are used, mapped to what the
        function returned. Of several datasets each gives one element for a step, as in TensorFlow.

        Raises:
            ValueError: Placeholders of two calls of one iterator are used, or others than those of
                `get_next`.
        """
        used = {id(placeholder): placeholder for placeholder in placeholders_in(result)}
        calls = [c for c in self._calls if used.keys() & _identities(c.structure)]
        for placeholder in used.values():
            if not any(id(placeholder) in _identities(call.structure) for call in calls):
                raise ValueError(
                    f"input_fn returned something made of {placeholder!r}, which nothing feeds; "
                    f"compute with what get_next() of a dataset's iterator gave"
                )
        if len({id(call.iterator) for call in calls}) != len(calls):
            raise ValueError(
                f"input_fn returned parts of two get_next() calls of one iterator over "
                f"{calls[0].dataset!r}, which would share out the elements in no order; call "
                f"get_next() once, or batch(2) before to have two elements in a step"
            )
        # One alone stays as it is: a zip cannot be resumed on another number of workers.
        if len(calls) == 1:
            dataset, structure = calls[0].dataset, calls[0].structure
        else:
            dataset = Dataset.zip(tuple(call.dataset for call in calls))
            structure = tuple(call.structure for call in calls)
        places = nest.flatten(structure)
        compute = function_of(_tuples(result))

        def as_returned(*items: Any) -> Any:
            element = items if type(structure) is tuple else items[0]
            leaves = nest.leaves_in_order_of(structure, element)
            return compute({id(p): leaf for p, leaf in zip(places, leaves, strict=True)})

        return dataset.map(as_returned)


def _placeholder(path: str, spec: Any) -> Placeholder | None:
    if spec is None:
        return None
    if not isinstance(spec, TensorSpec):
        raise ValueError(
            f"{path} is a dataset itself, as window() makes them, and no array; flatten it "
            f"with flat_map before get_next()"
        )
    return Placeholder(spec, path)


def _identities(structure: Any) -> set[int]:
    return {id(leaf) for leaf in nest.flatten(structure) if leaf is not None}


def _copied(structure: Any) -> Any:
    """The same leaves in dicts of their own: an `input_fn` may pop from these."""
    return nest.map_structure(lambda leaf: leaf, structure)


def _tuples(structure: Any) -> Any:
    """The structure with tuples for lists, which a dataset takes for arrays."""
    if type(structure) is list:
        return tuple(_tuples(item) for item in structure)
    if isinstance(structure, dict | tuple):
        steps = nest.steps_into(structure) or []
        return nest.rebuild(structure, [_tuples(item) for _, item in steps])
    return structure
