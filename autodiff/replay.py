"""A function of tensors as the flat list of operations that two calls of it have called.

Between two operations a function does what costs as much as small operations themselves: it makes
layers, looks for variables, checks arguments. Where it calls the same operations each time, on what
it was given, on variables and on constants, they can be called again without it. Each is called as
the function has called it, so that gradients, variables on servers, random numbers and what is
changed on the way are those of a call of the function.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, final

import numpy as np

from .constants import alike, described
from .following import Followed, FollowedCall, ReplayError, Trace, finder, standing_for
from .tensor import Tensor
from .tensor_like import Array, TensorLike


@final
class Replay:
    """What two traces of a function have in common, to be done again.

    Args:
        first, second: Of two calls with different arrays of the same shapes and dtypes.

    Attributes:
        values: The constants in their places, and None in those of inputs and results.
        steps: What is called.
        outputs: The places of the outputs.

    Raises:
        ReplayError: They differ in more than values, or did what no operation does.
    """

    def __init__(self, first: Trace, second: Trace) -> None:
        for trace in (first, second):
            trace.require_operations()
        plan = _Plan(first, second)
        self.values = plan.values
        self._num_inputs = len(first.inputs)
        self.steps = plan.needed_steps()
        self.outputs = plan.outputs

    def __call__(self, arrays: Sequence[Array]) -> list[Any]:
        """The outputs for other arrays, both in the order that they have in the traces."""
        values = self.beginning(arrays)
        call(self.steps, values)
        return [values[place] for place in self.outputs]

    def beginning(self, arrays: Sequence[Array]) -> list[Any]:
        """The values in their places before the first step."""
        values = self.values.copy()
        values[: self._num_inputs] = [standing_for(array) for array in arrays]
        return values


class Step(NamedTuple):
    """One operation.

    Args:
        function: What to call.
        operands: Where its arguments lie.
        result: Where what it gives is to lie.
        is_by_host: Whether it does something else than compute arrays from arrays.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...]
    result: int
    is_by_host: bool = False


def call(steps: Iterable[Step], values: list[Any]) -> None:
    """Make steps on values in their places."""
    for function, operands, result, _ in steps:
        values[result] = function(*[values[place] for place in operands])


