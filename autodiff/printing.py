"""How tensors are printed: `<Tensor: shape=(), dtype=float32, numpy=1.0>`, `Tensor(1.0, …)`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class PrintOptions:
    """What stands before the names of classes, and behind the names of variables."""

    prefix: str = ""
    suffix: str = ""


PRINT_OPTIONS = PrintOptions()


def set_print_options(prefix: str = "", suffix: str = "") -> None:
    """Print tensors and variables of this process otherwise, as `np.set_printoptions` does arrays.

    Args:
        prefix: What stands before the names of classes: "tf." for scripts of TensorFlow.
        suffix: What stands behind the names of variables: ":0" for these.
    """
    PRINT_OPTIONS.prefix, PRINT_OPTIONS.suffix = prefix, suffix


def described(array: np.ndarray, note: str = "") -> str:
    """A tensor of these values for `repr`."""
    value = str(array) if array.ndim == 0 else repr(array)
    line = "\n" if array.ndim > 1 else ""
    name = f"{PRINT_OPTIONS.prefix}Tensor"
    return f"<{name}: shape={array.shape}, dtype={array.dtype}, numpy={line}{value}{note}>"


def printed(array: np.ndarray) -> str:
    """A tensor of these values for `str` and `print`."""
    return f"{PRINT_OPTIONS.prefix}Tensor({array!s}, shape={array.shape}, dtype={array.dtype})"
