"""`tf.compat`: `v1`, the names of TensorFlow 1, and `v2`, those of `tf` itself."""

from __future__ import annotations

import logging
from typing import Any

from ..names import NameTable, register, serve
from . import DTYPES, MODULES, NAMES
from .advice import advice
from .arguments import adapted

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
_logger = logging.getLogger("paceline")
_HERE = "compat.tf.compat."
_ARRAYS = "compat.tf.arrays."
_V1 = {
    "disable_eager_execution": _HERE + "disable_eager_execution",
    "disable_v2_behavior": _HERE + "disable_eager_execution",
    "enable_eager_execution": _HERE + "enable_eager_execution",
    "enable_v2_behavior": _HERE + "enable_eager_execution",
    "__version__": "compat.tf.__version__",
    "random_normal_initializer": "compat.tf.variables.random_normal_initializer",
    "random_uniform_initializer": "compat.tf.variables.random_uniform_initializer",
    "to_float": _ARRAYS + "to_float",
    "to_int32": _ARRAYS + "to_int32",
    "to_int64": _ARRAYS + "to_int64",
}
_OF_TF = {
    name: f"compat.tf.{name}"
    for name in (*MODULES, "DType", "dtypes", "feature_column", "initializers", *DTYPES)
}


def disable_eager_execution() -> None:
    """Nothing but a note: there is no graph that could be turned on."""
    _logger.info(
        "disable_eager_execution has nothing to do: there is no graph, model_fn is called for "
        "each batch."
    )


def enable_eager_execution(*args: Any, **kwargs: Any) -> None:
    """Nothing: code runs as it is written."""


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Text from bytes or text.

    Raises:
        TypeError: It is neither.
    """
    return as_bytes(bytes_or_text, encoding).decode(encoding)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Bytes from bytes or text.

    Raises:
        TypeError: It is neither.
    """
    if not isinstance(bytes_or_text, str | bytes):
        raise TypeError(
            f"bytes_or_text must be bytes or text, got {type(bytes_or_text).__name__}; pass "
            f"one item of an array"
        )
    return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes_or_text


as_str = as_text
_SAME = ("compat.tf.arrays", "compat.tf.control", "compat.tf.math")
_MODULES = {"nn": "compat.tf.nn_v1.", "summary": "compat.tf.summary_v1."}
_ESTIMATOR = {name: f"compat.tf.estimator.{name}" for name in ("experimental", "export", "inputs")}
register(
    __name__,
    {
        "v1": (("compat.tf.arrays_v1", *_SAME), {**_OF_TF, **NAMES, **_V1, **_MODULES}),
        "v1.estimator": (("compat.tf.estimator_v1", "estimator"), _ESTIMATOR),
        "v1.losses": (("compat.tf.losses",), {"Reduction": "compat.tf.losses.ReductionV1"}),
        "v2": (_SAME, {**_OF_TF, **NAMES}),
    },
    advice,
    adapted,
)