class _Plan:
    """The places of inputs, constants and results, in one list, and what is computed there.

    Attributes:
        values: The constants in their places, and None in those of what is computed.
        outputs: The places of the outputs.
    """

    def __init__(self, first: Trace, second: Trace) -> None:
        self.values: list[Any] = [None] * len(first.inputs)
        self._steps: dict[int, Step] = {}
        self._effects: list[int] = []
        # By identity: the traces keep alive what they are of.
        self._places = [
            {id(tensor): place for place, tensor in enumerate(trace.inputs)}
            for trace in (first, second)
        ]
        for one, other in zip(first.calls, second.calls, strict=False):
            self._add(one, other)
        if len(first.calls) != len(second.calls):
            raise ReplayError("more operations are called the one time than the other")
        pairs = zip(first.outputs, second.outputs, strict=True)
        self.outputs = [self._operand(one, other, "what it returns") for one, other in pairs]

    def needed_steps(self) -> list[Step]:
        """Those that outputs or effects depend on, in their order."""
        wanted = {*self.outputs, *self._effects}
        kept = []
        for place, step in reversed(self._steps.items()):
            if place in wanted:
                kept.append(step)
                wanted.update(step.operands)
        return kept[::-1]

    def _add(self, one: FollowedCall, other: FollowedCall) -> None:
        if one.function is not other.function:
            raise ReplayError(f"{one.name} is called the one time, and {other.name} the other")
        arguments = [[*call.args, *call.kwargs.values()] for call in (one, other)]
        if len(arguments[0]) != len(arguments[1]) or one.kwargs.keys() != other.kwargs.keys():
            raise ReplayError(f"{one.name} is called with other arguments the next time")
        function = one.function
        if one.kwargs:
            function = functools.partial(_by_name, function, tuple(one.kwargs))
        if one.within or other.within:
            if one.within != other.within:
                raise ReplayError(f"{one.name} is called in another context the next time")
            function = functools.partial(_within, one.within, function)
        operands = [self._operand(a, b, one.name) for a, b in zip(*arguments, strict=True)]
        place = self._computed(function, operands, one.is_by_host)
        if one.is_effect:
            self._effects.append(place)
        # What gives an argument back as it is gives nothing that was not there.
        given = {id(argument) for argument in arguments[0]}
        if one.is_of_any_shape:
            _require_scalars(one.result, one.name)
        self._bind(one.result, other.result, place, given, one.name)

    def _operand(self, one: Any, other: Any, name: str) -> int:
        """The place of an argument; of a list or tuple with results in it, made anew each time."""
        first, second = (
            places.get(id(value)) for places, value in zip(self._places, (one, other), strict=True)
        )
        if first != second:
            raise ReplayError(f"{name} takes something else the next time")
        if first is not None:
            return first
        find = finder(one)
        if find is not None and find is finder(other):
            return self._computed(find, [])
        if type(one) in _MADE and type(other) is type(one) and len(one) == len(other):
            items = [self._operand(a, b, name) for a, b in zip(one, other, strict=True)]
            if any(self._is_computed(item) for item in items):
                return self._computed(_MADE[type(one)], items)
        elif type(one) is dict and type(other) is dict and list(one) == list(other):
            items = [self._operand(one[key], other[key], name) for key in one]
            if any(self._is_computed(item) for item in items):
                return self._computed(functools.partial(_dict_of, tuple(one)), items)
        elif isinstance(one, Tensor) and (type(one) is Followed or one.vjp is not None):
            raise ReplayError(f"{name} takes a tensor that no operation has given")
        if not alike(one, other):
            raise ReplayError(
                f"{name} takes {described(one)} that is another the next time, and that no "
                f"operation has given: a random number or a count, or what was computed outside"
            )
        return self._put(one)

    def _bind(self, one: Any, other: Any, place: int, given: set[int], name: str) -> None:
        """Note where a result lies; of a list, tuple or dict, where its items do."""
        if isinstance(one, (tuple, list)):
            if type(other) is not type(one) or len(one) != len(other):
                raise ReplayError(f"{name} gives another number of results the next time")
            for i, (a, b) in enumerate(zip(one, other, strict=True)):
                item = self._computed(operator.itemgetter(i), [place])
                self._bind(a, b, item, given, name)
        elif type(one) is dict:
            if type(other) is not dict or list(one) != list(other):
                raise ReplayError(f"{name} gives other results the next time")
            for key in one:
                item = self._computed(operator.itemgetter(key), [place])
                self._bind(one[key], other[key], item, given, name)
        elif isinstance(one, (bool, int, float, complex, str, np.generic)):
            raise ReplayError(f"{name} gives {described(one)}, from which anything may follow")
        elif one is not None and id(one) not in given:
            if _form(one) != _form(other):
                raise ReplayError(f"{name} gives {described(one)}, and {described(other)} then")
            for places, value in zip(self._places, (one, other), strict=True):
                places.setdefault(id(value), place)

    def _put(self, constant: Any) -> int:
        self.values.append(constant)
        return len(self.values) - 1

    def _computed(
        self, function: Callable[..., Any], operands: Sequence[int], is_by_host: bool = False
    ) -> int:
        place = self._put(None)
        self._steps[place] = Step(function, tuple(operands), place, is_by_host)
        return place

    def _is_computed(self, place: int) -> bool:
        return place in self._steps or place in self._places[0].values()


def _tuple_of(*items: Any) -> tuple[Any, ...]:
    return items


def _list_of(*items: Any) -> list[Any]:
    return [*items]


def _dict_of(keys: Sequence[Any], *items: Any) -> dict[Any, Any]:
    return dict(zip(keys, items, strict=True))


_MADE: dict[type, Callable[..., Any]] = {tuple: _tuple_of, list: _list_of}


def _by_name(function: Callable[..., Any], names: Sequence[str], *args: Any) -> Any:
    """Call with the last arguments by name."""
    num = len(args) - len(names)
    return function(*args[:num], **dict(zip(names, args[num:], strict=True)))


def _within(
    settings: Iterable[tuple[ContextVar[Any], Any]], function: Callable[..., Any], *args: Any
) -> Any:
    """Call with variables of the context set."""
    tokens = [(variable, variable.set(value)) for variable, value in settings]
    try:
        return function(*args)
    finally:
        for variable, token in tokens:
            variable.reset(token)


def _require_scalars(result: Any, name: str) -> None:
    """Refuse results from whose shape something may follow that is another in a later call."""
    if isinstance(result, (tuple, list)):
        for item in result:
            _require_scalars(item, name)
    elif type(result) is dict:
        _require_scalars([*result.values()], name)
    elif np.shape(result.like() if isinstance(result, TensorLike) else result):
        raise ReplayError(f"{name} gives {described(result)}, and may give another shape later")


def _form(value: Any) -> Any:
    """What is the same of a result each time."""
    array = value.like() if isinstance(value, TensorLike) else value
    shape = getattr(array, "shape", None)
    return type(value), shape, None if shape is None else array.dtype
