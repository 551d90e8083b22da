"""Symbolic tensors: what a functional model will compute, noted while the model is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, NoReturn, final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...inputs import nest
from ..serialization import Serializable


class SymbolicTensor(NDArrayOperatorsMixin):
    """A function, applied to other symbolic tensors; it has no values yet.

    A layer that is called with one gives another, as do operators, slices and the functions of
    NumPy. `Model(inputs, outputs)` computes them for arrays, as often as it is called.

    Args:
        function: A layer, or a function of arrays.
        args, kwargs: What it is applied to: structures (tuples, lists, dicts) of symbolic tensors
            and of values that stay as they are.
    """

    def __init__(
        self, function: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = dict(kwargs or {})

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> SymbolicTensor:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return SymbolicTensor(function, inputs, kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> SymbolicTensor:
        return SymbolicTensor(function, args, kwargs)

    def __getitem__(self, key: Any) -> SymbolicTensor:
        return SymbolicTensor(getitem, (self, key))

    def _no_values(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a symbolic tensor has no values: it says what Model(inputs, outputs) will compute. "
            "Give it to layers, operators and functions of NumPy; what depends on values goes into "
            "the `call` of a layer or of a Model of your own"
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __len__ = _no_values


@final
class Input(Serializable, SymbolicTensor):
    """Where the arrays of a functional model come in; or the shape of a `Sequential`'s inputs.

    Args:
        shape: Of one example, without the batch. A length may be None.
        name: Its key, where features are a dict.
        dtype: Of the arrays that weights are made for.
    """

    def __init__(
        self, shape: Sequence[int | None], name: str | None = None, dtype: Any = np.float32
    ) -> None:
        super().__init__(None)
        self.shape: tuple[Any, ...] = tuple(shape)
        self.name = name
        self.dtype = np.dtype(dtype)


def is_symbolic(value: Any) -> bool:
    """Whether it is a symbolic tensor, or a list, tuple or dict with some."""
    if isinstance(value, (list, tuple, dict)):
        return bool(symbolic_in(value))
    return isinstance(value, SymbolicTensor)


def map_symbolic(change: Callable[[SymbolicTensor], Any], structure: Any) -> Any:
    """The structure with each symbolic tensor changed."""
    return nest.map_structure(
        lambda leaf: change(leaf) if isinstance(leaf, SymbolicTensor) else leaf, structure
    )


def symbolic_in(structure: Any) -> list[SymbolicTensor]:
    """The symbolic tensors of a structure, in order."""
    return [leaf for leaf in nest.flatten(structure) if isinstance(leaf, SymbolicTensor)]


def in_order(outputs: Any) -> Iterator[SymbolicTensor]:
    """All that outputs are computed from, each once, and behind what it is computed from itself."""
    seen: set[int] = set()
    # A stack of our own: a model of a thousand layers is deeper than Python's.
    waiting = [(tensor, False) for tensor in reversed(symbolic_in(outputs))]
    while waiting:
        tensor, is_ready = waiting.pop()
        if is_ready:
            yield tensor
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            waiting.append((tensor, True))
            needed = symbolic_in((tensor.args, tensor.kwargs))
            waiting += [(part, False) for part in reversed(needed)]
