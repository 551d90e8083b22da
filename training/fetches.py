"""Tensors and figures that hooks ask for, over the calls of a model, replicas and workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, final

import numpy as np

from ..autodiff import Array, TensorLike, is_array, lift
from ..inputs import nest
from ..strategies import Strategy, to_host

named_values: ContextVar[dict[str, Any] | None] = ContextVar("paceline_named", default=None)
"""What the call of `model_fn` in this context has named for hooks; None outside of one."""


def name_value(name: str, value: Any) -> None:
    """Let hooks ask for a value of this call of `model_fn` by a name, as for a tensor of a graph.

    A name that is there already is numbered, as in TensorFlow. Outside of a call nothing is kept.
    """
    named = named_values.get()
    if named is not None and (isinstance(value, TensorLike) or is_array(value)):
        unique, number = name, 0
        while unique in named:
            number += 1
            unique = f"{name}_{number}"
        named[unique] = value


Hooks: TypeAlias = "Mapping[str, Sequence[object]]"
"""What one call of `model_fn` made: the fields of its `EstimatorSpec` that are lists of hooks."""


class Figure(ABC):
    """A figure over all batches, replicas and workers that were seen so far: a metric."""

    @abstractmethod
    def result(self) -> Any:
        """The figure; where there are several workers all of them call this."""


@final
class HeldValues:
    """What the hooks of a `model_fn` hold of its tensors and metrics, by the place where they do.

    A `model_fn` is called anew for each batch and makes its hooks anew, with the tensors of that
    batch. Those of the first call take part in the run. What stands at the same place in those of a
    later call is the same value of a later batch: `training_hooks[0].tensors['accuracy']`. A place
    is the same on all replicas and workers, also where a hook takes part on the chief alone.

    Args:
        strategy: How the run is distributed.

    Attributes:
        follows: Whether later calls are to be noted: not where hooks hold nothing of the first.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.follows = True
        self._strategy = strategy
        self._hooks: Hooks | None = None
        self._first: dict[str, Any] = {}
        self._calls: dict[int, tuple[int, Hooks, Mapping[str, Any]]] = {}
        self._noted: dict[int, tuple[int, dict[str, Any]]] = {}
        self._parts: Sequence[tuple[int, dict[str, Any]]] = ()

    def note(self, replica: int, num_examples: int, hooks: Hooks, named: Mapping[str, Any]) -> None:
        """Note what one call of `model_fn` made.

        Args:
            replica: Which local replica has called it; each notes its own, in a thread of its own.
            num_examples: How many examples count; 0: the batch only stands in.
            hooks: Those that it brought, by field.
            named: Tensors and metrics that have a name of their own.
        """
        if self._hooks is None:
            self._calls[replica] = num_examples, hooks, named
            return
        found = {**named, **dict(held(hooks, self._hooks))}
        # The arrays alone: a tensor would keep what it was computed from until the next step.
        values = {place: _array(found[place]) for place in self._first if place in found}
        self._noted[replica] = num_examples, values

    def take_over(self) -> None:
        """The step was made: what was noted is what can be read from now on."""
        self._parts = [self._noted[replica] for replica in sorted(self._noted)]

    def begin(self, figures: Collection[str]) -> None:
        """All replicas have noted their first call, if any: find the places, before hooks change.

        Args:
            figures: What has a name and is known to the session without this.
        """
        _, self._hooks, named = self._calls.get(0, (0, {}, {}))
        of_hooks = dict(held(self._hooks))
        # What no hook holds is known by its name only; else the first batch would stay in memory.
        known = {id(value) for value in of_hooks.values()}
        own = {n: v if isinstance(v, Figure) or id(v) in known else None for n, v in named.items()}
        self._first = {**own, **of_hooks}
        self.follows = bool(of_hooks) or not own.keys() <= set(figures)
        for replica, (num_examples, hooks, named) in self._calls.items():
            found = {**named, **dict(held(hooks))}
            self._noted[replica] = num_examples, arrays_of(found)
        self._calls = {}
        self.take_over()

    def __contains__(self, place: str) -> bool:
        return place in self._first

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def place_of(self, value: Any) -> str | None:
        """Where a tensor or metric of the first call stands; None if nobody has held it then."""
        if value is None:
            return None
        return next((place for place, held in self._first.items() if held is value), None)

    def read(self, place: str) -> Any:
        """The latest value over all replicas of all workers, who all call this.

        That is what one process would have on the whole batch: rows where an array has one for each
        example, a mean over all examples where it has not, the result so far of a metric.

        Raises:
            TypeError: The latest call of `model_fn` holds nothing there.
        """
        first = self._first[place]
        if isinstance(first, Figure):
            with self._strategy.scope():
                return first.result()
        parts = [(n, values[place]) for n, values in self._parts if place in values]
        if len(parts) < len(self._parts):
            raise TypeError(
                f"a hook asks for {place}, which a later call of model_fn does not have: make the "
                f"hook in model_fn, in each call alike, with the tensors of that call"
            )
        return over_workers(parts, self._strategy, place)


def held(hooks: Hooks, first: Hooks | None = None) -> Iterator[tuple[str, Any]]:
    """Each tensor and metric in the attributes of hooks, with its place.

    Args:
        hooks: By field.
        first: Those of the first call. A hook that is still the same was not made anew, and what it
            holds is of the first batch: it is left out.
    """
    for field, made in hooks.items():
        for index, hook in enumerate(made):
            if first is not None and index < len(first[field]) and hook is first[field][index]:
                continue
            for name, value in vars(hook).items():
                root = f"{field}[{index}].{name}"
                for place, leaf in zip(nest.paths(value, root), nest.flatten(value), strict=True):
                    if isinstance(leaf, TensorLike | Figure) or is_array(leaf):
                        yield place, leaf


def arrays_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of values until the next step: figures, and of tensors the arrays alone.

    A tensor would keep what it was computed from.
    """
    return {name: _array(value) for name, value in values.items()}


def _array(value: Any) -> Any:
    """What is kept of a value until the next step."""
    return value if isinstance(value, Figure) else lift(value).data


def over_workers(parts: Sequence[tuple[int, Array]], strategy: Strategy, name: str) -> Any:
    """The value over the replicas of all workers, from those of this worker's replicas.

    Args:
        parts: The number of examples behind each replica's value, and the value.
        strategy: Whose workers have values of the same name.
    """
    workers = strategy.extended.workers
    if len(parts) == 1 and workers.size == 1:
        return to_host(parts[0][1])
    counted = [(n, to_host(value)) for n, value in parts]
    have_no_rows = [np.ndim(v) == 0 or len(v) != n for n, v in counted if n]
    if not workers.any_of_each([any(have_no_rows)], f"{name} has no rows")[0]:
        joined = np.concatenate([value[:n] for n, value in counted])
        return workers.gather(joined, 0, name)
    like = counted[0][1]
    total = np.zeros(np.shape(like))
    for n, value in counted:
        total += n * value if n else 0.0  # not multiplied by zero: it may be no number
    *sums, num_examples = workers.add_up_numbers(
        [*np.ravel(total), sum(n for n, _ in counted)], name
    )
    mean = np.reshape(sums, np.shape(like)) / num_examples
    return mean.astype(like.dtype) if np.issubdtype(like.dtype, np.inexact) else mean
