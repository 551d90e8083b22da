"""`tf.placeholder` for serving receivers: what stands for the inputs of a request."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...estimator.placeholder import Placeholder, placeholders_in
from ...inputs import TensorSpec
from ...nn.layers import SymbolicTensor


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Placeholder:
    """What stands for an input of an exported model.

    A `serving_input_receiver_fn` returns it among the `receiver_tensors`, and as a feature, or
    computes features with it. No session feeds it: elsewhere arguments of functions are inputs.

    Args:
        dtype: That of the arrays.
        shape: Its lengths, of which the first is None, for the batch.
        name: The input's name, where it is the only one.
    """
    return Placeholder(TensorSpec(shape, dtype, name), f"tf.placeholder({name or dtype!r})")


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Placeholder:
    """The same with the dtype of `input`; each request must give a value nevertheless."""
    return placeholder(np.asarray(input).dtype, shape, name)


def noted_columns(
    decode_csv: Callable[..., list[Any]],
    records: SymbolicTensor,
    record_defaults: Sequence[Any],
    arguments: tuple[str, bool, str, Sequence[int] | None],
) -> list[SymbolicTensor]:
    """What `decode_csv` will give for lines that are not there yet.

    An export tries its model, and an empty line has too few fields: the placeholder of the lines
    learns one that has them.
    """
    columns = SymbolicTensor(decode_csv, (records, list(record_defaults), *arguments))
    lines = placeholders_in(records)
    if len(lines) == 1 and lines[0].spec.example is None and arguments[3] is None:
        spec = lines[0].spec
        example = np.full([n or 1 for n in spec.shape or ()], _line(record_defaults, arguments[0]))
        lines[0].spec = replace(spec, example=example)
    return [columns[index] for index in range(len(record_defaults))]


def _line(record_defaults: Sequence[Any], delimiter: str) -> str:
    """A line with a value in each field."""
    fields = []
    for default in record_defaults:
        if isinstance(default, np.dtype | type):
            fields.append("" if np.dtype(default).kind in "SUO" else "0")
        else:
            values = np.ravel(np.asarray(default)).tolist()
            fields.append(str(values[0]) if values else "0")
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(fields)
    return text.getvalue()
