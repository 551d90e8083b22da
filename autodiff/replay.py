"""A function of tensors as the flat list of operations that two calls of it have called.

Between two operations a function does what costs as much as small operations themselves: it makes
layers, looks for variables, checks arguments. Where it calls the same operations each time, on what
it was given, on variables and on constants, they can be called again without it. Each is called as
the function has called it, so that gradients, variables on servers, random numbers and what is
changed on the way are those of a call of the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any, NamedTuple, final

from .constants import alike, described
from .following import ReplayError, standing_for
from .program import Instruction, Program
from .tensor_like import Array


@final
class Replay:
    """What two calls of a function have in common, to be done again.

    Args:
        first, second: Of two calls with different arrays of the same shapes and dtypes.

    Attributes:
        values: The constants in their places, and None in those of inputs and results.
        steps: What is called.
        outputs: The places of the outputs.

    Raises:
        ReplayError: They differ in more than values.
    """

    def __init__(self, first: Program, second: Program) -> None:
        _require_alike(first, second)
        needed, wanted = _needed(first)
        self.steps = [
            Step(_bound(each), each.operands, each.result, each.is_by_host) for each in needed
        ]
        self.values = [
            value if place in wanted else None for place, value in enumerate(first.values)
        ]
        self.outputs = first.outputs
        self._num_inputs = first.num_inputs

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


def _require_alike(first: Program, second: Program) -> None:
    """Refuse programs that differ in more than the values of results."""
    _require_alike_instructions(first, second, first.called, second.called)
    if len(first.called) != len(second.called):
        raise ReplayError("more operations are called the one time than the other")
    _require_alike_instructions(first, second, first.returned, second.returned)
    _require_alike_operands(first, second, first.outputs, second.outputs, "what it returns")


def _require_alike_instructions(
    first: Program, second: Program, ones: Iterable[Instruction], others: Iterable[Instruction]
) -> None:
    for one, other in zip(ones, others, strict=False):
        if one.function is not other.function:
            if one.name != other.name:
                raise ReplayError(f"{one.name} is called the one time, and {other.name} the other")
            raise ReplayError(f"{one.name} takes something else the next time")
        if len(one.operands) != len(other.operands) or one.keywords != other.keywords:
            raise ReplayError(f"{one.name} is called with other arguments the next time")
        if one.within != other.within:
            raise ReplayError(f"{one.name} is called in another context the next time")
        _require_alike_operands(first, second, one.operands, other.operands, one.name)
        for before, then in zip_longest(one.forms, other.forms, fillvalue=(None, "no more")):
            if before != then:
                raise ReplayError(f"{one.name} gives {before[1]}, and {then[1]} the next time")


def _require_alike_operands(
    first: Program, second: Program, ones: Sequence[int], others: Sequence[int], name: str
) -> None:
    if ones != others:
        raise ReplayError(f"{name} takes something else the next time")
    for place in ones:
        if not alike(first.values[place], second.values[place]):
            raise ReplayError(
                f"{name} takes {described(first.values[place])} that is another the next time, and "
                f"that no operation has given: a random number or a count, or what was computed "
                f"outside"
            )


def _needed(program: Program) -> tuple[list[Instruction], set[int]]:
    """What outputs or effects depend on, in its order, and all places that matter for them."""
    wanted = set(program.outputs)
    kept = []
    for each in reversed([*program.called, *program.returned]):
        if each.is_effect or each.result in wanted:
            kept.append(each)
            wanted.update(each.operands)
    return kept[::-1], wanted


def _bound(instruction: Instruction) -> Callable[..., Any]:
    """Its function as one of its operands alone."""
    function = instruction.function
    if instruction.keywords:
        function = functools.partial(_by_name, function, instruction.keywords)
    if instruction.within:
        function = functools.partial(_within, instruction.within, function)
    return function


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
