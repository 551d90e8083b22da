"""What is wrong with the description of a cluster."""

from __future__ import annotations


class ClusterError(ValueError):
    """The cluster, or this process's place in it, is described wrongly."""


def shown(value: object, limit: int = 160) -> str:
    """A value as an error prints it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= limit else f"{text[:limit]}…"
