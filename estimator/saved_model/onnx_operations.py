"""What ONNX calls our operations: a table from each function to what writes it into a graph.

`form(graph, step, *args, **kwargs)` takes the arguments of the function itself, with `Value`s in
the place of arrays, and gives the name of the result, or a list of names where there are several.
https://onnx.ai/onnx/operators/ says what each operation of ONNX computes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import autodiff
from .onnx_graph import VARIES, Graph, Step, Value
from .onnx_images import IMAGE_FORMS, activated

Form = Callable[..., Any]

FORMS: dict[Callable[..., Any], Form] = {**IMAGE_FORMS}


def _form(*functions: Callable[..., Any]) -> Callable[[Form], Form]:
    def enter(form: Form) -> Form:
        FORMS.update(dict.fromkeys(functions, form))
        return form

    return enter


def _unary(kind: str) -> Form:
    def form(graph: Graph, step: Step, x: Any) -> str:
        return str(graph.node(kind, graph.operand(x, step.result.dtype)))

    return form


def _binary(kind: str) -> Form:
    def form(graph: Graph, step: Step, a: Any, b: Any) -> str:
        dtype = step.result.dtype
        return str(graph.node(kind, graph.operand(a, dtype), graph.operand(b, dtype)))

    return form


def _comparison(kind: str, negated: bool = False) -> Form:
    def form(graph: Graph, step: Step, a: Any, b: Any) -> str:
        dtype = np.result_type(*(x.dtype if isinstance(x, Value) else x for x in (a, b)))
        found = graph.node(kind, graph.operand(a, dtype), graph.operand(b, dtype))
        return str(graph.node("Not", found) if negated else found)

    return form


_UNARY: dict[Callable[..., Any], str] = {
    np.negative: "Neg",
    np.absolute: "Abs",
    np.sqrt: "Sqrt",
    np.reciprocal: "Reciprocal",
    np.exp: "Exp",
    np.log: "Log",
    np.sin: "Sin",
    np.cos: "Cos",
    np.tan: "Tan",
    np.arcsin: "Asin",
    np.arccos: "Acos",
    np.arctan: "Atan",
    np.sinh: "Sinh",
    np.cosh: "Cosh",
    np.tanh: "Tanh",
    np.sign: "Sign",
    np.floor: "Floor",
    np.ceil: "Ceil",
    np.rint: "Round",
    np.logical_not: "Not",
    autodiff.relu: "Relu",
    autodiff.sigmoid: "Sigmoid",
    autodiff.softplus: "Softplus",
    autodiff.erf: "Erf",
}
_BINARY: dict[Callable[..., Any], str] = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.divide: "Div",
    np.power: "Pow",
    np.maximum: "Max",
    np.minimum: "Min",
    np.logical_and: "And",
    np.logical_or: "Or",
    np.logical_xor: "Xor",
}
FORMS |= {function: _unary(kind) for function, kind in _UNARY.items()}
FORMS |= {function: _binary(kind) for function, kind in _BINARY.items()}
FORMS |= {
    np.equal: _comparison("Equal"),
    np.not_equal: _comparison("Equal", negated=True),
    np.less: _comparison("Less"),
    np.less_equal: _comparison("LessOrEqual"),
    np.greater: _comparison("Greater"),
    np.greater_equal: _comparison("GreaterOrEqual"),
}


@_form(np.square)
def _square(graph: Graph, step: Step, x: Any) -> str:
    name = graph.operand(x)
    return str(graph.node("Mul", name, name))


@_form(np.expm1)
def _expm1(graph: Graph, step: Step, x: Any) -> str:
    grown = graph.node("Exp", graph.operand(x, step.result.dtype))
    return str(graph.node("Sub", grown, graph.constant(1, step.result.dtype)))


@_form(np.log1p)
def _log1p(graph: Graph, step: Step, x: Any) -> str:
    dtype = step.result.dtype
    more = graph.node("Add", graph.operand(x, dtype), graph.constant(1, dtype))
    return str(graph.node("Log", more))


@_form(autodiff.leaky_relu)
def _leaky_relu(graph: Graph, step: Step, x: Any, negative_slope: float) -> str:
    return str(graph.node("LeakyRelu", graph.operand(x), alpha=float(negative_slope)))


@_form(autodiff.elu)
def _elu(graph: Graph, step: Step, x: Any, alpha: float) -> str:
    return str(graph.node("Elu", graph.operand(x), alpha=float(alpha)))


@_form(autodiff.silu)
def _silu(graph: Graph, step: Step, x: Any) -> str:
    name = graph.operand(x)
    return str(graph.node("Mul", name, graph.node("Sigmoid", name)))


@_form(autodiff.gelu)
def _gelu(graph: Graph, step: Step, x: Any, approximate: bool) -> str:
    name, dtype = graph.operand(x), step.result.dtype
    if approximate:
        cube = graph.node("Pow", name, graph.constant(3, dtype))
        bent = graph.node("Mul", cube, graph.constant(0.044715, dtype))
        scale = graph.constant(math.sqrt(2 / math.pi), dtype)
        share = graph.node("Tanh", graph.node("Mul", graph.node("Add", name, bent), scale))
    else:
        share = graph.node("Erf", graph.node("Mul", name, graph.constant(math.sqrt(0.5), dtype)))
    half = graph.node("Mul", name, graph.constant(0.5, dtype))
    return str(graph.node("Mul", half, graph.node("Add", share, graph.constant(1, dtype))))


def _along_axis(kind: str) -> Form:
    def form(graph: Graph, step: Step, x: Any, axis: Any) -> str:
        if not isinstance(axis, int):
            raise ValueError("it goes along several axes")
        return str(graph.node(kind, graph.operand(x), axis=axis))

    return form


FORMS |= {
    autodiff.softmax: _along_axis("Softmax"),
    autodiff.log_softmax: _along_axis("LogSoftmax"),
}


def _reduction(kind: str) -> Form:
    def form(graph: Graph, step: Step, x: Any, axis: Any = None, keepdims: bool = False) -> str:
        axes = [""] if axis is None else [graph.constant(np.ravel(axis), np.int64, "axes")]
        name = graph.operand(x, step.result.dtype)
        return str(graph.node(kind, name, *filter(None, axes), keepdims=int(keepdims)))

    return form


FORMS |= {
    np.sum: _reduction("ReduceSum"),
    np.mean: _reduction("ReduceMean"),
    np.max: _reduction("ReduceMax"),
    np.min: _reduction("ReduceMin"),
    np.prod: _reduction("ReduceProd"),
    autodiff.logsumexp: _reduction("ReduceLogSumExp"),
}
FORMS |= {np.amax: FORMS[np.max], np.amin: FORMS[np.min]}


def _position(kind: str) -> Form:
    def form(graph: Graph, step: Step, x: Any, axis: Any = None, keepdims: bool = False) -> str:
        if axis is None:
            raise ValueError("it needs an axis")
        return str(graph.node(kind, graph.operand(x), axis=axis, keepdims=int(keepdims)))

    return form


FORMS |= {np.argmax: _position("ArgMax"), np.argmin: _position("ArgMin")}


@_form(np.matmul, np.dot)
def _matmul(graph: Graph, step: Step, a: Any, b: Any) -> str:
    if step.function is np.dot and b.ndim > 2:
        raise ValueError("the second operand has more than two axes")
    dtype = step.result.dtype
    return str(graph.node("MatMul", graph.operand(a, dtype), graph.operand(b, dtype)))


@_form(np.einsum)
def _einsum(graph: Graph, step: Step, subscripts: str, *operands: Any, optimize: Any = None) -> str:
    names = [graph.operand(value, step.result.dtype) for value in operands]
    return str(graph.node("Einsum", *names, equation=subscripts))


@_form(autodiff.dense)
def _dense(graph: Graph, step: Step, x: Any, w: Any, b: Any, activation: str | None) -> str:
    dtype = step.result.dtype
    found = graph.node("MatMul", graph.operand(x, dtype), graph.operand(w, dtype))
    if b is not None:
        found = graph.node("Add", found, graph.operand(b, dtype))
    return activated(graph, found, activation)


@_form(autodiff.normalize)
def _normalize(
    graph: Graph, step: Step, x: Any, axes: Any, epsilon: float, gamma: Any, beta: Any
) -> list[str]:
    dtype = step.result[0].dtype
    along, name = graph.constant(axes, np.int64, "axes"), graph.operand(x, dtype)
    mean = graph.node("ReduceMean", name, along, keepdims=1)
    centered = graph.node("Sub", name, mean)
    variance = graph.node("ReduceMean", graph.node("Mul", centered, centered), along, keepdims=1)
    spread = graph.node("Sqrt", graph.node("Add", variance, graph.constant(epsilon, dtype)))
    found = graph.node("Div", centered, spread)
    for kind, weight in (("Mul", gamma), ("Add", beta)):
        if weight is not None:
            found = graph.node(kind, found, graph.operand(weight, dtype))
    return [found, mean, variance]


@_form(np.reshape, np.ravel, np.expand_dims, np.squeeze)
def _reshape(graph: Graph, step: Step, x: Any, *how: Any, **options: Any) -> str:
    return graph.reshape(graph.operand(x), step.result.shape)


@_form(np.transpose, np.swapaxes, np.moveaxis)
def _transpose(graph: Graph, step: Step, x: Value, *how: Any) -> str:
    # NumPy itself says where the axes go: each has another length here.
    lengths = range(2, 2 + x.ndim)
    moved = step.function(np.broadcast_to(0, lengths), *how)
    return str(graph.node("Transpose", graph.operand(x), perm=[n - 2 for n in moved.shape]))


@_form(np.astype, np.copy)
def _astype(graph: Graph, step: Step, x: Any, dtype: Any = None) -> str:
    return graph.cast(graph.operand(x), step.result.dtype)


@_form(np.clip)
def _clip(
    graph: Graph, step: Step, x: Any, a_min: Any, a_max: Any, min: Any = None, max: Any = None
) -> str:
    name = graph.operand(x, step.result.dtype)
    bounds = {"Max": min if a_min is None else a_min, "Min": max if a_max is None else a_max}
    for kind, bound in bounds.items():
        if bound is not None:
            name = graph.node(kind, name, graph.operand(bound, step.result.dtype))
    return name


@_form(np.where)
def _where(graph: Graph, step: Step, condition: Any, x: Any, y: Any) -> str:
    if x is None:
        raise ValueError("positions that hold are of a number that nobody knows before")
    dtype = step.result.dtype
    chosen = graph.operand(condition, bool)
    return str(graph.node("Where", chosen, graph.operand(x, dtype), graph.operand(y, dtype)))


@_form(np.concatenate)
def _concatenate(graph: Graph, step: Step, arrays: list[Any], axis: Any) -> str:
    if axis is None:
        raise ValueError("it needs an axis")
    names = [graph.operand(value, step.result.dtype) for value in arrays]
    return str(graph.node("Concat", *names, axis=axis))


@_form(np.stack)
def _stack(graph: Graph, step: Step, arrays: list[Any], axis: int) -> str:
    at = graph.constant([axis], np.int64, "axes")
    names = [graph.operand(value, step.result.dtype) for value in arrays]
    return str(graph.node("Concat", *[graph.node("Unsqueeze", n, at) for n in names], axis=axis))


@_form(np.split, np.array_split)
def _split(graph: Graph, step: Step, x: Any, sections: Any, axis: int) -> Any:
    lengths = [part.shape[axis] for part in step.result]
    if None in lengths:
        raise ValueError("the batch itself is split")
    at = graph.constant(lengths, np.int64, "split")
    return graph.node("Split", graph.operand(x), at, num_outputs=len(lengths), axis=axis)


@_form(np.pad)
def _pad(graph: Graph, step: Step, x: Any, width: Any, mode: str, constant_values: Any = 0) -> str:
    if isinstance(width, dict) or not isinstance(constant_values, int | float):
        raise ValueError("it has widths or values of a form that is not supported")
    plain = width.first if isinstance(width, Value) else width
    widths = np.broadcast_to(np.asarray(plain), (x.ndim, 2)).T.ravel()
    filler = graph.constant(constant_values, step.result.dtype)
    return str(graph.node("Pad", graph.operand(x), graph.constant(widths, np.int64), filler))


@_form(np.take)
def _take(graph: Graph, step: Step, x: Any, indices: Any, axis: Any) -> str:
    if axis is None:
        raise ValueError("it needs an axis")
    positions = indices if isinstance(indices, Value) else Value(*[np.asarray(indices)] * 2)
    return str(
        graph.node("Gather", graph.operand(x), graph.operand(positions, np.int64), axis=axis)
    )


@_form(operator.getitem)
def _getitem(graph: Graph, step: Step, x: Value, index: Any) -> str:
    if isinstance(index, Value):
        if index.dtype.kind not in "iu":
            raise ValueError("how many elements a mask picks is known by nobody before")
        return _take(graph, step, x, index, 0)
    items = index if isinstance(index, list) else [index]
    if not all(isinstance(i, int | slice | type(None) | type(...)) for i in items):
        raise ValueError("it is indexed by several arrays, or by bounds that depend on the batch")
    name = graph.operand(x)
    bounds = list(_bounds(items, x.ndim))
    if bounds:
        columns = zip(*bounds, strict=True)
        name = graph.node("Slice", name, *[graph.constant(c, np.int64) for c in columns])
    if all(isinstance(item, slice | type(...)) for item in items):
        return name
    return graph.reshape(name, step.result.shape)


def _bounds(items: Sequence[Any], ndim: int) -> Any:
    """(start, stop, axis, step) of each axis that is cut; a position is a cut of length one."""
    end = np.iinfo(np.int64).max
    left = ndim - len([item for item in items if isinstance(item, int | slice)])
    axis = 0
    for item in items:
        if isinstance(item, int):
            yield item, (item + 1) or end, axis, 1
        elif isinstance(item, slice) and item != slice(None):
            stride = 1 if item.step is None else item.step
            first, last = (0, end) if stride > 0 else (end, -end)
            start = first if item.start is None else item.start
            yield start, last if item.stop is None else item.stop, axis, stride
        axis += {type(None): 0, type(...): left}.get(type(item), 1)


def write_step(graph: Graph, step: Step) -> None:
    """Write one operation of the model into the graph.

    Raises:
        ValueError: It has no form in ONNX, or not for these arguments; it is named.
    """
    form = FORMS.get(step.function)
    if form is None:
        raise ValueError(
            f"{step.name} cannot be exported to ONNX; compute it by other operations, as those of "
            f"the built-in layers, outside of what is exported, or after it"
        )
    try:
        if VARIES in step.args and form is not _reshape:
            raise ValueError("an argument depends on the batch")
        graph.bind(step.result, form(graph, step, *step.args, **step.kwargs))
    except ValueError as error:
        raise ValueError(f"{step.name} cannot be exported to ONNX: {error}") from error
