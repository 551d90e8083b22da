"""Two traces of a model become an ONNX graph (https://onnx.ai/onnx/intro/concepts.html).

The model is called with two batches of different sizes and values. What depends on the batch is
what differs: a length that does is the batch's, and an array that does, although no operation that
was recorded gave it, was computed in a way that nobody can write down. It is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from ...autodiff import Call, TensorLike

VARIES: Final = object()
"""Stands for an argument that is no array and not the same in both traces."""


@final
@dataclass(frozen=True, eq=False)
class Value:
    """An array of the model.

    Args:
        first, second: What it was in either trace.
    """

    first: Any
    second: Any

    @cached_property
    def shape(self) -> tuple[int | None, ...]:
        """None stands for a length that depends on that of the batch."""
        both = zip(self.first.shape, self.second.shape, strict=True)
        return tuple(n if n == m else None for n, m in both)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.first.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def key(self) -> int:
        return id(self.first)


@final
@dataclass(frozen=True)
class Step:
    """An operation as both traces have it, with `Value`s in the place of arrays."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", str(self.function))

    @property
    def inputs(self) -> list[Value]:
        return list(_values([*self.args, *self.kwargs.values()]))

    @property
    def outputs(self) -> list[Value]:
        return list(_values([self.result]))


def steps_of(first: Sequence[Call], second: Sequence[Call]) -> list[Step]:
    """Two traces as one.

    Raises:
        ValueError: They are of different operations.
    """
    names = [[call.function for call in calls] for calls in (first, second)]
    if names[0] != names[1]:
        raise ValueError(
            "model_fn calls other operations for one batch than for another: what it does depends "
            "on the values of its inputs, or on the size of the batch, and has no ONNX graph"
        )
    return [
        Step(
            one.function,
            tuple(paired(list(one.args), list(other.args))),
            {name: paired(value, other.kwargs.get(name)) for name, value in one.kwargs.items()},
            paired(one.result, other.result),
        )
        for one, other in zip(first, second, strict=True)
    ]


def paired(one: Any, other: Any) -> Any:
    """What stands at the same place of both traces, as one."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [paired(a, b) for a, b in zip(one, other, strict=True)]
    if hasattr(one, "__array_ufunc__") and hasattr(other, "__array_ufunc__"):
        return Value(one, other) if one.ndim == other.ndim else VARIES
    return one if type(one) is type(other) and one == other else VARIES


def _plain(value: Any) -> Any:
    if isinstance(value, TensorLike):
        return value.tensor().data
    return value.item() if isinstance(value, np.generic) else value


def _values(items: Sequence[Any]) -> Iterator[Value]:
    for item in items:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, list):
            yield from _values(item)


def needed(steps: Sequence[Step], outputs: Sequence[Value]) -> list[Step]:
    """The steps without which the outputs cannot be computed, in their order."""
    wanted = {value.key for value in outputs}
    kept = []
    for step in reversed(steps):
        given = {value.key for value in step.inputs}
        # What gives an array back as it is needs no form of its own.
        if {value.key for value in step.outputs} - given & wanted:
            kept.append(step)
            wanted |= given
    return kept[::-1]


class Graph:
    """The nodes and constants of an ONNX graph that is being written.

    Args:
        onnx: The package.
        inputs: Name → value.
        variables: The key of a variable's array → its name.
    """

    def __init__(
        self, onnx: Any, inputs: Mapping[str, Value], variables: Mapping[int, str]
    ) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._onnx = onnx
        self._variables = variables
        self._names = {value.key: name for name, value in inputs.items()}
        self._used = set(inputs)

    def node(self, kind: str, *inputs: str, num_outputs: int = 0, **attributes: Any) -> Any:
        """Add an operation of ONNX; the name of its output, or the names where there are several.

        Args:
            kind: Its name.
            inputs: Names of what it takes; "" leaves one out.
            num_outputs: How many outputs there are, where not one alone.
            **attributes: Those of the operation.
        """
        outputs = [self._unique(kind) for _ in range(num_outputs or 1)]
        made = self._onnx.helper.make_node(kind, list(inputs), outputs, outputs[0], **attributes)
        self.nodes.append(made)
        return outputs if num_outputs else outputs[0]

    def identity(self, name: str, output: str) -> None:
        """Let `output` be another name, one of the graph's outputs."""
        self.nodes.append(self._onnx.helper.make_node("Identity", [name], [output]))

    def constant(self, value: Any, dtype: Any, name: str = "constant") -> str:
        """Add an array that is always the same."""
        array = np.asarray(value, dtype)
        name = self._unique(name)
        self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def operand(self, value: Any, dtype: Any = None) -> str:
        """The name of an array, or number, in the dtype that an operation wants.

        Raises:
            ValueError: It changes with the inputs, and nobody knows how.
        """
        if not isinstance(value, Value):
            if not isinstance(value, int | float):
                raise ValueError(f"an operand is {type(value).__name__} and no array or number")
            return self.constant(value, dtype)
        name = self._names.get(value.key)
        if name is None:
            name = self._names[value.key] = self._constant_of(value)
        if dtype is None or value.dtype == dtype:
            return name
        return self.cast(name, dtype)

    def cast(self, name: str, dtype: Any) -> str:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return str(self.node("Cast", name, to=kind))

    def bind(self, result: Any, names: Any) -> None:
        """Note what the output, or outputs, of a step are called."""
        pairs = [(result, names)] if isinstance(result, Value) else zip(result, names, strict=True)
        for value, name in pairs:
            self._names[value.key] = name

    def reshape(self, name: str, shape: Sequence[int | None]) -> str:
        """The same elements in another shape, of which the batch may decide one length.

        Raises:
            ValueError: It decides several.
        """
        if list(shape).count(None) > 1:
            raise ValueError(f"several lengths of the shape {tuple(shape)} depend on the batch")
        lengths = [-1 if n is None else n for n in shape]
        return str(self.node("Reshape", name, self.constant(lengths, np.int64, "shape")))

    def _constant_of(self, value: Value) -> str:
        if value.key in self._variables:
            name = self._variables[value.key]
            return self.constant(_on_host(value.first), value.dtype, name)
        first, second = _on_host(value.first), _on_host(value.second)
        if first.shape != second.shape or not np.array_equal(first, second, equal_nan=True):
            raise ValueError(
                f"an array of shape {value.shape} and dtype {value.dtype} changes with the inputs, "
                f"and was computed outside of what can be recorded: by NumPy on a plain array, as "
                f"comparisons give them, or .data, or .numpy(); compute it by NumPy's functions "
                f"from the tensors that model_fn is given"
            )
        return self.constant(first, first.dtype)

    def _unique(self, name: str) -> str:
        found, number = name, 1
        while found in self._used:
            found, number = f"{name}_{number}", number + 1
        self._used.add(found)
        return found


def _on_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
