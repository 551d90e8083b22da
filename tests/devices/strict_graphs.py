"""The part of `cupy.cuda` that captures graphs, for `strict_cupy`.

While a stream is captured a GPU computes nothing. Here a call computes all the same, for shapes and
dtypes, and what it has written is made no number at the end: it is right after a launch, which
makes the same calls again and puts their results where those of the capture lie. Whoever waits for
the device or copies from usual host memory meanwhile, or takes memory from the common pool, which
would give it to others as well, is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from . import strict_cuda as cuda

_thread = threading.local()


class MemoryPool:
    """A pool of its own."""

    def malloc(self, size: int) -> Any:
        return cuda.allocate(size)


def _pool() -> MemoryPool:
    """That from which the calling thread takes memory."""
    allocator: Any = cuda.get_allocator()
    pool = getattr(getattr(allocator, "below", allocator), "__self__", None)
    if not isinstance(pool, MemoryPool):
        raise AssertionError("a graph needs memory that nobody else is given: a pool of its own")
    return pool


class Graph:
    """Calls, in their order."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self._calls: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self._is_within = False
        self._pool = _pool()

    def note(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._is_within:  # a call of another one
            return function(*args, **kwargs)
        self._is_within = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._is_within = False
        self._calls.append((function, args, kwargs, result))
        return result

    def debug_dot_str(self, flags: int = 0) -> str:
        return "digraph dot { }"

    def end(self) -> None:
        for array in self.written:
            _spoil(array._array)
        self.written = []

    def launch(self, stream: Any = None) -> None:
        assert stream is None or stream is cuda.get_current_stream()
        on_launch(f"graph of {len(self._calls)}")
        _thread.is_launching = True
        try:
            for function, args, kwargs, result in self._calls:
                _overwrite(result, function(*args, **kwargs))
        finally:
            _thread.is_launching = False


def _overwrite(result: Any, again: Any) -> None:
    if isinstance(result, (tuple, list)):
        for one, other in zip(result, again, strict=True):
            _overwrite(one, other)
    elif hasattr(result, "_array") and not np.may_share_memory(result._array, again._array):
        np.copyto(result._array, again._array)
        result._memory.write()


def _spoil(array: np.ndarray) -> None:
    array[...] = np.nan if array.dtype.kind == "f" else 77


on_launch: Callable[[str], None] = lambda name: None  # noqa: E731
"""Told of each launch."""


def is_launching() -> bool:
    """Whether a graph makes the calls of this thread, and nobody else."""
    return getattr(_thread, "is_launching", False)


def capturing() -> Graph | None:
    """The graph that the calling thread's stream becomes part of."""
    return cuda.get_current_stream().graph


def require_none(what: str) -> None:
    """Refuse what cannot be captured."""
    if capturing() is not None:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a graph that is being captured hear of calls."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        graph = capturing()
        return function(*args, **kwargs) if graph is None else graph.note(function, args, kwargs)

    return call


cuda.new_graph = Graph
