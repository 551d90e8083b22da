"""A differentiable array over NumPy and CuPy: model code is plain NumPy on `Tensor`s.

NumPy's own functions and operators work on tensors where they have a differentiable form; what
NumPy lacks (activations, fused layers and losses, images) is here. `backward` carries a gradient to
the leaves, `GradientTape` does so in the familiar spelling.

An operation keeps the arrays that it is given, and backward reads them again. A variable may be
changed in between: what is remembered of it keeps its value, or backward refuses (`MutableLeaf`).
A plain NumPy array that the caller overwrites before backward is read as it is then: it has no
version to compare, and a copy of each batch would cost more than most of the operations on it.
Overwrite an array after backward, or hand a copy to the model.
"""

# ruff: noqa: F401 (some modules are imported for what they enter into the table)

from . import (
    arithmetic,
    choices,
    diagonals,
    einsum,
    joining,
    linear_algebra,
    matrices,
    piecewise_constant,
    signals,
    stacking,
)
from .activations import (
    elu,
    erf,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from .awaited import Awaited
from .backward import backward, leaves
from .captured import CapturedReplay
from .convolution import conv, conv2d, conv2d_relu_max_pool2d
from .creation import filled
from .cross_entropy import sigmoid_cross_entropy, softmax_cross_entropy
from .custom import custom_gradient, record
from .dense import dense
from .depthwise_convolution import depthwise_conv
from .following import (
    ReplayError,
    Trace,
    by_host,
    effect,
    found_anew,
    given_array,
    look,
    of_any_shape,
    operation,
    surrounding,
)
from .fusion import fused
from .gathering import gather, gather_nd, scatter_nd, segment, top_k
from .indexed_slices import IndexedSlices, distinct_rows
from .normalization import normalize
from .philox import random_factors, random_normal
from .piecewise_constant import traceable
from .placement import NO_NUMBERS, is_array, is_placing, placed, placing
from .pooling import avg_pool, avg_pool2d, max_pool, max_pool2d
from .printing import PRINT_OPTIONS, set_print_options
from .program import Program
from .recording import is_capturing, no_grad, watch_for_good, watched
from .recurrence import (
    RECURRENT_ACTIVATIONS,
    GRURecurrence,
    LSTMRecurrence,
    Recurrence,
    SimpleRecurrence,
    recurrent,
)
from .reductions import logsumexp
from .replay import Replay
from .tape import ForwardAccumulator, GradientTape
from .tensor import (
    MutableLeaf,
    Tensor,
    Vjp,
    lift,
    lift_array,
    note_change,
    snapshot,
    stop_gradient,
)
from .tensor_like import Array, StaticShape, TensorLike, implements
from .tracing import Call, functions_by_name, trace
from .transposed_convolution import conv_transpose

__all__ = [
    "NO_NUMBERS",
    "PRINT_OPTIONS",
    "RECURRENT_ACTIVATIONS",
    "Array",
    "Awaited",
    "Call",
    "CapturedReplay",
    "ForwardAccumulator",
    "GRURecurrence",
    "GradientTape",
    "IndexedSlices",
    "LSTMRecurrence",
    "MutableLeaf",
    "Program",
    "Recurrence",
    "Replay",
    "ReplayError",
    "SimpleRecurrence",
    "StaticShape",
    "Tensor",
    "TensorLike",
    "Trace",
    "Vjp",
    "avg_pool",
    "avg_pool2d",
    "backward",
    "by_host",
    "conv",
    "conv2d",
    "conv2d_relu_max_pool2d",
    "conv_transpose",
    "custom_gradient",
    "dense",
    "depthwise_conv",
    "distinct_rows",
    "effect",
    "elu",
    "erf",
    "filled",
    "found_anew",
    "functions_by_name",
    "fused",
    "gather",
    "gather_nd",
    "gelu",
    "given_array",
    "implements",
    "is_array",
    "is_capturing",
    "is_placing",
    "leaky_relu",
    "leaves",
    "lift",
    "lift_array",
    "log_softmax",
    "logsumexp",
    "look",
    "max_pool",
    "max_pool2d",
    "no_grad",
    "normalize",
    "note_change",
    "of_any_shape",
    "operation",
    "placed",
    "placing",
    "random_factors",
    "random_normal",
    "record",
    "recurrent",
    "relu",
    "scatter_nd",
    "segment",
    "set_print_options",
    "sigmoid",
    "sigmoid_cross_entropy",
    "silu",
    "snapshot",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "stop_gradient",
    "surrounding",
    "top_k",
    "trace",
    "traceable",
    "watch_for_good",
    "watched",
]
