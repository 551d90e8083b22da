"""Symbolic tensors: what a functional model will compute, noted while the model is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, Final, NoReturn, final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...autodiff import StaticShape, lift, no_grad
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
        self._samples: tuple[Any, ...] = ()

    @property
    def shape(self) -> Any:
        """The shape that it will have, with None for the batch and any other length that is open.

        It is found by computing all that it is made from, of zeros: layers make their weights.
        Where it is a list of tensors the shapes are one, too.

        Raises:
            ValueError: What it is made from does not fit together, or no lengths so short.
        """
        return nest.map_structure(_common_shape, *self._sampled())

    def get_shape(self) -> StaticShape:
        """The same as `shape`, with TensorFlow's `as_list()`."""
        return StaticShape(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype that it will have; see `shape`."""
        return nest.map_structure(lambda sample: sample.dtype, self._sampled()[0])

    def _sampled(self) -> tuple[Any, ...]:
        """Zeros in the place of its values, for each of the lengths of what is open."""
        for tensor in in_order(self):
            if not tensor._samples:
                tensor._samples = tuple(map(tensor._sample, range(len(_LENGTHS))))
        return self._samples

    def _sample(self, index: int) -> Any:
        parts = [list(self.args), self.kwargs]
        args, kwargs = map_symbolic(lambda part: part._samples[index], parts)
        try:
            with no_grad(), np.errstate(all="ignore"):
                return nest.map_structure(_zeros_like, self.function(*args, **kwargs))
        except (ValueError, TypeError, IndexError) as error:
            raise ValueError(
                f"the shape of what {self.function!r} gives is not known, since it cannot be "
                f"computed of zeros with a batch of {_LENGTHS[index]}: {error}"
            ) from error

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
            "a symbolic tensor has no values: it says what Model(inputs, outputs) will compute, or "
            "what is made of the elements of a dataset. Give it to layers, operators and functions "
            "of NumPy; what depends on values goes into the `call` of a layer or of a Model of "
            "your own, and in an input_fn into Dataset.map, before get_next()"
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __len__ = _no_values


@final
class Input(Serializable, SymbolicTensor):
    """Where the arrays of a functional model come in; or the shape of a `Sequential`'s inputs.

    Args:
        shape: Of one example, without the batch. A length may be None.
        name: Its key, where features are a dict.
        dtype: Of the arrays that weights are made for.
        batch_size: What `shape` of it begins with, in the place of None. Batches may have any size
            nevertheless: replicas share them out.
        batch_shape: In the place of `shape` and `batch_size`: both in one tuple.

    Raises:
        ValueError: Both `shape` and `batch_shape` are given, or neither is.
    """

    def __init__(
        self,
        shape: Sequence[int | None] | None = None,
        name: str | None = None,
        dtype: Any = np.float32,
        *,
        batch_size: int | None = None,
        batch_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__(None)
        if (shape is None) == (batch_shape is None) or (batch_shape and batch_size):
            raise ValueError(
                f"give shape (and perhaps batch_size), or batch_shape, not shape={shape!r}, "
                f"batch_size={batch_size!r}, batch_shape={batch_shape!r}"
            )
        whole = (batch_size, *(shape or ())) if batch_shape is None else batch_shape
        self._batch_shape: tuple[Any, ...] = tuple(whole)
        self.name = name
        self._dtype = np.dtype(np.float32 if dtype is None else dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The batch, which is None unless given, and the shape of one example."""
        return self._batch_shape

    @property
    def example_shape(self) -> tuple[Any, ...]:
        """The shape of one example."""
        return self._batch_shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """That of the arrays that weights are made for."""
        return self._dtype

    def _sample(self, index: int) -> Any:
        length = _LENGTHS[index]
        rest = (length if n is None else n for n in self.example_shape)
        return _zeros((length, *rest), self._dtype)


_LENGTHS: Final = (2, 3)
"""Of what is open in a shape: what differs between the two is open behind it, too."""


def _zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)  # which takes no memory


def _zeros_like(value: Any) -> np.ndarray:
    like = lift(value).like()
    return _zeros(like.shape, like.dtype)


def _common_shape(one: np.ndarray, other: np.ndarray) -> tuple[int | None, ...]:
    lengths = zip(one.shape, other.shape, strict=True)
    return tuple(n if n == m else None for n, m in lengths)


class Hidable:
    """A property that gives way to an attribute of the same name: users have layers called so.

    Args:
        function: Gives the value.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else self._function(owner)


def shapes_of(structure: Any) -> Any:
    """The shapes of symbolic tensors, as a structure like theirs."""
    if isinstance(structure, SymbolicTensor):
        return structure.shape
    if isinstance(structure, Mapping):
        return {key: shapes_of(part) for key, part in structure.items()}
    return [shapes_of(part) for part in structure]


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
