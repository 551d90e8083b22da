"""`RuleOptimizer`: an optimizer whose arithmetic is a rule, which any strategy can apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...autodiff import Array
from ...strategies import Pack, RuleStep, Variable
from .learning_rate import LearningRate
from .optimizer import Optimizer
from .rule import Rule
from .runs import Run, are_outdated, plan_runs

_NO_RUNS: tuple[object, Sequence[Run]] = None, ()


class RuleOptimizer(Optimizer):
    """Changes variables by one `Rule`, wherever they live.

    Args:
        rule: The arithmetic with its numbers, and the slots that it keeps beside each variable.
        learning_rate, name, options: See `Optimizer`.
    """

    def __init__(self, rule: Rule, learning_rate: LearningRate, name: str, **options: Any) -> None:
        shared: dict[str, Any] = {}
        if options:
            names = ("weight_decay", "use_ema", "ema_momentum", "ema_overwrite_frequency")
            shared = {name: options[name] for name in names if options.get(name) is not None}
        self._rule = self._plain_rule = replace(rule, **shared) if shared else rule
        self._slot_values = self._rule.slots()
        super().__init__(name, learning_rate=learning_rate, **options)
        self.weight_decay = self._rule.weight_decay or None
        self._rows_only = self._is_lazy or self._rule.keeps_unread()
        if self._is_lazy and not rule.is_elementwise:
            raise ValueError(
                f"sparse='lazy' changes single rows, and {rule.name} looks at whole variables; "
                f"leave it at 'dense', or use another optimizer"
            )

    def exclude_from_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        super().exclude_from_weight_decay(*args, **kwargs)
        self._plain_rule = replace(self._rule, weight_decay=0.0)

    def slots(self, variable: Variable) -> Sequence[Variable]:
        """What the rule keeps beside `variable`, created at the first call."""
        if not self._slot_values:
            return ()
        slots = self._slots_of(variable)
        if len(slots) < len(self._slot_values):
            for name, start in self._slot_values.items():
                self._slot(variable, name, self._rule.slot_shape(name, variable.shape), start)
        return [slots[name] for name in self._slot_values]

    def _kept_as(self) -> tuple[str, ...]:
        return tuple(self._slot_values)

    @property
    def _rule_name(self) -> str:
        return self._rule.name

    def _settings(self) -> dict[str, Any]:
        return {**self._rule.numbers, "sparse": "lazy" if self._rows_only else "dense"}

    def _require_servers_can(self) -> None:
        if not self._rule.is_elementwise:
            raise ValueError(
                f"optimizer {self.name!r} looks at whole variables, which parameter servers may "
                f"have in parts; use Adam there, or another strategy"
            )

    def _create_own_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.slots(variable)

    def _change(
        self,
        where: Array | None,
        packs: Sequence[Pack],
        num_updates: int,
        local_index: int,
        average: bool,
    ) -> None:
        rate, step = self.rate_after(num_updates), num_updates + 1
        how = plain = RuleStep(self._rule, rate, step, self._rows_only, average, where)
        if self._plain_rule is not self._rule:
            plain = replace(how, rule=self._plain_rule)
        for pack in packs:
            for run in self._runs(pack):
                run.change(pack, how if run.decays else plain, local_index)

    def _runs(self, pack: Pack) -> Sequence[Run]:
        """What of a pack is changed at once; planned once, as packs are alike in all steps."""
        known, joins = self._membership.latest.runs, self._rule.is_elementwise
        # Beside what `_kept_as` tells apart. By identity, as to hash many variables takes a while:
        # a bucket's are one tuple in all steps. Those of a pack of one variable are not.
        subject = pack.variables[0] if pack.joined is None else pack.variables
        key = (id(subject), joins, self._excluded)
        found, runs = known.get(key, _NO_RUNS)
        if found is not subject or are_outdated(runs):
            # Where several replicas plan at once each is right: an arena has no more in common with
            # others than its leaves.
            runs = plan_runs(pack, self.slots, self._decays, joins)
            known[key] = subject, runs  # which keeps the subject, so that no other has its id
        return runs
