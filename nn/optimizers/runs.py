"""Which variables of a pack an update changes together, and which by themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import final

from ...strategies import Arena, Pack, RuleStep, Variable


@final
@dataclass(slots=True)
class Run:
    """Variables whose gradients lie behind each other and that one rule changes.

    Args:
        first: The place of the first one in its pack.
        place: Where their gradients are in the array of the pack.
        variables, slots: They, and for each of them what the rule keeps beside it.
        decays: Whether their weights decay, if those of any do.
        arenas: Their values, and those of each of their slots. A variable by itself has none.
    """

    first: int
    place: slice
    variables: Sequence[Variable]
    slots: Sequence[Sequence[Variable]]
    decays: bool
    arenas: Sequence[Arena] = ()

    def __post_init__(self) -> None:
        if len(self.variables) > 1:
            columns = (self.variables, *zip(*self.slots, strict=True))
            self.arenas = [Arena([variable.cell for variable in column]) for column in columns]

    def change(self, pack: Pack, how: RuleStep, local_index: int) -> None:
        """Change them along their gradients."""
        if self.arenas:
            assert pack.joined is not None
            values, *slots = self.arenas
            values.update(pack.joined[self.place], slots, how, local_index)
            return
        gradient = pack.gradients[self.first]
        assert gradient is not None
        cells = [slot.cell for slot in self.slots[0]]
        self.variables[0].cell.update(gradient, cells, how, local_index)


def are_outdated(runs: Sequence[Run]) -> bool:
    """Whether they are to be planned anew: asked in each step, so without generators."""
    arenas = [arena for run in runs for arena in run.arenas]
    return True in [arena.is_outdated for arena in arenas]


def plan_runs(
    pack: Pack,
    slots_of: Callable[[Variable], Sequence[Variable]],
    decays: Callable[[Variable], bool],
    joins: bool,
) -> list[Run]:
    """Cut a pack into runs that are as long as can be.

    Args:
        pack: Whose.
        slots_of: What the rule keeps beside a variable.
        decays: Whether the weights of a variable decay.
        joins: Whether the rule may go over several variables at once: it is elementwise.
    """
    variables = pack.variables
    slots = [slots_of(variable) for variable in variables]

    def kind(index: int) -> Hashable:
        cells = [variable.cell for variable in (variables[index], *slots[index])]
        if not joins or pack.joined is None or not all(cell.may_join for cell in cells):
            return index
        return decays(variables[index]), tuple(len(cell.leaves) for cell in cells)

    runs: list[Run] = []
    ends = [0, *accumulate(variable.size for variable in variables)]
    for _, indices in groupby(range(len(variables)), kind):
        first, *others = indices
        end = first + 1 + len(others)
        place = slice(ends[first], ends[end])
        run_decays = decays(variables[first])
        runs.append(Run(first, place, variables[first:end], slots[first:end], run_decays))
    return runs
