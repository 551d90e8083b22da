"""What trainers that make a step together must do alike, compared as their pushes come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, final

from .rules import Change
from .shards import Array, Shard
from .variable_requests import OptimizerSpec

How: TypeAlias = "tuple[object, ...]"


class Terms(NamedTuple):
    """How a push changes one variable.

    Attributes:
        how: Rule, hyper-parameters, learning rate, number of the update, aggregation.
        slots: What the rule keeps beside the variable.
        value: What is assigned or added where all must give the same.
    """

    how: How
    slots: tuple[Shard, ...]
    value: bytes | None


@final
class Agreement:
    """The terms on which variables change in one step, so far.

    Trainers of one job push for the same variables, as a rule: so a push is compared as a whole
    with the one that came first, and variable by variable only where they differ.
    """

    def __init__(self) -> None:
        self._first: Mapping[Shard, Terms] = {}
        self._known: dict[Shard, tuple[str, Terms]] = {}

    def join(self, name: str, terms: Mapping[Shard, Terms]) -> None:
        """Take in what a trainer wants; nothing of it if it does not agree with the others.

        Raises:
            ValueError: Another one wants to change a variable in another way.
        """
        if self._first == terms:
            return
        for shard, own in terms.items():
            other, known = self._known.get(shard, (name, own))
            if known != own:
                raise ValueError(
                    f"{name} and {other} must change {shard.spec} in the same way in a step that "
                    f"all make together, not with {_difference(own, known)}"
                )
        self._first = self._first or terms
        for shard, own in terms.items():
            self._known.setdefault(shard, (name, own))


def terms_of(changes: Iterable[Change]) -> dict[Shard, Terms]:
    """The terms of each change of a push."""
    known: dict[int, How] = {}  # many variables share an optimizer
    found = {}
    for change in changes:
        spec = change.optimizer
        how = known.get(id(spec)) or known.setdefault(id(spec), _how(spec))
        value = _normalized(change.gradient.values) if spec.aggregation == "equal" else None
        found[change.shard] = Terms(how, change.slots, value)
    return found


def _how(spec: OptimizerSpec) -> How:
    hyper = tuple(sorted(spec.hyper.items()))
    return (spec.rule, hyper, spec.learning_rate, spec.step, spec.aggregation)


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
    differing = [
        f"{part} {_shown(ours)} and {_shown(theirs)}"
        for part, ours, theirs in zip(_PARTS, own.how, known.how, strict=True)
        if ours != theirs
    ]
    if own.slots != known.slots:
        differing.append(f"slots {_names(own)} and {_names(known)}")
    if own.value != known.value:
        differing.append("two values (its aggregation is NONE)")
    return ", ".join(differing)


def _shown(part: object) -> object:
    return dict(part) if isinstance(part, tuple) else part


def _names(terms: Terms) -> list[str]:
    return [slot.spec.name for slot in terms.slots]
