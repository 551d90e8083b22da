"""`chief_first`: what one worker prepares for all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .strategy import Strategy, get_strategy


@contextmanager
def chief_first(strategy: Strategy | None = None) -> Iterator[None]:
    """The chief runs the block first; the others begin it when the chief has ended it.

    For what one worker does and the others then find: unpacking files, building a cache or a
    vocabulary on a disk that they share. All workers call it. While they wait they are alive, so
    that nobody takes them for lost; if the chief fails in the block, they end with its name.

    Args:
        strategy: Whose workers; by default the current strategy. It goes on at once where there is
            only one.

    Raises:
        CollectiveError: The chief has gone, or took longer than the strategy's `timeout_seconds`.
    """
    job = (strategy or get_strategy()).extended.job
    if not job.is_chief:
        job.text_from_chief("", "what the chief does first")
    yield
    if job.is_chief:
        job.text_from_chief("done", "what the chief does first")
