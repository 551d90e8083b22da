"""Which operations a piece of code calls: for who writes a model down in another form."""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, final

from . import custom
from .activations import (
    elu,
    erf,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from .convolution import conv, conv2d, conv2d_relu_max_pool2d
from .cross_entropy import sigmoid_cross_entropy, softmax_cross_entropy
from .dense import dense
from .normalization import normalize
from .pooling import avg_pool, avg_pool2d, max_pool, max_pool2d
from .reductions import logsumexp
from .tensor import record, record_view
from .tensor_like import FUNCTIONS

_OURS: tuple[Callable[..., Any], ...] = (
    *(elu, erf, gelu, leaky_relu, log_softmax, relu, sigmoid, silu, softmax, softplus),
    *(conv, conv2d, conv2d_relu_max_pool2d, avg_pool, avg_pool2d, max_pool, max_pool2d),
    *(dense, logsumexp, normalize),
    *(sigmoid_cross_entropy, softmax_cross_entropy),
    *(
        custom.record,
        record,
        record_view,
    ),  # called by nobody of these: an operation of somebody's own
)


@final
@dataclass(frozen=True)
class Call:
    """One operation that was called.

    Args:
        function: NumPy's, or one of this package's that NumPy has not.
        args, kwargs: What it was called with.
        result: What it gave.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@contextmanager
def trace() -> Iterator[list[Call]]:
    """Note the operations that this thread calls within the block, but not what these call.

    It listens through Python's hook for profilers. So operations know nothing of it, and a training
    step pays nothing; a note by each of them, or a wrapper around it, would cost a few percent of a
    small one.

    Yields:
        The calls, in the order in which they return. They hold all that they were given and gave.
    """
    noted = _Calls(operations_by_code())
    with listening(noted):
        yield noted.calls


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell `listener` what Python functions this thread calls within the block."""
    before = sys.getprofile()
    sys.setprofile(listener)
    try:
        yield
    finally:
        sys.setprofile(before)


class Listener(ABC):
    """Hears of calls of Python functions, and notes those of operations.

    Args:
        operations: By their code, what they are called.

    Attributes:
        frame: That of the operation that is being called, if one is.
    """

    def __init__(self, operations: Mapping[CodeType, Callable[..., Any]]) -> None:
        self.frame: FrameType | None = None
        self._operations = operations

    @abstractmethod
    def note(self, call: Call) -> None:
        """Told of each call when it has returned, but not of what it calls itself."""

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        if self.frame is None:
            if event == "call" and frame.f_code in self._operations:
                # Now: the operation binds its arguments' names anew.
                self._function = self._function_of(frame)
                self._arguments = _arguments(frame)
                self.frame = frame
        elif frame is self.frame and event == "return":
            self.frame = None
            self.note(Call(self._function, *self._arguments, result))

    def _function_of(self, frame: FrameType) -> Callable[..., Any]:
        # Several functions of NumPy's may share our code, which knows its own as `function`.
        if "function" in frame.f_code.co_freevars:
            return frame.f_locals["function"]
        return self._operations[frame.f_code]


@final
class _Calls(Listener):
    def __init__(self, operations: Mapping[CodeType, Callable[..., Any]]) -> None:
        super().__init__(operations)
        self.calls: list[Call] = []

    def note(self, call: Call) -> None:
        self.calls.append(call)


def functions_by_name() -> dict[str, Callable[..., Any]]:
    """NumPy's functions and Python's operators that work on tensors, by their import paths."""
    return {f"{getattr(f, '__module__', None) or 'numpy'}.{f.__name__}": f for f in FUNCTIONS}


def operations_by_code() -> dict[CodeType, Callable[..., Any]]:
    """Ours and those that stand for NumPy's, by the code that runs when they are called."""
    found: dict[CodeType, Callable[..., Any]] = {ours.__code__: ours for ours in _OURS}
    for function, ours in FUNCTIONS.items():
        found.setdefault(ours.__code__, function)
    return found


def _arguments(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function that has just been entered was called with."""
    code, values = frame.f_code, frame.f_locals
    num_named = code.co_argcount + code.co_kwonlyargcount
    args = tuple(values[name] for name in code.co_varnames[: code.co_argcount])
    kwargs = {name: values[name] for name in code.co_varnames[code.co_argcount : num_named]}
    rest = iter(code.co_varnames[num_named:])
    if code.co_flags & inspect.CO_VARARGS:
        args += values[next(rest)]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= values[next(rest)]
    return args, kwargs
