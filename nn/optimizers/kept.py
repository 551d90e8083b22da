"""What optimizers keep of a model besides its variables, and how checkpoints have it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...observe import log_once
from ...strategies import GradientReducer, Variable, VariableStore, current_store
from ..serialization import deserialize, serialize
from .learning_rate import schedule_of
from .runs import Run

_logger = logging.getLogger("paceline")

_KIND = "optimizer"


class Kept:
    """What an optimizer has found in the store of one model."""

    __slots__ = (
        "__weakref__",
        "accumulators",
        "assigned_rate",
        "batches",
        "described",
        "global_step",
        "iterations",
        "lock",
        "reducers",
        "runs",
        "scale",
        "slots",
    )

    def __init__(self) -> None:
        self.lock = threading.Lock()  # replicas have optimizers of their own, and this in common
        self.iterations: Variable | None = None
        self.batches: Variable | None = None
        self.scale: tuple[Variable, ...] = ()
        self.global_step: Variable | None = None
        self.described: tuple[dict[str, Any], str] = {}, ""
        self.assigned_rate: Callable[[int], float] | None = None
        self.slots: dict[str, tuple[Variable, dict[str, Variable]]] = {}
        self.accumulators: dict[str, tuple[Variable, Variable]] = {}
        self.reducers: dict[tuple[Any, ...], GradientReducer] = {}
        self.runs: dict[tuple[Any, ...], tuple[object, Sequence[Run]]] = {}

    def get_state(self) -> dict[str, Any]:
        """See `Optimizer.get_state`."""
        if self.assigned_rate is None:
            return {}
        try:
            return {"learning_rate": serialize(self.assigned_rate)}
        except TypeError as error:
            log_once(
                logging.WARNING,
                "No checkpoint has the learning rate that was assigned, which is a function (%s): "
                "assign it again to a run that goes on, or assign a schedule.",
                error,
            )
            return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Optimizer.set_state`."""
        rate = state.get("learning_rate")
        self.assigned_rate = None if rate is None else schedule_of(deserialize(rate))

    @staticmethod
    def of(slots: Sequence[str], name: str) -> Kept:
        """What optimizers of this name have found, of which most are made anew for each step."""
        kept: Kept = current_store().find_or_create((_KIND, name, *slots), Kept)
        return kept

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()  # a copy of an optimizer finds its variables by their names


def states_of_optimizers(store: VariableStore) -> list[Any]:
    """What a checkpoint of a model is to have of its optimizers beside their variables.

    Returns:
        For each that has something a pair: its name with what else it is found by, and its state.
    """
    found = []
    for key, kept in list(store.resources.items()):
        if isinstance(key, tuple) and key[:1] == (_KIND,) and (state := kept.get_state()):
            found.append([[*key[1:]], state])
    return found


def restore_optimizers(store: VariableStore, states: Sequence[Any]) -> None:
    """Let the optimizers of a model begin with what `states_of_optimizers` has found."""
    for (name, *slots), state in states:
        kept: Kept = store.find_or_create((_KIND, name, *slots), Kept)
        try:
            kept.set_state(state)
        except ValueError as error:
            _logger.warning(
                "Optimizer %r goes on with the learning rate that it was made with; the one that "
                "was assigned to it cannot be restored: %s",
                name,
                error,
            )
        else:
            _logger.info(
                "Optimizer %r goes on with the learning rate that was assigned to it: %s.",
                name,
                kept.assigned_rate,
            )
