"""What ONNX calls convolutions and pooling; it has the channels second, and filters first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import autodiff
from .onnx_graph import Graph, Step, Value

_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def activated(graph: Graph, name: str, activation: str | None) -> str:
    """The name of what an activation makes of a result."""
    return name if activation is None else str(graph.node(_ACTIVATIONS[activation], name))


def _conv(
    graph: Graph,
    step: Step,
    x: Value,
    w: Value,
    b: Any,
    strides: Any,
    padding: str,
    activation: str | None,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    placed = _windows(x, w.shape[:-2], strides, padding, dilation)
    found = _convolved(graph, step, x, w, b, placed | {"group": groups})
    return _channels_last(graph, activated(graph, found, activation), x)


def _conv_relu_max_pool(
    graph: Graph,
    step: Step,
    x: Value,
    w: Value,
    b: Any,
    strides: Any,
    padding: str,
    pool_size: Any,
) -> str:
    placed = _windows(x, w.shape[:-2], strides, padding)
    found = graph.node("Relu", _convolved(graph, step, x, w, b, placed))
    size = _each_axis(pool_size, x)
    return _channels_last(graph, graph.node("MaxPool", found, kernel_shape=size, strides=size), x)


def _convolved(graph: Graph, step: Step, x: Value, w: Value, b: Any, placed: dict[str, Any]) -> str:
    """The convolution with channels second."""
    dtype, ndim = step.result.dtype, x.ndim
    filters_first = (ndim - 1, ndim - 2, *range(ndim - 2))
    filters = graph.node("Transpose", graph.operand(w, dtype), perm=filters_first)
    bias = [] if b is None else [graph.operand(b, dtype)]
    images = _channels_second(graph, graph.operand(x, dtype), x)
    return str(graph.node("Conv", images, filters, *bias, **placed))


def _pool(kind: str, **attributes: Any) -> Callable[..., Any]:
    def form(graph: Graph, step: Step, x: Value, pool_size: Any, strides: Any, padding: str) -> str:
        size = _each_axis(pool_size, x)
        placed = _windows(x, size, size if strides is None else strides, padding)
        images = _channels_second(graph, graph.operand(x), x)
        return _channels_last(graph, graph.node(kind, images, **placed, **attributes), x)

    return form


IMAGE_FORMS: dict[Callable[..., Any], Callable[..., Any]] = {
    autodiff.conv: _conv,
    autodiff.conv2d: _conv,
    autodiff.conv2d_relu_max_pool2d: _conv_relu_max_pool,
    **dict.fromkeys((autodiff.max_pool, autodiff.max_pool2d), _pool("MaxPool")),
    **dict.fromkeys(
        (autodiff.avg_pool, autodiff.avg_pool2d), _pool("AveragePool", count_include_pad=0)
    ),
}


def _channels_second(graph: Graph, name: str, x: Value) -> str:
    return str(graph.node("Transpose", name, perm=(0, x.ndim - 1, *range(1, x.ndim - 1))))


def _channels_last(graph: Graph, name: str, x: Value) -> str:
    return str(graph.node("Transpose", name, perm=(0, *range(2, x.ndim), 1)))


def _each_axis(lengths: Any, x: Value) -> list[int]:
    return [int(n) for n in np.broadcast_to(lengths, x.ndim - 2)]


def _windows(
    x: Value, size: Sequence[Any], strides: Any, padding: str, dilation: Any = 1
) -> dict[str, Any]:
    """Where windows lie. 'same' pads as TensorFlow does: an odd cell goes behind."""
    steps, apart = _each_axis(strides, x), _each_axis(dilation, x)
    before, behind = [0] * len(steps), [0] * len(steps)
    for axis, (cells, stride, distance) in enumerate(zip(size, steps, apart, strict=True)):
        span = (int(cells) - 1) * distance + 1
        if padding == "causal":
            before[axis] = span - 1
        elif padding.lower() == "same":
            length = x.shape[1 + axis]
            assert length is not None, "only the length of a batch differs between two traces"
            total = max((math.ceil(length / stride) - 1) * stride + span - length, 0)
            before[axis], behind[axis] = total // 2, total - total // 2
    placed = {"kernel_shape": [int(n) for n in size], "strides": steps, "pads": before + behind}
    return placed if set(apart) == {1} else {**placed, "dilations": apart}
