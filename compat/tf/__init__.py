"""TensorFlow's names for the parts of this package: `import paceline.compat.tf as tf`.

Modules and names are found when they are used (`paceline.compat.names`). Tensors and variables of
the process are printed as TensorFlow prints them from then on.
"""

from importlib import import_module
from typing import Any

import numpy as np

from ...autodiff import set_print_options
from ..names import NameTable, register
from .advice import advice
from .arguments import adapted
from .names_v1 import MODULES_V1, NAMES_V1

MODULES = (
    "app",
    "compat",
    "config",
    "contrib",
    "data",
    "debugging",
    "distribute",
    "estimator",
    "flags",
    "gfile",
    "image",
    "io",
    "keras",
    "layers",
    "linalg",
    "logging",
    "losses",
    "math",
    "metrics",
    "nest",
    "nn",
    "random",
    "strings",
    "summary",
    "tpu",
    "train",
    *MODULES_V1,
)
NAMES = {
    "GradientTape": "autodiff.GradientTape",
    "UnconnectedGradients": "compat.tf.control.UnconnectedGradients",
    "custom_gradient": "autodiff.custom_gradient",
    "IndexedSlices": "autodiff.IndexedSlices",
    "ConfigProto": "compat.tf.session_config.ConfigProto",
    "GPUOptions": "compat.tf.session_config.GPUOptions",
    "Tensor": "autodiff.Tensor",
    "TensorSpec": "inputs.TensorSpec",
    "Variable": "strategies.Variable",
    "VariableAggregation": "strategies.VariableAggregation",
    "VariableSynchronization": "strategies.VariableSynchronization",
    **{
        name: f"compat.tf.linalg.{name}"
        for name in (
            "clip_by_global_norm",
            "clip_by_norm",
            "einsum",
            "global_norm",
            "matmul",
            "norm",
            "tensordot",
        )
    },
    **{
        name: f"compat.tf.variables.{name}"
        for name in ("AUTO_REUSE", "get_variable", "get_variable_scope", "variable_scope")
    },
    "group": "compat.tf.control.group",
    "placeholder": "compat.tf.placeholders.placeholder",
    "placeholder_with_default": "compat.tf.placeholders.placeholder_with_default",
    "variable_creator_scope": "strategies.variable_creator_scope",
    "constant_initializer": "nn.initializers.Constant",
    "ones_initializer": "nn.initializers.Ones",
    "random_normal_initializer": "nn.initializers.RandomNormal",
    "random_uniform_initializer": "nn.initializers.RandomUniform",
    "truncated_normal_initializer": "compat.tf.variables.truncated_normal_initializer",
    "zeros_initializer": "nn.initializers.Zeros",
    **NAMES_V1,
}
DTYPES = (
    "bool",
    "double",
    *(f"float{bits}" for bits in (16, 32, 64)),
    "half",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "string",
)
_TABLE = NameTable(
    __name__, ("compat.tf.arrays", "compat.tf.control", "compat.tf.math"), NAMES, advice, adapted
)

register(
    __name__,
    {
        "dtypes": (
            (),
            {
                **{name: f"compat.tf.{name}" for name in (*DTYPES, "DType")},
                **{name: f"compat.tf.arrays.{name}" for name in ("cast",)},
                "as_dtype": "compat.tf.control.as_dtype",
            },
        ),
        "feature_column": (("estimator.feature_column",), {}),
        "initializers": (("nn.initializers",), {}),
        "optimizers": (("nn.optimizers",), {}),
    },
    advice,
)

newaxis = None
bool = np.dtype(np.bool_)  # TensorFlow's names of dtypes
double = float64 = np.dtype(np.float64)
float32 = np.dtype(np.float32)
half = float16 = np.dtype(np.float16)
int8, int16, int32, int64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = (np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
string = np.dtype(np.str_)
DType = np.dtype
__version__ = VERSION = "2.15.0"
"""The version whose names these are."""
GIT_VERSION = f"v{VERSION}"

set_print_options(prefix="tf.", suffix=":0")


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    return globals().setdefault(name, _TABLE[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES, *_TABLE})
