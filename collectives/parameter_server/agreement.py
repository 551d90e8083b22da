"""What trainers that make a step together must do alike, compared as their pushes come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias, final

from .rules import Change
from .shards import Array, Shard
from .variable_requests import OptimizerSpec

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
        spec = change.optimizer
        how = known.get(id(spec))
        if how is None:
            how = known[id(spec)] = _interned(_how(spec))
        value = _normalized(change.gradient.values) if how[-1] == "equal" else None
        found[change.shard] = (how, change.slots, value)
    return found


def _how(spec: OptimizerSpec) -> How:
    hyper = tuple(sorted(spec.hyper.items()))
    return (spec.rule, hyper, spec.learning_rate, spec.step, spec.aggregation)


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
