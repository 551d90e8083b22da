"""Calling a user's function with those of our arguments that it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any


def chosen_arguments(
    function: Callable[..., Any], what: str, allowed: Collection[str]
) -> frozenset[str]:
    """Those of the `allowed` arguments that `function` names and that are not bound already.

    Raises:
        TypeError: It is not callable.
        ValueError: It needs an argument that is not among them.
    """
    if not callable(function):
        raise TypeError(f"{what} must be a function, it is {function!r}")
    parameters = inspect.signature(function).parameters.values()
    bound = frozenset(function.keywords) if isinstance(function, partial) else frozenset()
    unknown = [
        p.name
        for p in parameters
        if p.name not in allowed
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if unknown:
        raise ValueError(
            f"{what} has the argument(s) {', '.join(unknown)}, which nobody would fill in; "
            f"it may name {', '.join(allowed)} (any other needs a default value)"
        )
    return frozenset(p.name for p in parameters if p.name in allowed) - bound
