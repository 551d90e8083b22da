"""What a function of tensors does with them, operation by operation: what a `Program` is made of.

A function is followed through a call: which operations it calls, with what, and whether it looks
at a tensor in any other way, by `float`, `numpy()`, `.data`. What depends on such a look no list of
operations repeats, and so it is noted as a reason not to.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar, cast, final

import numpy as np

from . import custom
from .constants import BY_VALUE, described
from .depthwise_convolution import depthwise_conv
from .gathering import gather, gather_nd, scatter_nd, segment, top_k
from .recording import follower, recording
from .recurrence import recurrent
from .tensor import Tensor, record, record_view, snapshot, stop_gradient
from .tensor_like import FUNCTIONS, Array, TensorLike
from .tracing import Call, Listener, listening, operations_by_code
from .transposed_convolution import conv_transpose

_Function = TypeVar("_Function", bound=Callable[..., Any])

_operations: dict[CodeType, Callable[..., Any]] = {}
_effects: set[Callable[..., Any]] = set()
_of_any_shape: set[Callable[..., Any]] = set()
_by_host: set[Callable[..., Any]] = set()
_looks: dict[CodeType, Callable[..., Any]] = {}
_finders: dict[type, Callable[[], Any]] = {}
_surroundings: list[ContextVar[Any]] = [recording]

_NOT_THE_USERS = str(Path(__file__).parent.parent), str(Path(np.__file__).parent)
_STANDS_FOR_ARRAY = object()
_data: Any = vars(Tensor)["data"]  # the slot itself


class ReplayError(Exception):
    """What a function does cannot be done again as a list of operations; the message says why."""


def operation(function: _Function) -> _Function:
    """Mark a function, or method, that may be called again with other arrays in the same places.

    What it does with their values is its own affair; its results are arrays, tensors or objects,
    no numbers, and their shapes follow from those that it is given. It stays as it is; while
    somebody is followed, a call of it counts as a whole.
    """
    _operations[function.__code__] = function
    return function


def effect(function: _Function) -> _Function:
    """The same for one that is called for what it changes, whether its result is used or not."""
    _effects.add(function)
    return operation(function)


def of_any_shape(function: _Function) -> _Function:
    """Mark an operation whose results have shapes that follow from something else, if any."""
    _of_any_shape.add(function)
    return function


def by_host(function: _Function) -> _Function:
    """The same for one whose result depends on more than its arguments, or is no array.

    It draws numbers, looks at values, or makes an object; no graph of a card does any of that.
    """
    _by_host.add(function)
    return operation(function)


def look(function: _Function) -> _Function:
    """Mark a function that tells values of a tensor, or meets others, as no operation does."""
    _looks[function.__code__] = function
    return function


def found_anew(kind: type, find: Callable[[], Any]) -> None:
    """Note a class of which each call has another object, which `find` gives where it is called."""
    _finders[kind] = find


def finder(value: Any) -> Callable[[], Any] | None:
    """What finds the object of the same meaning in another call; None where it is the same."""
    return _finders.get(type(value))


def surrounding(variable: ContextVar[Any]) -> ContextVar[Any]:
    """Note a variable of the context on whose value it depends what operations do."""
    _surroundings.append(variable)
    return variable


def standing_for(array: Array) -> Tensor:
    """The tensor that a function which is followed, or done again, has in the place of an array."""
    return Tensor(array, owner=_STANDS_FOR_ARRAY)


def given_array(value: Any) -> Any:
    """Within an operation: the array that such a tensor stands for; anything else is itself."""
    stands = isinstance(value, Tensor) and value.owner is _STANDS_FOR_ARRAY
    return value.data if stands else value


for _ours in (
    *(conv_transpose, depthwise_conv, gather, gather_nd, scatter_nd, segment, top_k, recurrent),
    *(snapshot, stop_gradient),
):
    operation(_ours)
for _name in ("__bool__", "__float__", "__int__", "__format__", "__array__", "item", "numpy"):
    look(getattr(TensorLike, _name))

_STATIC = frozenset((np.shape, np.ndim, np.size, np.result_type))
"""What depends on shapes and dtypes alone: it is the same for all arrays that are alike."""

_OF_VALUES = frozenset(
    (np.nonzero, np.flatnonzero, np.argwhere, np.count_nonzero, np.allclose, np.array_equal)
)
"""What gives numbers, or shapes, that depend on values; others do where `_depends_on_values`."""

_OF_ONES_OWN = frozenset((record, record_view, custom.record))


@final
class Followed(Tensor):
    """A tensor of a function that is being followed; afterwards one like any other."""

    __slots__ = ()

    @property
    def data(self) -> Array:
        following = follower.get()
        if following is not None and following.frame is None:
            following.refuse("`.data` of a tensor is read", sys._getframe(1))
        return _data.__get__(self)

    @data.setter
    def data(self, array: Array) -> None:
        _data.__set__(self, array)

    def like(self) -> Array:
        return _data.__get__(self)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = _data.__get__(self).shape
        return shape


@final
@dataclass(frozen=True)
class FollowedCall:
    """An operation that was called.

    Args:
        function: What to call, to do it again.
        name: Of what was called: NumPy's, where `function` is ours that stands for it.
        args, kwargs: What it was called with.
        result: What it gave.
        within: Variables of the context that were not as around the whole function, and how.
    """

    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    within: tuple[tuple[ContextVar[Any], Any], ...]

    @property
    def is_effect(self) -> bool:
        return self.function in _effects

    @property
    def is_of_any_shape(self) -> bool:
        return self.function in _of_any_shape

    @property
    def is_by_host(self) -> bool:
        return self.is_effect or self.function in _by_host


@final
class Trace:
    """One call of a function, followed.

    Args:
        arrays: What it is called with, in an order of the caller's.

    Attributes:
        inputs: The tensors that stand for `arrays`.
        calls: The operations.
        refusals: Why they are not all that it did; empty where they are.
        outputs: What came of it, in an order of the caller's; to be set.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.inputs = [_followed(standing_for(array)) for array in arrays]
        self.calls: list[FollowedCall] = []
        self.refusals: list[str] = []
        self.outputs: Sequence[Any] = ()

    def require_operations(self) -> None:
        """Make sure that the operations are all that was done.

        Raises:
            ReplayError: They are not; the message says what else was.
        """
        for reason in self.refusals:
            raise ReplayError(reason)

    @contextmanager
    def following(self) -> Iterator[None]:
        """In the block, in this thread, the function is called."""
        following = _Follower(self)
        token = follower.set(following)
        try:
            with listening(following):
                yield
        finally:
            follower.reset(token)


