"""`variable_creator_scope`: a say in how variables are created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

from .variables import Variable

Creator: TypeAlias = Callable[..., Variable]

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("paceline_variable_creators", default=())


@contextmanager
def variable_creator_scope(creator: Callable[..., Variable]) -> Iterator[None]:
    """Let `creator(next_creator, **kwargs)` take part in creating each variable in this block.

    It may change the arguments before it calls `next_creator(**kwargs)`, and wrap or replace what
    comes back. Scopes nest; the innermost is asked first.
    """
    token = _creators.set((*_creators.get(), creator))
    try:
        yield
    finally:
        _creators.reset(token)


def create_through_scopes(create: Creator, **kwargs: Any) -> Variable:
    """`create(**kwargs)`, seen by each `variable_creator_scope` around the caller."""
    for creator in _creators.get():
        create = partial(creator, create)
    return create(**kwargs)
