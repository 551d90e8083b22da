"""What a caller reads where NumPy would go on, but the gradient would be lost."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

_INSTEAD = {
    "add.accumulate": "np.cumsum",
    "add.at": "np.add of whole arrays",
    "add.reduce": "np.sum",
    "apply_along_axis": "whole-array expressions",
    "block": "np.concatenate",
    "erf": "paceline.autodiff.erf",
    "expit": "paceline.autodiff.sigmoid",
    "float_power": "x ** y",
    "gradient": "paceline.autodiff.backward or GradientTape",
    "log_softmax": "paceline.autodiff.log_softmax",
    "logsumexp": "paceline.autodiff.logsumexp",
    "maximum.reduce": "np.max",
    "minimum.reduce": "np.min",
    "multiply.outer": "np.outer",
    "multiply.reduce": "np.prod",
    "nanmax": "np.max(np.where(np.isnan(x), -np.inf, x), axis)",
    "nanmean": "np.where(np.isnan(x), 0, x) and the sums written out",
    "nanmin": "np.min(np.where(np.isnan(x), np.inf, x), axis)",
    "nansum": "np.sum(np.where(np.isnan(x), 0, x), axis)",
    "percentile": "np.median, or np.sort and indexing",
    "quantile": "np.median, or np.sort and indexing",
    "softmax": "paceline.autodiff.softmax",
}


def unknown_function(function: Callable[..., Any], method: str) -> TypeError:
    """The refusal of a function that has no differentiable form here."""
    name = _name(function) if method == "__call__" else f"{_name(function)}.{method}"
    advice = f"use {_INSTEAD[name]}, or " if name in _INSTEAD else "use "
    return TypeError(
        f"'{name}' is not differentiable here and would cut the tensor out of the gradient graph; "
        f"{advice}stop_gradient(tensor).data where no gradient is wanted"
    )


def check_arguments(
    function: Callable[..., Any], ours: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    """Refuse arguments that NumPy's function takes and `ours`, its differentiable form, does not.

    Called after `ours` has failed: it says in the caller's words why, if this is why.
    """
    signature = inspect.signature(ours)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        name = _name(function)
        raise TypeError(
            f"np.{name} of a tensor: {mismatch}; it is called as {name}{signature}"
        ) from None


def unknown_dtype(dtype: np.dtype) -> TypeError:
    """The refusal of what is no real number."""
    return TypeError(
        f"a tensor holds real numbers, whose gradient {dtype} would lose; compute with the real "
        f"and the imaginary part apart, or with stop_gradient(tensor).data where no gradient is "
        f"wanted"
    )


def plain_number(called: str) -> TypeError:
    """The refusal of a tensor with a gradient where a Python number is wanted."""
    return TypeError(
        f"{called} of a tensor would cut it silently out of the gradient graph; inside a model "
        f"use np.exp(tensor) in place of math.exp(tensor), np.stack in place of array[i] = tensor, "
        f"np.broadcast_to in place of np.full; elsewhere .item() or .numpy() give the value"
    )


def array_of_tensors() -> TypeError:
    """The refusal of `np.array(tensor)`, `np.array([tensor, tensor])`, `array[tensor]`."""
    return TypeError(
        "turning a tensor into a plain array would cut it silently out of the gradient graph; use "
        "np.stack([t1, t2]) in place of np.array([t1, t2]), .numpy() for the value, or "
        "stop_gradient(tensor) inside a model"
    )


def write_into_tensor(name: str) -> TypeError:
    """The refusal of `out=`, and of `array += tensor`."""
    return TypeError(
        f"np.{name} cannot write its result into an existing array, since the result has a "
        f"gradient graph; leave out= away, and write `total = total + tensor` in place of "
        f"`total += tensor` where total is a plain array"
    )


def _name(function: Callable[..., Any]) -> str:
    """`linalg.norm` for np.linalg.norm; ufuncs do not say where they live."""
    module = getattr(function, "__module__", None) or ""
    name: str = function.__name__
    return f"{module.removeprefix('numpy.')}.{name}" if module.startswith("numpy.") else name