class _Follower(Listener):
    def __init__(self, trace: Trace) -> None:
        super().__init__({**operations_by_code(), **_operations, **_looks})
        self._trace = trace
        self._around = [variable.get() for variable in _surroundings]
        self._within: tuple[tuple[ContextVar[Any], Any], ...] = ()

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        is_first = self.frame is None
        super().__call__(frame, event, result)
        if is_first and self.frame is not None:
            around = zip(_surroundings, self._around, strict=True)
            self._within = tuple(
                (variable, variable.get()) for variable, value in around if variable.get() != value
            )
            if frame.f_code in _looks:
                self.refuse(f"{_looks[frame.f_code].__qualname__} is called", frame.f_back)
            elif self._function in _OF_ONES_OWN:
                self.refuse("an operation of one's own is called", frame.f_back)
            elif any((find := finder(arg)) and find() is not arg for arg in self._arguments[0]):
                self.refuse("an object of another place is used", frame.f_back)
            elif _depends_on_values(self._function, *self._arguments):
                self.refuse(f"np.{self._function.__name__} by values is called", frame.f_back)

    def note(self, call: Call) -> None:
        if call.function in _STATIC or getattr(call.function, "__code__", None) in _looks:
            return
        ours = FUNCTIONS.get(call.function, call.function)
        name = getattr(call.function, "__qualname__", call.function.__name__)
        self._trace.calls.append(
            FollowedCall(ours, name, call.args, call.kwargs, _marked(call.result), self._within)
        )

    def kept(self, result: Any) -> Any:
        """Arrays that an operation without gradients has given, as tensors."""
        if isinstance(result, (tuple, list)):
            items = [self.kept(item) for item in result]
            return result._make(items) if hasattr(result, "_make") else type(result)(items)
        if type(result) is dict:
            return {key: self.kept(item) for key, item in result.items()}
        if isinstance(result, TensorLike):
            return result
        if isinstance(result, np.generic):
            result = np.asarray(result)
        if hasattr(result, "__array_ufunc__"):
            return _followed(Tensor(result))
        if result is not None and not isinstance(result, BY_VALUE):
            self.refuse(f"{described(result)} is given, in which there may be values", self.frame)
        return result

    def refuse(self, what: str, frame: FrameType | None) -> None:
        """Note a reason, and where it lies: in which function of ours, and where it was called."""
        if frame is None:
            self._trace.refusals.append(what)
            return
        within, place = frame.f_code, frame
        while place.f_code.co_filename.startswith(_NOT_THE_USERS) and place.f_back is not None:
            place = place.f_back
        by = "" if within is place.f_code else f" by {within.co_qualname}"
        at = f"{place.f_code.co_filename}:{place.f_lineno}"
        self._trace.refusals.append(f"{what}{by}, at {at}")


def _depends_on_values(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    if function is operator.getitem:
        index = args[1] if isinstance(args[1], tuple) else args[1:]
        return any(getattr(item, "dtype", None) == np.bool_ for item in index)
    if function is np.where:
        return args[1] is None
    if function is np.repeat:
        return np.ndim(args[1]) > 0
    return function in _OF_VALUES


def _marked(result: Any) -> Any:
    """What an operation has given: plain tensors in it are followed from now on."""
    if isinstance(result, (tuple, list)):
        for item in result:
            _marked(item)
    elif type(result) is dict:
        _marked([*result.values()])
    elif type(result) is Tensor:
        _followed(result)
    return result


def _followed(tensor: Tensor) -> Followed:
    tensor.__class__ = Followed
    return cast(Followed, tensor)
