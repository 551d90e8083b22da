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
from ...autodiff import stop_gradient
from ...inputs import nest
from ...strategies import Device, TrainOp
from .arguments import adapt_all, refuse
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
    "vectorized_map",
    "while_loop",
]


class GraphKeys:
    """Names of collections of TensorFlow 1."""

    GLOBAL_STEP = "global_step"
    GLOBAL_VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    LOSSES = "losses"
    MODEL_VARIABLES = "model_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    SUMMARIES = "summaries"
    TRAINABLE_VARIABLES = "trainable_variables"
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


name_scope = control_dependencies = init_scope = _of_no_effect


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


def case(
    pred_fn_pairs: Any,
    default: Any = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = None,
) -> Any:
    """The first function whose condition holds.

    Args:
        pred_fn_pairs: Pairs of a condition and a function of no argument.
        default: The function where none holds.
        exclusive: Whether only one condition may hold.
        strict: Has no effect.

    Raises:
        ValueError: Several conditions hold, and only one may; or none, and there is no default.
    """
    pairs = pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs
    chosen = [fn for pred, fn in pairs if builtins.bool(pred)]
    if exclusive and len(chosen) > 1:
        raise ValueError(f"case: only one condition may hold (exclusive), {len(chosen)} do")
    chosen += [] if default is None else [default]
    if not chosen:
        raise ValueError("case: no condition holds; pass default")
    return chosen[0]()


def switch_case(
    branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None
) -> Any:
    """The function of this number; of another number `default`, or else the last one."""
    pairs = branch_fns.items() if isinstance(branch_fns, dict) else enumerate(branch_fns)
    fns = dict(sorted((i, fn) for i, fn in pairs))
    last = fns[max(fns)] if default is None else default
    return fns.get(int(branch_index), last)()


def while_loop(
    cond: Any,
    body: Any,
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """`body` again and again, as long as `cond` holds, and at most `maximum_iterations` times."""
    most = None if maximum_iterations is None else int(maximum_iterations)
    number = 0
    while (most is None or number < most) and builtins.bool(cond(*loop_vars)):
        found = body(*loop_vars)
        loop_vars = found if isinstance(found, list | tuple) else (found,)
        number += 1
    return loop_vars if back_prop else nest.map_structure(stop_gradient, loop_vars)


def map_fn(
    fn: Any,
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """A function of each element, and the results as one tensor.

    `dtype` and `fn_output_signature` have no effect: the results say what they are.
    """
    rows = [fn(nest.map_structure(lambda x, i=i: convert(x)[i], elems)) for i in _rows(elems)]
    found = nest.map_structure(
        lambda *parts: as_tensor(np.stack([convert(p) for p in parts])), *rows
    )
    return found if back_prop else nest.map_structure(stop_gradient, found)


def vectorized_map(
    fn: Any, elems: Any, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    """A function of each element, and the results as one tensor."""
    return map_fn(fn, elems)


def _rows(elems: Any) -> builtins.range:
    return builtins.range(len(convert(nest.flatten(elems)[0])))


def py_function(
    func: Any = None,
    inp: Any = (),
    Tout: Any = None,  # noqa: N803
    name: str | None = None,
) -> Any:
    """The function of these, with tensors for its results."""
    dtypes = iter(nest.flatten(Tout))
    results = func(*inp)
    return nest.map_structure(lambda x: convert(x, next(dtypes)), results)


def numpy_function(
    func: Any = None,
    inp: Any = (),
    Tout: Any = None,  # noqa: N803
    stateful: bool = True,
    name: str | None = None,
) -> Any:
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


def assert_equal(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
    data: Any = None,
) -> None:
    """Refuse tensors that differ."""
    Assert(plain(x) == plain(y), message or f"{x} and {y} differ")


def print(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int = 3,
    sep: str = " ",
    end: str = "\n",
    name: str | None = None,
) -> None:
    """`tf.print`: values alone, without shape and dtype."""
    shown = [nest.map_structure(_plain, x) for x in inputs]
    builtins.print(*shown, sep=sep, end=end, file=output_stream, flush=True)


def Print(  # noqa: N802
    input_: Any,
    data: Any,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """TensorFlow 1's: print `data` with a message, and give `input_`, in each call.

    Raises:
        ValueError: `first_n` is given: calls are not counted.
    """
    refuse("Print", ("first_n", first_n, None, "count calls yourself"))
    print(*([] if message is None else [message]), *data)
    return input_


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


adapt_all(globals(), "tf")
