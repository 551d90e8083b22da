"""The table of a model: its layers, the shapes of their outputs, the numbers of their weights."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...strategies import Variable
from ..layers import Layer, SymbolicTensor, symbolic_in

_TITLES = ("Layer (type)", "Output Shape", "Param #", "Connected to")
_WIDTH, _ENDS = 65, (0.45, 0.85, 1.0)
_WIDTH_OF_GRAPHS, _ENDS_OF_GRAPHS = 98, (0.33, 0.55, 0.67, 1.0)
_SHARE_OF_TRAINABLE = 0.15
_UNITS = ("Byte", "KB", "MB", "GB", "TB")


class Style(NamedTuple):
    """How the table looks; see `Model.summary`."""

    line_length: int | None
    positions: Sequence[float] | None
    expand_nested: bool
    show_trainable: bool
    layer_range: Sequence[str] | None


class Row(NamedTuple):
    """A layer of the table, or an operation between layers."""

    name: str
    kind: str
    shape: str
    weights: Sequence[Variable]
    sources: Sequence[str]
    depth: int = 0
    is_trainable: bool = True

    def cells(self, graph: bool, show_trainable: bool) -> tuple[str, ...]:
        """The texts of the columns."""
        num_params = sum(map(_size, self.weights))
        sources = ", ".join(f"{name}[0][0]" for name in self.sources)
        name = f"{'|  ' * self.depth}{self.name} ({self.kind})"
        cells = [name, self.shape, str(num_params)]
        cells += [f"[{sources}]"] * graph + ["NY"[self.is_trainable]] * show_trainable
        return tuple(cells)


def write_summary(model: Layer, print_fn: Callable[[str], Any], style: Style) -> None:
    """See `Model.summary`."""
    rows = _in_range(list(_rows(model, style.expand_nested)), style.layer_range)
    # In a row, as those of a `Sequential`, it goes without saying what is connected to what.
    outer = [row for row in rows if not row.depth]
    pairs = itertools.pairwise(outer)
    graph = any(row.sources and list(row.sources) != [before.name] for before, row in pairs)
    width = style.line_length or (_WIDTH_OF_GRAPHS if graph else _WIDTH)
    shares: Sequence[float] = _ENDS_OF_GRAPHS if graph else _ENDS
    titles = list(_TITLES[: 3 + graph])
    if style.show_trainable:
        titles.append("Trainable")
        shares = [share * (1 - _SHARE_OF_TRAINABLE) for share in shares] + [1.0]
    given = style.positions or shares
    ends = [int(end if given[-1] > 1 else width * end) for end in given]
    lines = [f'Model: "{model.name}"', "_" * width, _line(titles, ends), "=" * width]
    for row in rows:
        lines += [_line(row.cells(graph, style.show_trainable), ends), " " * width]
    lines.append("=" * width)
    trainable = set(map(id, model.trainable_weights))
    weights = list({id(weight): weight for weight in model.weights}.values())
    lines += [
        f"Total params: {_counted(weights)}",
        f"Trainable params: {_counted([w for w in weights if id(w) in trainable])}",
        f"Non-trainable params: {_counted([w for w in weights if id(w) not in trainable])}",
        "_" * width,
    ]
    for line in lines:
        print_fn(line)


def _in_range(rows: list[Row], layer_range: Sequence[str] | None) -> list[Row]:
    """The rows from the first layer of a range to the last one."""
    if layer_range is None:
        return rows
    if len(layer_range) != 2:
        raise ValueError(f"layer_range must be two names, it is {layer_range!r}")
    found = [[re.match(one, row.name) is not None for row in rows] for one in layer_range]
    for name, where in zip(layer_range, found, strict=True):
        if not any(where):
            names = ", ".join(row.name for row in rows)
            raise ValueError(
                f"layer_range names {name!r}, which no layer matches; there are {names}"
            )
    first = found[0].index(True)
    last = max(index for index, is_it in enumerate(found[1]) if is_it)
    return rows[min(first, last) : max(first, last) + 1]


def _rows(model: Any, expand_nested: bool, depth: int = 0) -> Iterator[Row]:
    found = _of_layers(model, depth) if model.graph() is None else _of_graph(model, depth)
    for row, layer in found:
        yield row
        if expand_nested and layer is not None and layer.sublayers:
            yield from _rows(layer, expand_nested, depth + 1)


def _of_graph(model: Any, depth: int) -> Iterator[tuple[Row, Layer | None]]:
    """The inputs of a model, and what it computes of them, each layer once."""
    inputs, steps = model.graph()
    names: dict[int, str] = {}
    for number, tensor in enumerate(inputs, start=1):
        names[id(tensor)] = name = tensor.name or f"input_{number}"
        if model.lists_inputs:
            yield Row(name, "InputLayer", f"[{_shape_of(tensor)}]", (), (), depth), None
    for step in steps:
        layer = step.function if isinstance(step.function, Layer) else None
        name = step.function.__name__ if layer is None else layer.name
        is_new = layer is None or layer.name not in names.values()
        number = sum(other.partition("#")[0] == name for other in names.values())
        names[id(step)] = f"{name}#{number}" if layer is None and number else name
        if is_new:
            sources = [names[id(part)] for part in symbolic_in((step.args, step.kwargs))]
            kind = "operation" if layer is None else type(layer).__name__
            weights = () if layer is None else layer.weights
            is_trainable = layer is not None and layer.trainable
            row = Row(names[id(step)], kind, _shape_of(step), weights, sources, depth, is_trainable)
            yield row, layer


def _of_layers(model: Layer, depth: int) -> Iterator[tuple[Row, Layer | None]]:
    """The layers of a model of one's own, which alone knows how they are connected."""
    before: list[str] = []
    for layer in model.sublayers:
        kind = type(layer).__name__
        row = Row(layer.name, kind, "multiple", layer.weights, before, depth, layer.trainable)
        yield row, layer
        before = [layer.name]


def _shape_of(tensor: SymbolicTensor) -> str:
    """As text."""
    try:
        shape = tensor.shape
    except ValueError:  # such short examples, say, as no window fits into
        return "?"
    return str(shape)


def _line(cells: Sequence[str], ends: Sequence[int]) -> str:
    line = " "
    for text, end in zip(cells, ends, strict=False):
        line = f"{line}{text}"[: end - 1].ljust(end)
    return line


def _size(weight: Variable) -> int:
    return math.prod(weight.shape)


def _counted(weights: Iterable[Variable]) -> str:
    """How many numbers, and how much memory they take."""
    weights = list(weights)
    num_bytes = float(sum(_size(weight) * weight.dtype.itemsize for weight in weights))
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes /= 1024
        unit += 1
    return f"{sum(map(_size, weights))} ({num_bytes:.2f} {_UNITS[unit]})"
