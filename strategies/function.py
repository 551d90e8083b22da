"""`function`: what decorates a step in TensorFlow."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autodiff import TensorLike, is_array
from ..inputs import TensorSpec, nest
from .replicas.values import local_values


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Mark a function as TensorFlow's `tf.function` does; it runs as the Python that it is.

    Nothing is traced and nothing is compiled. Each call executes the body: `print` prints each
    time, an `if` looks at values, a debugger stops in it. Results are those of the plain function.
    What is gained is that a script which has the decorator keeps it, and that arguments are checked
    against an `input_signature`.

    Args:
        func: What to mark; without it, the decorator.
        input_signature: For each argument a `TensorSpec`, or a nested structure of them, such as
            the `element_spec` of a dataset. Of a `DistributedValues` each replica's value is
            checked.
        autograph, jit_compile, reduce_retracing, experimental_implements,
            experimental_autograph_options, experimental_attributes, experimental_relax_shapes,
            experimental_compile, experimental_follow_type_hints: Of no effect; they say how
            TensorFlow compiles.

    Returns:
        The marked function, which may be a method, or its decorator.
    """
    if func is None:
        return functools.partial(function, input_signature=input_signature)
    return Function(func, input_signature)


class Function:
    """A marked function: see `function`.

    Attributes:
        python_function: What was marked.
        input_signature: As given, as a tuple; None where nothing is checked.
    """

    def __init__(self, func: Callable[..., Any], input_signature: Sequence[Any] | None) -> None:
        if not callable(func):
            raise TypeError(f"function marks a callable, it was given {func!r}")
        functools.update_wrapper(self, func)
        self.python_function = func
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._parameters = inspect.signature(func) if input_signature is not None else None

    def __get__(self, owner: Any, kind: Any = None) -> Function:
        """The method of an object."""
        if owner is None:
            return self
        return Function(self.python_function.__get__(owner, kind), self.input_signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        Raises:
            TypeError: An argument has not the dtype that `input_signature` says, or there are more
                or fewer of them.
            ValueError: An argument has another shape, or another structure.
        """
        if self.input_signature is not None and self._parameters is not None:
            self._check(self._parameters.bind(*args, **kwargs), self.input_signature)
        return self.python_function(*args, **kwargs)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Function:
        """The function for arguments like these, or for the `TensorSpec`s in their places."""
        if not args and not kwargs:
            return self
        bound = inspect.signature(self.python_function).bind(*args, **kwargs)
        signature = [nest.map_structure(_spec_of, value) for value in bound.args]
        return Function(self.python_function, signature)

    def _check(self, bound: inspect.BoundArguments, signature: tuple[Any, ...]) -> None:
        if len(bound.args) != len(signature) or bound.kwargs:
            raise TypeError(
                f"{self!r} was called with {len(bound.args) + len(bound.kwargs)} argument(s), its "
                f"input_signature has {len(signature)}"
            )
        for index, (spec, value) in enumerate(zip(signature, bound.args, strict=True)):
            nest.map_with_path(_check_leaf, spec, value, root=f"argument {index}")

    def __repr__(self) -> str:
        return f"<paceline.function {self.python_function!r}>"


def _spec_of(value: Any) -> TensorSpec | None:
    """The spec of an array; of what is none there is nothing to check."""
    if isinstance(value, TensorSpec):
        return value
    if isinstance(value, TensorLike) or is_array(value):
        return TensorSpec(value.shape, value.dtype)
    return None


def _check_leaf(place: str, spec: TensorSpec | None, value: Any) -> None:
    if spec is None:
        return
    for part in local_values(value):
        # A Python number takes the dtype of what it meets.
        array, casting = part, "no"
        if not hasattr(part, "dtype"):
            array, casting = np.asarray(part), "same_kind"
        if not spec.has_shape(array.shape):
            raise ValueError(
                f"{place} has shape {tuple(array.shape)}, input_signature says {spec.shape}"
            )
        if not np.can_cast(array.dtype, spec.dtype, casting):  # type: ignore[arg-type]
            raise TypeError(
                f"{place} has dtype {array.dtype}, input_signature says {spec.dtype}; convert it "
                f"with .astype"
            )
