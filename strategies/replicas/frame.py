"""Under which strategy the calling code runs, and as which replica.

The answer is one context variable: a strategy's `scope` sets it to (strategy, no replica), which is
the cross-replica context, and `run` sets it to (strategy, replica) for each replica. Where nobody
has set it, the default strategy is current, with its one replica.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """Where code runs: under which strategy, and as which replica (None: cross-replica).

    A tuple, since one is made for each run. `Strategy` and `ReplicaContext` stand above this file,
    in which they are only told apart.
    """

    strategy: Any
    replica: Any
    has_examples: tuple[bool, ...] | None = None
    """In a `merge_call`: which replicas of this worker have examples; None where all count."""


_frame: ContextVar[Frame] = ContextVar("paceline_frame")
_default: list[Frame] = []


def install_default_frame(frame: Frame) -> None:
    """Make `frame` the one outside any scope. Called once, by the module of the default strategy.

    A context variable's own default would have to be there before the strategies are.
    """
    assert not _default, "the default strategy is a singleton"
    _default.append(frame)


def default_frame() -> Frame:
    """That of code outside any scope."""
    return _default[0]


def current_frame() -> Frame:
    """Where the caller runs."""
    return _frame.get(None) or _default[0]


def enter_for_good(frame: Frame) -> None:
    """Run what follows in the calling context under `frame`: for who has a context of its own."""
    _frame.set(frame)


class entered:  # noqa: N801 (used in `with`, like a function; a class is entered faster)
    """Run the block under `frame`."""

    __slots__ = ("_token", "_within")

    def __init__(self, frame: Frame) -> None:
        self._within = frame

    def __enter__(self) -> None:
        self._token = _frame.set(self._within)

    def __exit__(self, *exc_info: object) -> None:
        _frame.reset(self._token)


def outside_scopes() -> entered:
    """Run the block as code outside any scope, whoever calls it."""
    return entered(default_frame())


def has_strategy() -> bool:
    """Whether a strategy other than the default one is current."""
    return current_frame().strategy is not _default[0].strategy


def in_cross_replica_context() -> bool:
    """Whether the caller is inside a strategy's scope but not inside a replica of it."""
    return current_frame().replica is None


def stands_in() -> bool:
    """Whether the caller is a replica without examples, whose contributions weigh nothing."""
    replica = current_frame().replica
    return replica is not None and not replica.has_examples


def require_no_replica(verb: str) -> None:
    """Refuse `verb` in a replica of a strategy other than the default one."""
    if has_strategy() and current_frame().replica is not None:
        strategy = current_frame().strategy
        raise RuntimeError(
            f"{verb} was called inside a replica of {strategy!r}; call it outside `run`, or "
            f"use what get_replica_context() offers: all_reduce, all_gather, merge_call"
        )


def require_no_other(strategy: object, verb: str) -> None:
    """Refuse `verb` of one strategy inside the scope of another but the default one."""
    if has_strategy() and current_frame().strategy is not strategy:
        raise RuntimeError(
            f"{verb} of {strategy!r} was called inside the scope of {current_frame().strategy!r}; "
            f"leave the other scope first, strategies do not nest"
        )
