"""Operations of one's own, and gradients of one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tensor as _tensor
from .backward import reachable
from .higher_order import first_order_only
from .recording import no_grad
from .tensor import Tensor, Vjp, lift_array
from .tensor_like import Array


def record(data: Array, inputs: tuple[Tensor, ...], vjp: Vjp) -> Tensor:
    """The result of an operation of one's own, tied to `inputs` where one of them needs a gradient.

    Args:
        data: The result.
        inputs: The tensors that it was computed from.
        vjp: Carries a gradient of the result to one for each input, see `Vjp`. It is given arrays;
            for a gradient of a gradient write the operation with `custom_gradient`.
    """

    def of_arrays(g: Array, outs: Any) -> Sequence[Any]:
        if type(g) is Tensor:
            first_order_only(g, _name_of(vjp))
        return vjp(g, outs)

    return _tensor.record(data, inputs, of_arrays)


def _name_of(vjp: Vjp) -> str:
    """The name of the operation whose vjp this is: that of the function around it."""
    function = vjp.func if isinstance(vjp, functools.partial) else vjp
    name: str = getattr(function, "__qualname__", type(vjp).__name__)
    return name.rsplit(".<locals>", 1)[0].rpartition(".")[2]


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `function(*tensors, **options)`, which gives its result and a function for backward.

    The second is called with a gradient for each result, tensors, and gives one for each argument.
    What it computes from these and from the arguments has a gradient again.

    >>> import numpy as np
    >>> @custom_gradient
    ... def log1pexp(x):
    ...     e = np.exp(x)
    ...     return np.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))

    Returns:
        A function of the same arguments, which gives the result alone.

    Raises:
        TypeError: `function` reads a variable, whose gradient would be lost. Give it the variable
            as an argument.
    """

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        given = tuple(lift_array(arg) for arg in args)
        # Tensors of their own, so that what hangs on them is told from what hangs on variables.
        inputs = tuple(_identity(x) for x in given)
        result, backward = function(*inputs, **options)
        several = isinstance(result, (tuple, list))
        results = tuple(lift_array(y) for y in (result if several else (result,)))
        _refuse_variables(function, results, inputs)
        values = tuple(y.data for y in results)  # not their graph, which only `backward` may want

        def vjp_of(i: int) -> Vjp:
            def vjp(g: Array, outs: Any) -> Sequence[Any]:
                if type(g) is Tensor:
                    return _gradients(backward, values, i, g, len(given))
                with no_grad():
                    found = _gradients(backward, values, i, Tensor(g.copy()), len(given))
                return [None if part is None else part.data.copy() for part in found]

            return vjp

        made = [_tensor.record(data, given, vjp_of(i)) for i, data in enumerate(values)]
        return type(result)(made) if several else made[0]

    return call


def _identity(x: Tensor) -> Tensor:
    return _tensor.record(x.data, (x,), lambda g, outs: (g,))


def _gradients(
    backward: Callable[..., Any], values: tuple[Array, ...], i: int, g: Tensor, num_inputs: int
) -> list[Tensor | None]:
    """What the caller's function gives for a gradient of result `i` alone."""
    upstream = [g if j == i else Tensor(np.zeros_like(a)) for j, a in enumerate(values)]
    found = backward(*upstream)
    parts = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(parts) != num_inputs:
        raise ValueError(
            f"the second function of a custom_gradient gives one gradient for each of the "
            f"{num_inputs} arguments, got {len(parts)}"
        )
    return [None if part is None else lift_array(part) for part in parts]


def _refuse_variables(
    function: Callable[..., Any], results: tuple[Tensor, ...], inputs: tuple[Tensor, ...]
) -> None:
    for y in results:
        if y.requires_grad and not any(y is x for x in inputs):
            for leaf in reachable(y, inputs)[1]:
                raise TypeError(
                    f"{function.__name__} of custom_gradient depends on {leaf.label}, which is "
                    f"none of its arguments: its gradient would be lost; make it an argument"
                )
