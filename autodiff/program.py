"""One call of a function of tensors as operations on numbered places, without the tensors.

A trace holds all that was computed, a second batch's activations beside those of the step. What is
compared with the next call is less: which operations were called, with what from where, and the
constants. So a trace is turned into a program as soon as its call has ended.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from .constants import described
from .following import Followed, FollowedCall, ReplayError, Trace, finder
from .tensor import Tensor
from .tensor_like import TensorLike


@final
@dataclass(frozen=True)
class Instruction:
    """One operation of a program.

    Args:
        function: What to call.
        operands: Where its arguments lie.
        result: Where what it gives is to lie.
        name: Of the operation that was called, for messages.
        keywords: The names of its last arguments, which it is given by name.
        within: Variables of the context that were not as around the whole function, and how.
        forms: Of all that it gives, items of containers included: class, and shape and dtype.
        is_effect: Whether it is called for what it changes.
        is_by_host: Whether it does something else than compute arrays from arrays.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...]
    result: int
    name: str
    keywords: tuple[str, ...] = ()
    within: tuple[tuple[ContextVar[Any], Any], ...] = ()
    forms: list[tuple[type, str]] = field(default_factory=list)
    is_effect: bool = False
    is_by_host: bool = False


@final
class Program:
    """What a call has done that was followed.

    Args:
        trace: Of the call, with its outputs.

    Attributes:
        num_inputs: How many of the first places are those of the arrays that it was called with.
        values: The constants in their places, and None in those of inputs and results.
        called: The operations, and what their arguments and results were made or taken of.
        returned: What the outputs were made of.
        outputs: The places of the outputs.

    Raises:
        ReplayError: It did what no operation does.
    """

    def __init__(self, trace: Trace) -> None:
        trace.require_operations()
        self.num_inputs = len(trace.inputs)
        self.values: list[Any] = [None] * self.num_inputs
        self.called: list[Instruction] = []
        # By identity: the trace keeps alive what it is of, and is there until this has ended.
        self._places = {id(tensor): place for place, tensor in enumerate(trace.inputs)}
        self._computed = set(range(self.num_inputs))
        for call in trace.calls:
            self._add(call)
        num_called = len(self.called)
        self.outputs = [self._operand(value, "what it returns") for value in trace.outputs]
        self.called, self.returned = self.called[:num_called], self.called[num_called:]
        del self._places, self._computed

    def _add(self, call: FollowedCall) -> None:
        # What is given as it is by default needs no name, which costs a call.
        defaults = getattr(call.function, "__kwdefaults__", None) or {}
        named = {
            name: value
            for name, value in call.kwargs.items()
            if name not in defaults or defaults[name] is not value
        }
        arguments = [*call.args, *named.values()]
        operands = [self._operand(argument, call.name) for argument in arguments]
        if call.is_of_any_shape:
            _require_scalars(call.result, call.name)
        instruction = Instruction(
            call.function,
            tuple(operands),
            self._computed_place(),
            call.name,
            tuple(named),
            call.within,
            is_effect=call.is_effect,
            is_by_host=call.is_by_host,
        )
        self.called.append(instruction)
        # What gives an argument back as it is gives nothing that was not there.
        given = {id(argument) for argument in arguments}
        self._bind(call.result, instruction.result, given, call.name, instruction.forms)

    def _operand(self, value: Any, name: str) -> int:
        """The place of an argument; of a container with results in it, made anew each time."""
        place = self._places.get(id(value))
        if place is not None:
            return place
        find = finder(value)
        if find is not None:
            return self._derived(find, [], name, is_by_host=True)
        if type(value) in _MADE:
            items = [self._operand(item, name) for item in value]
            if not self._computed.isdisjoint(items):
                return self._derived(_MADE[type(value)], items, name)
        elif type(value) is dict:
            items = [self._operand(item, name) for item in value.values()]
            if not self._computed.isdisjoint(items):
                return self._derived(_dict_of, [self._put(tuple(value)), *items], name)
        elif isinstance(value, Tensor) and (type(value) is Followed or value.vjp is not None):
            raise ReplayError(f"{name} takes a tensor that no operation has given")
        return self._put(value)

    def _bind(
        self, value: Any, place: int, given: set[int], name: str, forms: list[tuple[type, str]]
    ) -> None:
        """Note where a result lies; of a list, tuple or dict, where its items do."""
        if isinstance(value, (tuple, list)) or type(value) is dict:
            keys = value if type(value) is dict else range(len(value))
            forms.append((type(value), f"a {type(value).__name__} of {len(value)}"))
            for key in keys:
                item = self._derived(operator.getitem, [place, self._put(key)], name)
                self._bind(value[key], item, given, name, forms)
        elif isinstance(value, (bool, int, float, complex, str, np.generic)):
            raise ReplayError(f"{name} gives {described(value)}, from which anything may follow")
        elif value is not None and id(value) not in given:
            array = value.like() if isinstance(value, TensorLike) else value
            forms.append((type(value), described(array)))
            self._places.setdefault(id(value), place)

    def _derived(
        self,
        function: Callable[..., Any],
        operands: Sequence[int],
        name: str,
        is_by_host: bool = False,
    ) -> int:
        place = self._computed_place()
        self.called.append(
            Instruction(function, tuple(operands), place, name, is_by_host=is_by_host)
        )
        return place

    def _put(self, constant: Any) -> int:
        self.values.append(constant)
        return len(self.values) - 1

    def _computed_place(self) -> int:
        place = self._put(None)
        self._computed.add(place)
        return place


def _tuple_of(*items: Any) -> tuple[Any, ...]:
    return items


def _list_of(*items: Any) -> list[Any]:
    return [*items]


def _dict_of(keys: Sequence[Any], *items: Any) -> dict[Any, Any]:
    return dict(zip(keys, items, strict=True))


_MADE: Mapping[type, Callable[..., Any]] = {tuple: _tuple_of, list: _list_of}


def _require_scalars(result: Any, name: str) -> None:
    """Refuse results from whose shape something may follow that is another in a later call."""
    if isinstance(result, (tuple, list)):
        for item in result:
            _require_scalars(item, name)
    elif type(result) is dict:
        _require_scalars([*result.values()], name)
    elif np.shape(result.like() if isinstance(result, TensorLike) else result):
        raise ReplayError(f"{name} gives {described(result)}, and may give another shape later")
