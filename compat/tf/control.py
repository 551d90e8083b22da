"""Functions that run functions, and names of graphs, which here are Python."""

from __future__ import annotations

import builtins
import enum
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from ... import strategies
from ...inputs import nest
from ...strategies import Device, TrainOp
from .conversion import as_tensor, constants_as_tensors, convert, plain

__all__ = [
    "Assert",
    "GraphKeys",
    "Print",
    "as_dtype",
    "assert_equal",
    "case",
    "cond",
    "control_dependencies",
    "device",
    "executing_eagerly",
    "function",
    "get_collection",
    "get_logger",
    "group",
    "init_scope",
    "map_fn",
    "name_scope",
    "no_op",
    "numpy_function",
    "print",
    "py_func",
    "py_function",
    "switch_case",
    "timestamp",
    "variable_scope",
    "vectorized_map",
    "while_loop",
]


class GraphKeys:
    """Names of collections of TensorFlow 1."""

    UPDATE_OPS = "update_ops"


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """Of `GraphKeys.UPDATE_OPS` nothing: normalization keeps its moving averages by itself.

    Raises:
        ValueError: Another collection: there is no graph that would have it.
    """
    if key != GraphKeys.UPDATE_OPS:
        raise ValueError(
            f"there is no collection {key!r}, as there is no graph: losses of layers are in "
            f"model.losses, variables in model.trainable_variables"
        )
    return []


class UnconnectedGradients(enum.Enum):
    """What a tape gives for a source that the target does not depend on."""

    NONE = "none"
    ZERO = "zero"


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`tf.function`: a function whose arrays and numbers in results are tensors.

    There is no graph to compile: it runs as it is written, in each call. The options
    (`input_signature`, `jit_compile`, `reduce_retracing`, …) are those of `paceline.function`.
    """
    if func is None:
        return lambda later: function(later, **options)
    called = strategies.function(func, **options)

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return constants_as_tensors(called(*args, **kwargs))

    return call


@contextmanager
def device(device_name: Any) -> Iterator[None]:
    """`tf.device`: checks the name, and on a GPU makes new arrays there.

    Where variables and steps are is what a strategy says.
    """
    if device_name is None or callable(device_name):
        yield
        return
    with Device.parse(device_name).use():
        yield


@contextmanager
def _of_no_effect(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


name_scope = variable_scope = control_dependencies = init_scope = _of_no_effect


def executing_eagerly() -> bool:
    """Always."""
    return True


def group(*inputs: Any, name: str | None = None) -> TrainOp | None:
    """Train ops as one; what is no train op has happened already."""
    ops = [op for op in nest.flatten(inputs) if isinstance(op, TrainOp)]
    return strategies.group(*ops) if ops else None


def no_op(name: str | None = None) -> None:
    """Nothing."""


def cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None) -> Any:
    """One of two functions, by a condition."""
    return true_fn() if builtins.bool(pred) else false_fn()


def case(pred_fn_pairs: Any, default: Any = None, name: str | None = None, **hints: Any) -> Any:
    """The first function whose condition holds."""
    return next((fn for pred, fn in pred_fn_pairs if builtins.bool(pred)), default)()


def switch_case(branch_index: Any, branch_fns: Any, default: Any = None) -> Any:
    """The function of this number."""
    fns = dict(branch_fns) if isinstance(branch_fns, dict) else dict(enumerate(branch_fns))
    return fns.get(int(branch_index), default)()


def while_loop(cond: Any, body: Any, loop_vars: Any, **hints: Any) -> Any:
    """`body` again and again, as long as `cond` holds."""
    while builtins.bool(cond(*loop_vars)):
        found = body(*loop_vars)
        loop_vars = found if isinstance(found, list | tuple) else (found,)
    return loop_vars


def map_fn(fn: Any, elems: Any, *unused: Any, **hints: Any) -> Any:
    """A function of each element, and the results as one tensor."""
    rows = [fn(nest.map_structure(lambda x, i=i: convert(x)[i], elems)) for i in _rows(elems)]
    return nest.map_structure(
        lambda *parts: as_tensor(np.stack([convert(p) for p in parts])), *rows
    )


vectorized_map = map_fn


def _rows(elems: Any) -> builtins.range:
    return builtins.range(len(convert(nest.flatten(elems)[0])))


def py_function(func: Any = None, inp: Any = (), Tout: Any = None, name: Any = None) -> Any:  # noqa: N803
    """The function of these, with tensors for its results."""
    dtypes = iter(nest.flatten(Tout))
    results = func(*inp)
    return nest.map_structure(lambda x: convert(x, next(dtypes)), results)


def numpy_function(func: Any = None, inp: Any = (), Tout: Any = None, name: Any = None) -> Any:  # noqa: N803
    """The function of these as arrays, with tensors for its results."""
    return py_function(func, [plain(x) for x in inp], Tout)


py_func = numpy_function


def Assert(condition: Any, data: Any, summarize: Any = None, name: Any = None) -> None:  # noqa: N802
    """Refuse to go on where the condition does not hold.

    Raises:
        ValueError: It does not.
    """
    if not np.all(plain(condition)):
        raise ValueError(f"an assertion of the script failed: {data}")


def assert_equal(x: Any, y: Any, message: str = "", name: str | None = None) -> None:
    """Refuse tensors that differ."""
    Assert(plain(x) == plain(y), message or f"{x} and {y} differ")


def print(
    *inputs: Any, output_stream: Any = None, sep: str = " ", end: str = "\n", **hints: Any
) -> None:
    """`tf.print`: values alone, without shape and dtype."""
    shown = [nest.map_structure(_plain, x) for x in inputs]
    builtins.print(*shown, sep=sep, end=end, file=output_stream, flush=True)


Print = print


def _plain(value: Any) -> Any:
    return value.numpy() if hasattr(value, "tensor") else value


def timestamp(name: str | None = None) -> Any:
    """Seconds since 1970."""
    import time

    return convert(np.float64(time.time()))


def as_dtype(type_value: Any) -> np.dtype:
    """A dtype from its name, or from itself."""
    return np.dtype(type_value)


def get_logger() -> logging.Logger:
    """This package's logger."""
    return logging.getLogger("paceline")
