"""The one update that comes of several trainers' pushes of a step: they agree how, and its mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np

from .push_plan import ASSIGN, Change, Gradient, add_rows
from .shards import Array, Shard

Weighted: TypeAlias = "tuple[float, Change]"

How: TypeAlias = "tuple[object, ...]"

Terms: TypeAlias = "tuple[How, tuple[Shard, ...], bytes | None]"
"""How a push changes one variable.

- how: rule, hyper-parameters, learning rate, number of the update, aggregation;
- slots: what the rule keeps beside the variable;
- value: what is assigned or added where all must give the same.
"""


@final
class Agreement:
    """The terms on which variables change in one step, so far.

    Trainers of one job push for the same variables, as a rule: so a push is compared as a whole
    with the one that came first, and variable by variable only where they differ.
    """

    def __init__(self) -> None:
        self._first: tuple[str, Mapping[Shard, Terms]] | None = None
        self._others: dict[Shard, tuple[str, Terms]] = {}

    def join(self, name: str, terms: Mapping[Shard, Terms]) -> None:
        """Take in what a trainer wants; nothing of it if it does not agree with the others.

        Raises:
            ValueError: Another one wants to change a variable in another way.
        """
        if self._first is None:
            self._first = name, terms
            return
        first, known_first = self._first
        if known_first == terms:
            return
        for shard, own in terms.items():
            other, known = self._others.get(shard, (first, known_first.get(shard, own)))
            if known != own:
                raise ValueError(
                    f"{name} and {other} must change {shard.spec} in the same way in a step that "
                    f"all make together, not with {_difference(own, known)}"
                )
        for shard in terms.keys() - known_first.keys():
            self._others.setdefault(shard, (name, terms[shard]))


def terms_of(changes: Iterable[Change]) -> dict[Shard, Terms]:
    """The terms of each change of a push."""
    known: dict[int, How] = {}  # many variables share an optimizer
    found: dict[Shard, Terms] = {}
    for change in changes:
        target = change.target
        how = known.get(target.optimizer_index)
        if how is None:
            how = known[target.optimizer_index] = _interned(_how(change))
        value = _normalized(change.gradient.values) if how[-1] == "equal" else None
        found[target.shard] = (how, target.slots, value)
    return found


def _how(change: Change) -> How:
    spec = change.target.optimizer
    hyper = tuple(sorted(spec.hyper.items()))
    return (spec.rule, hyper, change.rate, change.step, spec.aggregation)


@lru_cache(maxsize=256)
def _interned(how: How) -> How:
    """The one object for all that are equal: whatever is compared with it is so at once."""
    return how


def _normalized(values: Array) -> bytes:
    """The same for equal arrays: minus zero becomes zero."""
    return (values + values.dtype.type(0)).tobytes()


_PARTS = (
    "rule",
    "hyper-parameters",
    "learning rate",
    "update number",
    "aggregation",
)


def _difference(own: Terms, known: Terms) -> str:
    (how, slots, value), (known_how, known_slots, known_value) = own, known
    differing = [
        f"{part} {_shown(ours)} and {_shown(theirs)}"
        for part, ours, theirs in zip(_PARTS, how, known_how, strict=True)
        if ours != theirs
    ]
    if slots != known_slots:
        differing.append(f"slots {_names(slots)} and {_names(known_slots)}")
    if value != known_value:
        differing.append("two values (its aggregation is NONE)")
    return ", ".join(differing)


def _shown(part: object) -> object:
    return dict(part) if isinstance(part, tuple) else part


def _names(slots: Iterable[Shard]) -> list[str]:
    return [slot.spec.name for slot in slots]


def mean_of(pushes: Sequence[tuple[float, Sequence[Change]]]) -> list[Change]:
    """One push for several, given with their weights in the order of ranks.

    What becomes of a variable its aggregation says, on which all agree:

    - "mean": the weighted mean. Who pushed nothing for a variable that others push has a gradient
      of zero; what is assigned is the mean of what was given; whole numbers are taken from the
      first: a step counter that all trainers increase is increased once.
    - "sum": the sum, whatever the weights.
    - "first": what the first one gives.
    - "equal": the same, and it was seen to it that all give that (see `Agreement`).

    Sums are made in the order given, so that the result does not depend on who came first; a single
    push is done bit for bit as it is. Weight 0 is nothing.
    """
    pushes = [(weight, changes) for weight, changes in pushes if weight > 0]
    if len(pushes) == 1:
        return list(pushes[0][1])
    by_shard: dict[object, list[Weighted]] = {}
    for weight, changes in pushes:
        for change in changes:
            by_shard.setdefault(change.target.shard, []).append((weight, change))
    weights = [weight for weight, _ in pushes]
    return [_merged(parts, weights) for parts in by_shard.values()]


def _merged(parts: list[Weighted], weights: Sequence[float]) -> Change:
    """One variable's change; `weights` are those of all pushes."""
    first = parts[0][1]
    target = first.target
    aggregation = target.optimizer.aggregation
    if aggregation == "sum":
        return replace(first, gradient=_sum([change.gradient for _, change in parts]))
    if aggregation != "mean" or target.shard.dtype.kind != "f":
        return first
    if target.optimizer.rule == ASSIGN:
        weights = [weight for weight, _ in parts]
    # Of equal weights the sum is divided once: with a power of two nothing is rounded.
    if len(set(weights)) == 1:
        total = _sum([change.gradient for _, change in parts])
        np.divide(total.values, len(weights), out=total.values)
    else:
        whole = sum(weights)
        total = _sum([_scaled(change.gradient, weight / whole) for weight, change in parts])
    return replace(first, gradient=total)


def _scaled(gradient: Gradient, factor: float) -> Gradient:
    return Gradient(gradient.values * gradient.values.dtype.type(factor), gradient.rows)


def _sum(gradients: Sequence[Gradient]) -> Gradient:
    """The sum, in order, in new memory: of rows if all are, of whole arrays otherwise."""
    rows = [gradient.rows for gradient in gradients if gradient.rows is not None]
    if len(rows) == len(gradients):
        values = np.concatenate([gradient.values for gradient in gradients])
        return Gradient(values, np.concatenate(rows)).unique()
    shape = next(gradient.values.shape for gradient in gradients if gradient.rows is None)
    total = _dense(gradients[0], shape)
    for gradient in gradients[1:]:
        if gradient.rows is None:
            total += gradient.values
        else:
            add_rows(total, gradient.rows, gradient.values)
    return Gradient(total)


def _dense(gradient: Gradient, shape: tuple[int, ...]) -> Array:
    """A copy, of the whole."""
    if gradient.rows is None:
        return gradient.values.copy()
    whole = np.zeros(shape, gradient.values.dtype)
    add_rows(whole, gradient.rows, gradient.values)
    return whole
